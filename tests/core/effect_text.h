// Effects as short lines, so that a test reads as what went in and what came out.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/codes.h"
#include "base/match.h"
#include "core/events.h"

namespace kvferry::core {

using Lines = std::vector<std::string>;

inline std::string number(std::uint64_t value) { return std::to_string(value); }

inline std::string span_text(const protocol::ChunkSpan& span) {
  return "chunk " + number(span.number) + " [" + number(span.position_begin) + ", " + number(span.position_end) + ")" +
         (span.region_begin != 0 || span.region_end > 2
              ? " regions [" + number(span.region_begin) + ", " + number(span.region_end) + ")"
              : "") +
         (span.last ? " last" : "");
}

inline std::string list_text(const std::vector<std::int32_t>& items) {
  std::string text;
  for (const std::int32_t item : items) text += (text.empty() ? "" : " ") + std::to_string(item);
  return "{" + text + "}";
}

inline std::string lists_text(const std::vector<ItemList>& lists) {
  std::string text;
  for (const ItemList& list : lists) text += " " + number(list.component) + ":" + list_text(list.items);
  return text;
}

inline std::string error_text(const Error& error) {
  return std::string(code_name(error.code)) + ": " + error.text + (error.peer.empty() ? "" : " @" + error.peer);
}

inline std::string message_text(const protocol::Message& message) {
  using namespace protocol;
  if (const auto* m = std::get_if<Grant>(&message)) {
    std::string text = "grant room " + number(m->room.value) + " transfer " + number(m->transfer.value) + " pages [" +
                       number(m->prefix_pages) + ", " + number(m->total_pages) + ")" + (m->with_aux ? " aux" : "");
    for (const std::uint64_t items : m->state_items) text += " state " + number(items);
    if (m->grants_awaited != 1) text += " awaited " + number(m->grants_awaited);
    return text + (m->inlined ? " inline" : "") + (m->verify ? " verify" : "");
  }
  if (const auto* m = std::get_if<Sum>(&message)) return "sum " + number(m->transfer.value) + " " + number(m->crc32c);
  if (const auto* m = std::get_if<Offer>(&message)) {
    std::string text = "offer " + number(m->transfer.value) + " " + span_text(m->span) + " " + list_text(m->pages);
    if (m->aux_item >= 0) text += " aux " + std::to_string(m->aux_item);
    for (const auto& list : m->state_items) text += " state " + list_text(list);
    return text;
  }
  if (const auto* m = std::get_if<Landed>(&message)) {
    return "landed " + number(m->transfer.value) + " chunk " + number(m->number);
  }
  if (const auto* m = std::get_if<Confirm>(&message)) return "confirm " + number(m->transfer.value);
  if (const auto* m = std::get_if<Closed>(&message)) return "closed " + number(m->transfer.value);
  if (const auto* m = std::get_if<Abort>(&message)) {
    return "abort room " + number(m->room.value) + " transfer " + number(m->transfer.value) + " " + code_name(m->code) +
           ": " + m->text;
  }
  if (const auto* m = std::get_if<Queued>(&message)) {
    std::string text = "queued";
    for (const TransferId transfer : m->transfers) text += " " + number(transfer.value);
    return text;
  }
  if (const auto* m = std::get_if<Ping>(&message)) return "ping " + number(m->number);
  if (const auto* m = std::get_if<Pong>(&message)) return "pong " + number(m->number);
  return message_name(message);
}

inline std::string key_text(const PeerKey& key) {
  return key.bootstrap.text() + " dp " + number(key.place.dp) + " tp " + number(key.place.tp);
}

inline std::string effect_text(const Effect& effect) {
  const auto id = [](const auto& e) { return number(e.value); };
  return std::visit(
      match{
          [&](const effect::Send& e) { return "send " + id(e.session) + ": " + message_text(e.message); },
          [&](const effect::SendInline& e) {
            return "send " + id(e.order.session) + ": inline " + id(e.order.transfer) + " " + span_text(e.order.span) +
                   lists_text(e.order.lists);
          },
          [&](const effect::CloseSession& e) { return "close session " + id(e.session) + " " + error_text(e.reason); },
          [&](const effect::FetchSizes& e) { return "fetch sizes " + e.bootstrap.text(); },
          [&](const effect::FetchRoute& e) { return "fetch route " + key_text(e.key); },
          [&](const effect::Dial& e) { return "dial " + key_text(e.key) + " at " + e.route.address.text(); },
          [&](const effect::OpenWindow& e) {
            return "open window " + id(e.window.session) + " transfer " + id(e.window.transfer) + " from " +
                   number(e.window.first_position) + lists_text(e.window.lists) + (e.inlined ? " inline" : "");
          },
          [&](const effect::CloseWindow& e) {
            return "close window " + id(e.session) + " transfer " + id(e.transfer) + (e.inlined ? " inline" : "");
          },
          [&](const effect::Move& e) {
            return "move " + id(e.order.session) + " transfer " + id(e.order.transfer) + " " + span_text(e.order.span) +
                   lists_text(e.order.lists);
          },
          [&](const effect::Sum& e) {
            return "sum " + id(e.order.session) + " transfer " + id(e.order.transfer) + lists_text(e.order.lists);
          },
          [&](const effect::StopMoves& e) { return "stop moves " + id(e.session) + " transfer " + id(e.transfer); },
          [&](const effect::CloseMoverSession& e) { return "close mover session " + id(e.session); },
          [&](const effect::RoomChanged& e) {
            return "handle " + id(e.handle) + " is " + poll_name(e.state) + (e.error ? " " + error_text(*e.error) : "");
          },
          [&](const effect::PagesReleased& e) { return "handle " + id(e.handle) + " released"; },
          [&](const effect::PrefixKnown& e) { return "handle " + id(e.handle) + " prefix " + number(e.prefix_pages); },
          [&](const effect::ChunksTaken& e) { return "handle " + id(e.handle) + " took " + number(e.count); },
          [&](const effect::BytesMoved& e) { return "handle " + id(e.handle) + " moved " + number(e.bytes); },
          [&](const effect::LayersReceived& e) { return "handle " + id(e.handle) + " layers " + number(e.count); },
          [&](const effect::HandleDone& e) { return "handle " + id(e.handle) + " done"; },
          [&](const effect::Note& e) { return "note " + e.text; },
      },
      effect);
}

}  // namespace kvferry::core
