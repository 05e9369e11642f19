#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/match.h"
#include "core/sender_core.h"
#include "layout/pages.h"

namespace kvferry::core {

void SenderCore::handle(event::SendChunk& e, Instant now, Effects& out) {
  Room* room = find(e.handle);
  if (room == nullptr || room->concluded()) {
    // The engine had not seen the end yet; its chunk leaves the waiting count and nothing else happens.
    out.push_back(effect::ChunksTaken{e.handle, 1});
    return;
  }
  if (room->state == Poll::bootstrapping || !room->init) {
    room->waiting.push_back(std::move(e));
    return;
  }
  out.push_back(effect::ChunksTaken{e.handle, 1});
  dispatch(*room, e, now, out);
}

// Gives one chunk to every destination that needs of it. The last one goes to all: it ends the room for them.
void SenderCore::dispatch(Room& room, const event::SendChunk& chunk, Instant now, Effects& out) {
  KVF_ASSERT(room.granted() && room.init && !room.last_sent);
  KVF_ASSERT(chunk.first_page + chunk.pages.size() <= room.num_pages);  // refused at the call
  room.pages_sent = std::max(room.pages_sent, chunk.first_page + chunk.pages.size());
  room.last_sent = chunk.last;
  if (room.state == Poll::waiting_for_input) become(room, Poll::transferring, out);
  if (auto fault = state_fault(room, chunk)) return fail(room, std::move(*fault), now, out);
  // In units, counted from the first of the chunk's first page.
  const std::uint64_t first_unit = (room.positions.begin / room.units + chunk.first_page) * room.units;
  const layout::Range sent =
      layout::intersection(room.positions, {first_unit, first_unit + chunk.pages.size() * room.units});
  if (sent.size() > protocol::offer_items_max) {
    return fail(room,
                Error{Code::out_of_range,
                      "a chunk of " + std::to_string(chunk.pages.size()) + " pages is " + std::to_string(sent.size()) +
                          " of decode's size; send at most " + std::to_string(protocol::offer_items_max / room.units) +
                          " at once",
                      room.id.value},
                now, out);
  }
  if (std::ranges::any_of(room.destinations, [](const Destination& d) { return d.grant.verify; })) {
    std::vector<std::int32_t> units;
    layout::append_units(chunk.pages, room.units, {sent.begin - first_unit, sent.end - first_unit}, units);
    room.units_to_sum.resize(room.positions.size());
    std::ranges::copy(units,
                      room.units_to_sum.begin() + static_cast<std::ptrdiff_t>(sent.begin - room.positions.begin));
  }
  for (Destination& destination : room.destinations) {
    const layout::Range regions = sessions_.at(destination.session).pairing.regions_of(chunk.layers);
    const bool none = sent.empty() || regions.empty();
    if (none && !chunk.last) continue;
    ChunkOrder order = order_for(room, destination, chunk, none ? layout::Range{} : sent);
    if (chunk.last && destination.grant.verify) {
      SumOrder sum{destination.session, destination.grant.transfer, order.lists};
      if (!sessions_.at(destination.session).pairing.dummy()) sum.lists.front().items = room.units_to_sum;
      destination.summing = true;
      out.push_back(effect::Sum{std::move(sum)});
    }
    hand_over(destination, std::move(order), out);
  }
  note_progress(room, now);
  if (room.last_sent) room_timers_.set(room.handle, room.deadline);  // it may be the shorter limit
}

// Which state component is sent short or long, if one is.
std::optional<Error> SenderCore::state_fault(const Room& room, const event::SendChunk& chunk) const {
  if (!chunk.last) return std::nullopt;
  for (const Destination& destination : room.destinations) {
    const layout::Pairing& pairing = sessions_.at(destination.session).pairing;
    for (std::size_t i = 0; i < destination.grant.state_items.size(); ++i) {
      const std::uint32_t own = pairing.state.prefill[i];
      const std::size_t sent = own < chunk.state.size() ? chunk.state[own].size() : 0;
      if (sent == destination.grant.state_items[i]) continue;
      return Error{Code::mismatch,
                   "state component " + std::to_string(own) + ": prefill sends " + std::to_string(sent) +
                       " items, decode granted " + std::to_string(destination.grant.state_items[i]),
                   room.id.value, address_of(destination.session)};
    }
  }
  return std::nullopt;
}

// What moves of a chunk to one destination, whose `sent` positions it has; none of the cache where that is empty.
ChunkOrder SenderCore::order_for(const Room& room, Destination& destination, const event::SendChunk& chunk,
                                 const layout::Range& sent) const {
  const layout::Pairing& pairing = sessions_.at(destination.session).pairing;
  ChunkOrder order{destination.session, destination.grant.transfer, {}, {}};
  order.span.number = destination.chunks++;
  order.span.last = chunk.last;
  order.span.position_begin = order.span.position_end = room.positions.begin;
  ItemList& kv = order.lists.emplace_back(ItemList{layout::component_kv, {}});
  if (!sent.empty()) {
    const std::uint64_t first_unit = (room.positions.begin / room.units + chunk.first_page) * room.units;
    const layout::Range regions = pairing.regions_of(chunk.layers);
    order.span.position_begin = sent.begin;
    order.span.position_end = sent.end;
    order.span.region_begin = static_cast<std::uint32_t>(regions.begin);
    order.span.region_end = static_cast<std::uint32_t>(regions.end);
    layout::append_units(chunk.pages, room.units, {sent.begin - first_unit, sent.end - first_unit}, kv.items);
  }
  if (!chunk.last) return order;
  if (destination.grant.with_aux) order.lists.push_back(ItemList{layout::component_aux, {*room.aux_item}});
  for (std::uint32_t i = 0; i < destination.grant.state_items.size(); ++i) {
    if (destination.grant.state_items[i] == 0) continue;
    order.lists.push_back(ItemList{layout::component_state + i, chunk.state[pairing.state.prefill[i]]});
  }
  return order;
}

// Over the control link, by our mover, or as an offer to the peer's.
void SenderCore::hand_over(Destination& destination, ChunkOrder order, Effects& out) {
  const protocol::Grant& grant = destination.grant;
  if (grant.inlined) {
    out.push_back(effect::SendInline{std::move(order)});
    return;
  }
  if (sessions_.at(destination.session).path == DataPath::push) {
    ++destination.moves;
    out.push_back(effect::Move{std::move(order)});
    return;
  }
  destination.offered = true;
  protocol::Offer offer{grant.transfer, order.span, std::move(order.lists.front().items), -1, {}};
  offer.state_items.resize(grant.state_items.size());
  for (ItemList& list : order.lists) {
    if (list.component == layout::component_aux) offer.aux_item = list.items.front();
    if (list.component >= layout::component_state) {
      offer.state_items[list.component - layout::component_state] = std::move(list.items);
    }
  }
  out.push_back(effect::Send{destination.session, std::move(offer)});
}

// While bytes are under way the clock of progress runs, between chunks that of the engine.
void SenderCore::note_progress(Room& room, Instant now) {
  if (room.concluded()) return;
  room.deadline = now + (room.last_sent ? limits_.progress_timeout : limits_.send_timeout);
}

void SenderCore::on_landed(SessionId session, const protocol::Landed& m, Instant now, Effects& /*out*/) {
  if (Room* room = find_transfer(session, m.transfer)) {
    note_progress(*room, now);
  } else {
    ++counters_.late_messages;
  }
}

void SenderCore::on_confirm(SessionId session, const protocol::Confirm& m, Instant now, Effects& out) {
  Room* room = find_transfer(session, m.transfer);
  if (room == nullptr) {
    ++counters_.late_messages;
    return;
  }
  Destination* destination = find_destination(*room, session, m.transfer);
  KVF_ASSERT(destination != nullptr);
  if (!room->last_sent) {
    // It cannot have everything before everything was sent.
    return lose(session, Error{Code::protocol, "confirmed room " + std::to_string(room->id.value) + " before its end"},
                now, out);
  }
  destination->confirmed = true;
  destination->offered = false;
  const HandleId handle = room->handle;
  if (!room->concluded()) {
    note_progress(*room, now);
    bool all = true;
    for (const Destination& d : room->destinations) all = all && d.confirmed;
    if (all) {
      become(*room, Poll::success, out);
      ++counters_.rooms_succeeded;
      room_timers_.erase(handle);
    }
  }
  settle(handle, now, out);
}

void SenderCore::on_abort(SessionId session, const protocol::Abort& m, Instant now, Effects& out) {
  Room* room = find_transfer(session, m.transfer);
  if (room == nullptr) {
    // It may be a grant that waits for its room.
    const auto [begin, end] = early_by_room_.equal_range(m.room);
    for (auto it = begin; it != end; ++it) {
      const EarlyGrant& early = early_.at(it->second);
      if (early.session == session && early.grant.transfer == m.transfer) {
        take_early(it->second);
        return;
      }
    }
    ++counters_.late_messages;
    return;
  }
  Destination* destination = find_destination(*room, session, m.transfer);
  KVF_ASSERT(destination != nullptr);
  destination->told = true;
  if (room->concluded()) return;
  fail(*room,
       Error{Code::peer_aborted, "decode ended the room (" + std::string(code_name(m.code)) + "): " + m.text,
             room->id.value, address_of(session)},
       now, out);
}

void SenderCore::on_closed(SessionId session, const protocol::Closed& m, Instant now, Effects& out) {
  Room* room = find_transfer(session, m.transfer);
  if (room == nullptr) return;  // released by other means already
  Destination* destination = find_destination(*room, session, m.transfer);
  KVF_ASSERT(destination != nullptr);
  destination->offered = false;
  settle(room->handle, now, out);
}

void SenderCore::handle(MoverEvent& e, Instant now, Effects& out) {
  // Bytes count when their chunk has left: Progress says how far it is, Pushed says them all.
  const auto moved = [&](SessionId session, TransferId transfer, std::uint64_t bytes, std::uint32_t finished,
                         bool all) {
    Room* room = find_transfer(session, transfer);
    if (room == nullptr) return;
    Destination* destination = find_destination(*room, session, transfer);
    KVF_ASSERT(destination != nullptr);
    destination->moves = all ? 0 : destination->moves - std::min(destination->moves, finished);
    counters_.bytes += bytes;
    if (bytes > 0) {
      note_progress(*room, now);
      out.push_back(effect::BytesMoved{room->handle, bytes});
    }
    settle(room->handle, now, out);
  };
  std::visit(match{
                 [&](const Progress& p) {
                   if (Room* room = find_transfer(p.session, p.transfer)) note_progress(*room, now);
                 },
                 [&](const Pushed& p) { moved(p.session, p.transfer, p.bytes, 1, false); },
                 [&](const Stopped& s) { moved(s.session, s.transfer, 0, 0, true); },
                 [&](const SessionLost& s) {
                   if (sessions_.contains(s.session)) lose(s.session, s.error, now, out);
                 },
                 [&](const SessionClosed& s) {
                   std::vector<TransferKey> keys;
                   for (auto it = transfers_.lower_bound({s.session, TransferId{0}});
                        it != transfers_.end() && it->first.first == s.session; ++it) {
                     keys.push_back(it->first);
                   }
                   for (const TransferKey& key : keys) moved(key.first, key.second, 0, 0, true);
                 },
                 [&](const Summed& s) {
                   Room* room = find_transfer(s.session, s.transfer);
                   if (room == nullptr) return;
                   find_destination(*room, s.session, s.transfer)->summing = false;
                   if (room->state != Poll::failed && sessions_.contains(s.session)) {
                     out.push_back(effect::Send{s.session, protocol::Sum{s.transfer, s.crc32c}});
                   }
                   settle(room->handle, now, out);
                 },
                 [&](const Placed&) {},  // a sender places nothing
                 [&](const WindowClosed&) {},
                 [&](const Rejected& r) {
                   Room* room = find_transfer(r.session, r.transfer);
                   if (room != nullptr && !room->concluded()) fail(*room, r.error, now, out);
                 },
             },
             e);
}

}  // namespace kvferry::core
