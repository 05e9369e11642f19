#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/match.h"
#include "core/receiver_core.h"
#include "layout/pages.h"

namespace kvferry::core {
namespace {

std::uint64_t add(std::uint64_t a, std::uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

std::uint64_t saturating(std::uint64_t items, const std::vector<std::uint64_t>& item_bytes) {
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : item_bytes) {
    std::uint64_t product = 0;
    sum = __builtin_mul_overflow(bytes, items, &product) ? UINT64_MAX : add(sum, product);
  }
  return sum;
}

}  // namespace

void ReceiverCore::when_linked(Room& room, Instant now, Effects& out) {
  if (room.state != Poll::bootstrapping || !room.mapped) return;
  bool linked = true;
  for (const Source& source : room.sources) {
    if (peers_.at(source.key).link == Link::up) continue;
    linked = false;
    want(source.key, room.handle, now, out);  // one that was linked may have been lost while the others came
  }
  if (!linked) return;
  for (Source& source : room.sources) {
    source.session = peers_.at(source.key).session;
    sessions_.at(*source.session).rooms.insert(room.handle);
  }
  if (auto fault = coverage_fault(room)) return fail(room, std::move(*fault), out);
  become(room, Poll::waiting_for_input, out);
  room.deadline = now + limits_.waiting_timeout;
  if (room.init) grant(room, now, out);
}

// Whether the linked ranks together fill every page: all of its bytes, each from one of them.
std::optional<Error> ReceiverCore::coverage_fault(const Room& room) const {
  if (room.sources.size() == 1 && sessions_.at(*room.sources.front().session).pairing.fills) return std::nullopt;
  std::vector<std::uint64_t> bytes(shape_.kv_item_bytes.size());
  for (const Source& source : room.sources) {
    const layout::Pairing& pairing = sessions_.at(*source.session).pairing;
    if (pairing.share != 0) continue;
    for (const layout::RegionCut& cut : pairing.target) bytes[cut.region] += cut.units * cut.unit_bytes();
  }
  const auto differs = std::ranges::mismatch(bytes, shape_.kv_item_bytes);
  if (differs.in1 == bytes.end()) return std::nullopt;
  return Error{Code::mismatch,
               "the prefill ranks that feed this rank hold " + std::to_string(*differs.in1) + " of the " +
                   std::to_string(*differs.in2) + " bytes of a page in kv region " +
                   std::to_string(differs.in1 - bytes.begin()) +
                   ": check the layers (Memory::first_layer) and sizes that each rank was started with",
               room.id.value, room.bootstrap.text()};
}

void ReceiverCore::grant(Room& room, Instant now, Effects& out) {
  KVF_ASSERT(room.state == Poll::waiting_for_input && room.init && !room.granted);
  room.granted = true;
  room.deadline = now + limits_.waiting_timeout;
  transfers_[room.transfer] = room.handle;
  for (Source& source : room.sources) grant_source(room, source, out);
  room.init->pages = {};
}

// What this rank sends of the room. The window opens before its grant leaves.
void ReceiverCore::grant_source(Room& room, Source& source, Effects& out) {
  const layout::Pairing& pairing = sessions_.at(*source.session).pairing;
  const std::uint64_t units = pairing.target_units;
  const layout::Range granted{room.prefix_pages * units, (room.prefix_pages + room.granted_pages) * units};
  layout::Range range = pairing.positions(granted);
  if (pairing.dummy()) range.end = range.begin;  // it sends its end alone
  core::Window window{*source.session, room.transfer, range.begin, {}};
  window.lists.push_back({layout::component_kv, {}});
  std::vector<std::int32_t>& pages = room.init->pages;
  if (units == 1 && range == granted && room.sources.size() == 1) {
    window.lists.back().items = std::move(pages);
  } else {
    layout::append_units(pages, pairing.target_units, {range.begin - granted.begin, range.end - granted.begin},
                         window.lists.back().items);
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(range.size(), pairing.unit_bytes, &bytes)) bytes = UINT64_MAX;
  source.with_aux = pairing.beside && room.with_aux;
  if (source.with_aux) {
    window.lists.push_back({layout::component_aux, {*room.init->aux_item}});
    bytes = add(bytes, saturating(1, shape_.aux_item_bytes));
  }
  for (std::uint32_t i = 0; pairing.beside && i < pairing.state.decode.size(); ++i) {
    const std::uint32_t own = pairing.state.decode[i];
    std::vector<std::int32_t> items;
    if (own < room.init->state.size()) items = std::move(room.init->state[own]);
    source.state_items.push_back(items.size());
    bytes = add(bytes, saturating(items.size(), shape_.state[own].item_bytes));
    if (!items.empty()) window.lists.push_back({layout::component_state + i, std::move(items)});
  }
  while (!source.state_items.empty() && source.state_items.back() == 0) source.state_items.pop_back();
  source.inlined = bytes <= limits_.inline_bytes_max;
  source.ledger = ChunkLedger(range, static_cast<std::uint32_t>(pairing.target.size()), pairing.slack(range, granted));
  if (!pairing.dummy()) source.layers = pairing.layers;
  source.regions_a_layer = pairing.regions_a_layer;
  source.window = Window::open;
  if (limits_.verify) source.lists = window.lists;
  out.push_back(effect::OpenWindow{std::move(window), source.inlined});
  protocol::Grant grant;
  grant.room = room.id;
  grant.transfer = room.transfer;
  grant.prefix_pages = room.prefix_pages;
  grant.total_pages = room.prefix_pages + room.granted_pages;
  grant.with_aux = source.with_aux;
  grant.state_items = source.state_items;
  grant.grants_awaited = room.grants_awaited;
  grant.inlined = source.inlined;
  grant.dummy = pairing.dummy();
  grant.verify = limits_.verify;
  out.push_back(effect::Send{*source.session, std::move(grant)});
}

void ReceiverCore::first_bytes(Room& room, Instant now, Effects& out) {
  room.deadline = now + limits_.progress_timeout;
  if (room.state != Poll::waiting_for_input) return;
  become(room, Poll::transferring, out);
  room_timers_.set(room.handle, room.deadline);  // it may be the shorter limit
}

// A layer is whole when every rank that sends of it has sent it.
void ReceiverCore::note_layers(Room& room, Effects& out) {
  const layout::Range own = layout::layers_of(shape_);
  std::uint64_t whole = own.end;
  for (const Source& source : room.sources) {
    const std::uint64_t came = source.layers.begin + source.ledger.leading_regions() / source.regions_a_layer;
    if (came < source.layers.end) whole = std::min(whole, came);
  }
  const auto count = static_cast<std::uint32_t>(whole - own.begin);
  if (count <= room.layers_received) return;
  room.layers_received = count;
  out.push_back(effect::LayersReceived{room.handle, count});
}

// Which state component came short or long, if one did. Components that are not named have no items.
std::optional<Error> ReceiverCore::state_fault(const Source& source, const std::vector<std::uint64_t>& came) const {
  for (std::size_t i = 0; i < std::max(came.size(), source.state_items.size()); ++i) {
    const std::uint64_t granted = i < source.state_items.size() ? source.state_items[i] : 0;
    const std::uint64_t there = i < came.size() ? came[i] : 0;
    if (there == granted) continue;
    return Error{Code::mismatch, std::to_string(there) + " items of state component " + std::to_string(i) + " came, " +
                                     std::to_string(granted) + " were granted"};
  }
  return std::nullopt;
}

// The sender has a chunk to be read. It is checked against the grant before a byte moves.
void ReceiverCore::on_offer(SessionId session, protocol::Offer& offer, Instant now, Effects& out) {
  const auto [room, source] = find_transfer(session, offer.transfer);
  if (room == nullptr || room->concluded() || source->window != Window::open) {
    ++counters_.late_messages;
    return;
  }
  const protocol::ChunkSpan& span = offer.span;
  Result<void> fits;
  if (source->inlined || sessions_.at(session).path != DataPath::pull) {
    fits = Error{Code::protocol, "offers chunk " + std::to_string(span.number) + " to be read, but it is to be sent"};
  }
  if (fits) fits = source->ledger.announce(span, limits_.chunks_max);
  if (fits && offer.pages.size() != span.position_end - span.position_begin) {
    fits = Error{Code::protocol, "offers " + std::to_string(offer.pages.size()) + " pages for " +
                                     std::to_string(span.position_end - span.position_begin) + " positions"};
  }
  if (fits && span.last && source->with_aux && offer.aux_item < 0) {
    fits = Error{Code::mismatch, "offers no aux record, one was granted"};
  }
  if (fits && span.last) {
    std::vector<std::uint64_t> counts;
    for (const auto& list : offer.state_items) counts.push_back(list.size());
    if (auto fault = state_fault(*source, counts)) fits = std::move(*fault);
  }
  if (!fits) {
    Error error = fits.error();
    error.room = room->id.value;
    error.peer = address_of(session);
    return fail(*room, std::move(error), out);
  }
  ChunkOrder order{session, offer.transfer, span, {}};
  order.lists.push_back({layout::component_kv, std::move(offer.pages)});
  if (span.last && source->with_aux) order.lists.push_back({layout::component_aux, {offer.aux_item}});
  for (std::size_t i = 0; span.last && i < source->state_items.size(); ++i) {
    if (source->state_items[i] == 0) continue;
    order.lists.push_back({layout::component_state + static_cast<std::uint32_t>(i), std::move(offer.state_items[i])});
  }
  first_bytes(*room, now, out);
  out.push_back(effect::Move{std::move(order)});
}

void ReceiverCore::on_placed(const Placed& placed, Instant now, Effects& out) {
  const auto [room, source] = find_transfer(placed.session, placed.transfer);
  if (room == nullptr || room->concluded() || source->window != Window::open) return;  // the end came first
  Result<void> fits;
  if (!source->ledger.announced(placed.span.number)) fits = source->ledger.announce(placed.span, limits_.chunks_max);
  if (fits) fits = source->ledger.land(placed.span);
  if (fits && placed.span.last && placed.with_aux != source->with_aux) {
    fits = Error{Code::mismatch, source->with_aux ? "the last chunk came without the aux record that was granted"
                                                  : "the last chunk came with an aux record that was not granted"};
  }
  if (fits && placed.span.last) {
    if (auto fault = state_fault(*source, placed.state_items)) fits = std::move(*fault);
  }
  if (fits && placed.span.last && !source->ledger.complete()) {
    // Chunks of one session come in order, so what the last one leaves open will not come.
    fits = Error{Code::mismatch, "the last chunk came, but " + source->ledger.missing() + " were never sent"};
  }
  if (!fits) {
    Error error = fits.error();
    error.room = room->id.value;
    error.peer = address_of(placed.session);
    return fail(*room, std::move(error), out);
  }
  counters_.bytes += placed.bytes;
  out.push_back(effect::BytesMoved{room->handle, placed.bytes});
  first_bytes(*room, now, out);
  if (!placed.span.last || room->sources.size() > 1) note_layers(*room, out);  // else its end is near enough
  if (!placed.span.last) {
    out.push_back(effect::Send{placed.session, protocol::Landed{placed.transfer, placed.span.number}});
    return;
  }
  source->complete = true;
  close_window(*room, *source, out);
}

void ReceiverCore::on_window_closed(SessionId session, TransferId transfer, Effects& out) {
  const auto [room, source] = find_transfer(session, transfer);
  if (room == nullptr || source->window == Window::closed) return;
  source->window = Window::closed;
  const HandleId handle = room->handle;
  if (!source->complete || room->state == Poll::failed) {
    if (sessions_.contains(session)) out.push_back(effect::Send{session, protocol::Closed{transfer}});
  } else if (limits_.verify) {
    // Now that nothing can be written any more.
    source->summing = true;
    auto& positions = source->lists.front().items;
    positions.resize(std::min<std::size_t>(positions.size(), source->ledger.positions()));
    out.push_back(effect::Sum{{session, transfer, std::move(source->lists)}});
  } else {
    confirm(*room, *source, out);
  }
  settle(handle, out);
}

void ReceiverCore::confirm(Room& room, const Source& source, Effects& out) {
  if (sessions_.contains(*source.session)) {
    out.push_back(effect::Send{*source.session, protocol::Confirm{room.transfer}});
  }
  conclude_if_complete(room, out);
}

void ReceiverCore::on_sum(SessionId session, const protocol::Sum& m, Effects& out) {
  const auto [room, source] = find_transfer(session, m.transfer);
  if (room == nullptr || room->concluded() || !limits_.verify || source->sum_there) {
    ++counters_.late_messages;
    return;
  }
  source->sum_there = m.crc32c;
  const HandleId handle = room->handle;
  compare_sums(*room, *source, out);
  settle(handle, out);
}

void ReceiverCore::compare_sums(Room& room, Source& source, Effects& out) {
  if (!source.sum_here || !source.sum_there) return;
  if (whole(source)) return confirm(room, source, out);
  char text[128];
  std::snprintf(text, sizeof text, "the checksum of what prefill sent is %08x, that of what stands here is %08x",
                *source.sum_there, *source.sum_here);
  fail(room, Error{Code::corrupt, text, room.id.value, address_of(source.session)}, out);
}

void ReceiverCore::conclude_if_complete(Room& room, Effects& out) {
  const bool all =
      std::ranges::all_of(room.sources, [this](const Source& s) { return whole(s) && s.window == Window::closed; });
  if (!all || room.concluded()) return;
  note_layers(room, out);
  become(room, Poll::success, out);
  ++counters_.rooms_succeeded;
  room_timers_.erase(room.handle);
}

void ReceiverCore::on_abort(SessionId session, const protocol::Abort& m, Effects& out) {
  const auto [room, source] = find_transfer(session, m.transfer);
  if (room == nullptr) {
    ++counters_.late_messages;
    return;
  }
  source->told = true;
  if (room->concluded() || whole(*source)) return;  // what has come whole stays; the window is closing
  fail(*room,
       Error{m.code == Code::aborted ? Code::peer_aborted : m.code,
             "prefill ended the room (" + std::string(code_name(m.code)) + "): " + m.text, room->id.value,
             address_of(session)},
       out);
}

void ReceiverCore::on_queued(SessionId session, const protocol::Queued& m, Instant now) {
  for (const TransferId transfer : m.transfers) {
    const auto [room, source] = find_transfer(session, transfer);
    if (room == nullptr || room->concluded()) continue;
    if (room->state == Poll::waiting_for_input) room->deadline = now + limits_.waiting_timeout;
  }
}

void ReceiverCore::handle(MoverEvent& e, Instant now, Effects& out) {
  std::visit(match{
                 [&](const Placed& p) { on_placed(p, now, out); },
                 [&](const Progress& p) {
                   const auto [room, source] = find_transfer(p.session, p.transfer);
                   if (room != nullptr && !room->concluded()) first_bytes(*room, now, out);
                 },
                 [&](const WindowClosed& w) { on_window_closed(w.session, w.transfer, out); },
                 [&](const Rejected& r) {
                   const auto [room, source] = find_transfer(r.session, r.transfer);
                   if (room == nullptr || room->concluded()) return;
                   Error error = r.error;
                   error.room = room->id.value;
                   error.peer = address_of(r.session);
                   fail(*room, std::move(error), out);
                 },
                 [&](const SessionLost& s) {
                   if (sessions_.contains(s.session)) lose(s.session, s.error, out);
                 },
                 [&](const SessionClosed& s) { on_session_closed(s.session, out); },
                 [&](const Summed& s) {
                   const auto [room, source] = find_transfer(s.session, s.transfer);
                   if (room == nullptr) return;
                   source->summing = false;
                   const HandleId handle = room->handle;
                   if (!room->concluded()) {
                     source->sum_here = s.crc32c;
                     compare_sums(*room, *source, out);
                   }
                   settle(handle, out);
                 },
                 [&](const Pushed&) {},  // a receiver pushes nothing
                 [&](const Stopped&) {},
             },
             e);
}

}  // namespace kvferry::core
