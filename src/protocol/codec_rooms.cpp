// The messages about rooms, to and from the wire.
#include "base/try.h"
#include "protocol/wire_values.h"

namespace kvferry::protocol {
namespace {

void put_span(const ChunkSpan& span, wire::ChunkSpan& out) {
  out.set_number(span.number);
  out.set_position_begin(span.position_begin);
  out.set_position_end(span.position_end);
  out.set_region_begin(span.region_begin);
  out.set_region_end(span.region_end);
  out.set_last(span.last);
}

Result<ChunkSpan> get_span(const wire::ChunkSpan& in) {
  if (in.position_begin() > in.position_end() || in.region_begin() > in.region_end()) {
    return cannot_be("chunk " + std::to_string(in.number()) + ": positions [" + std::to_string(in.position_begin()) +
                     ", " + std::to_string(in.position_end()) + ") or regions [" + std::to_string(in.region_begin()) +
                     ", " + std::to_string(in.region_end()) + ") are reversed");
  }
  return ChunkSpan{.number = in.number(),
                   .position_begin = in.position_begin(),
                   .position_end = in.position_end(),
                   .region_begin = in.region_begin(),
                   .region_end = in.region_end(),
                   .last = in.last()};
}

}  // namespace

void to_wire(const Grant& value, wire::WireMessage& out) {
  wire::Grant& grant = *out.mutable_grant();
  grant.set_room(value.room.value);
  grant.set_transfer(value.transfer.value);
  grant.set_prefix_pages(value.prefix_pages);
  grant.set_total_pages(value.total_pages);
  grant.set_with_aux(value.with_aux);
  put_list<std::uint64_t>(value.state_items, *grant.mutable_state_items());
  grant.set_grants_awaited(value.grants_awaited);
  grant.set_inlined(value.inlined);
  grant.set_dummy(value.dummy);
  grant.set_verify(value.verify);
}

Result<Message> from_wire(const wire::Grant& in) {
  if (static_cast<std::size_t>(in.state_items_size()) > state_lists_max) {
    return cannot_be("Grant: " + std::to_string(in.state_items_size()) + " state components; at most " +
                     std::to_string(state_lists_max) + " can be");
  }
  return Message(Grant{.room = {in.room()},
                       .transfer = {in.transfer()},
                       .prefix_pages = in.prefix_pages(),
                       .total_pages = in.total_pages(),
                       .with_aux = in.with_aux(),
                       .state_items = get_list(in.state_items()),
                       .grants_awaited = in.grants_awaited(),
                       .inlined = in.inlined(),
                       .dummy = in.dummy(),
                       .verify = in.verify()});
}

void to_wire(const Inline& value, wire::WireMessage& out) {
  wire::Inline& chunk = *out.mutable_inline_();
  chunk.set_transfer(value.transfer.value);
  put_span(value.span, *chunk.mutable_span());
}

Result<Message> from_wire(const wire::Inline& in) {
  KVF_TRY(span, get_span(in.span()));
  return Message(Inline{.transfer = {in.transfer()}, .span = span});
}

void to_wire(const Offer& value, wire::WireMessage& out) {
  wire::Offer& offer = *out.mutable_offer();
  offer.set_transfer(value.transfer.value);
  put_span(value.span, *offer.mutable_span());
  put_list<std::int32_t>(value.pages, *offer.mutable_pages());
  offer.set_aux_item(value.aux_item);
  put_lists(value.state_items, *offer.mutable_state_counts(), *offer.mutable_state_items());
}

Result<Message> from_wire(const wire::Offer& in) {
  KVF_TRY(span, get_span(in.span()));
  KVF_TRY(state, get_lists(in.state_counts(), in.state_items(), "Offer"));
  return Message(Offer{.transfer = {in.transfer()},
                       .span = span,
                       .pages = get_list(in.pages()),
                       .aux_item = in.aux_item(),
                       .state_items = std::move(state)});
}

void to_wire(const Landed& value, wire::WireMessage& out) {
  out.mutable_landed()->set_transfer(value.transfer.value);
  out.mutable_landed()->set_number(value.number);
}
Result<Message> from_wire(const wire::Landed& in) {
  return Message(Landed{.transfer = {in.transfer()}, .number = in.number()});
}

void to_wire(const Sum& value, wire::WireMessage& out) {
  out.mutable_sum()->set_transfer(value.transfer.value);
  out.mutable_sum()->set_crc32c(value.crc32c);
}
Result<Message> from_wire(const wire::Sum& in) {
  return Message(Sum{.transfer = {in.transfer()}, .crc32c = in.crc32c()});
}

void to_wire(const Confirm& value, wire::WireMessage& out) {
  out.mutable_confirm()->set_transfer(value.transfer.value);
}
Result<Message> from_wire(const wire::Confirm& in) { return Message(Confirm{.transfer = {in.transfer()}}); }

void to_wire(const Abort& value, wire::WireMessage& out) {
  wire::Abort& abort = *out.mutable_abort();
  abort.set_room(value.room.value);
  abort.set_transfer(value.transfer.value);
  abort.set_code(static_cast<std::uint32_t>(value.code));
  const std::string_view text = cut_text(value.text);
  abort.set_text(text.data(), text.size());
}
Result<Message> from_wire(const wire::Abort& in) {
  KVF_TRY(code, read_code(in.code()));
  KVF_TRY(text, read_text(in.text(), "the reason of an Abort"));
  return Message(Abort{.room = {in.room()}, .transfer = {in.transfer()}, .code = code, .text = std::move(text)});
}

void to_wire(const Closed& value, wire::WireMessage& out) { out.mutable_closed()->set_transfer(value.transfer.value); }
Result<Message> from_wire(const wire::Closed& in) { return Message(Closed{.transfer = {in.transfer()}}); }

void to_wire(const Queued& value, wire::WireMessage& out) {
  auto& transfers = *out.mutable_queued()->mutable_transfers();
  transfers.Reserve(static_cast<int>(value.transfers.size()));
  for (const TransferId transfer : value.transfers) transfers.AddAlreadyReserved(transfer.value);
}
Result<Message> from_wire(const wire::Queued& in) {
  Queued queued;
  queued.transfers.reserve(static_cast<std::size_t>(in.transfers_size()));
  for (const std::uint64_t transfer : in.transfers()) queued.transfers.push_back({transfer});
  return Message(std::move(queued));
}

void to_wire(const Ping& value, wire::WireMessage& out) { out.mutable_ping()->set_number(value.number); }
Result<Message> from_wire(const wire::Ping& in) { return Message(Ping{.number = in.number()}); }

void to_wire(const Pong& value, wire::WireMessage& out) { out.mutable_pong()->set_number(value.number); }
Result<Message> from_wire(const wire::Pong& in) { return Message(Pong{.number = in.number()}); }

}  // namespace kvferry::protocol
