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
  WaitingChunk chunk{std::move(e.pages), std::move(e.state)};
  if (room->state == Poll::bootstrapping || !room->init) {
    room->waiting.push_back(std::move(chunk));
    return;
  }
  out.push_back(effect::ChunksTaken{e.handle, 1});
  dispatch(*room, std::move(chunk), now, out);
}

// Gives one chunk to every destination. Positions count from the start of the request: the prefix, then what was sent.
void SenderCore::dispatch(Room& room, WaitingChunk chunk, Instant now, Effects& out) {
  KVF_ASSERT(room.granted() && room.init && !room.last_sent);
  const std::uint64_t count = chunk.pages.size();
  KVF_ASSERT(room.pages_sent + count <= room.num_pages);  // refused at the call
  const std::uint64_t begin = room.destinations.front().positions.begin + room.pages_sent;
  room.pages_sent += count;
  room.last_sent = room.pages_sent == room.num_pages;
  const std::uint32_t number = room.chunks_sent++;
  if (room.state == Poll::waiting_for_input) become(room, Poll::transferring, out);
  const bool verify = std::ranges::any_of(room.destinations, [](const Destination& d) { return d.grant.verify; });
  if (verify) room.pages_to_sum.insert(room.pages_to_sum.end(), chunk.pages.begin(), chunk.pages.end());
  for (Destination& destination : room.destinations) {
    const protocol::Grant& grant = destination.grant;
    const bool dummy = destination.regions == 0;
    if (dummy && !room.last_sent) continue;
    const protocol::ChunkSpan span =
        dummy ? protocol::ChunkSpan{0, grant.prefix_pages, grant.prefix_pages, 0, 0, true}
              : protocol::ChunkSpan{number, begin, begin + count, 0, destination.regions, room.last_sent};
    if (room.last_sent) {
      for (std::size_t i = 0; i < grant.state_items.size(); ++i) {
        const std::size_t sent = i < chunk.state.size() ? chunk.state[i].size() : 0;
        if (sent == grant.state_items[i]) continue;
        return fail(room,
                    Error{Code::mismatch,
                          "state component " + std::to_string(i) + ": prefill sends " + std::to_string(sent) +
                              " items, decode granted " + std::to_string(grant.state_items[i]),
                          room.id.value, address_of(destination.session)},
                    now, out);
      }
    }
    ChunkOrder order{destination.session, grant.transfer, span, {}};
    order.lists.push_back(ItemList{layout::component_kv, dummy ? std::vector<std::int32_t>{} : chunk.pages});
    if (room.last_sent && grant.with_aux) order.lists.push_back(ItemList{layout::component_aux, {*room.aux_item}});
    if (room.last_sent) {
      for (std::size_t i = 0; i < grant.state_items.size(); ++i) {
        if (grant.state_items[i] == 0) continue;
        order.lists.push_back(ItemList{layout::component_state + static_cast<std::uint32_t>(i), chunk.state[i]});
      }
    }
    if (room.last_sent && grant.verify) {
      SumOrder sum{destination.session, grant.transfer, order.lists};
      if (!dummy) sum.lists.front().items = room.pages_to_sum;
      destination.summing = true;
      out.push_back(effect::Sum{std::move(sum)});
    }
    const auto session = sessions_.find(destination.session);
    KVF_ASSERT(session != sessions_.end());  // a lost session has failed the room
    if (grant.inlined) {
      out.push_back(effect::SendInline{std::move(order)});
    } else if (session->second.path == DataPath::push) {
      ++destination.moves;
      out.push_back(effect::Move{std::move(order)});
    } else {
      destination.offered = true;
      protocol::Offer offer{grant.transfer, span, std::move(order.lists.front().items), -1, {}};
      offer.state_items.resize(grant.state_items.size());
      for (ItemList& list : order.lists) {
        if (list.component == layout::component_aux) offer.aux_item = list.items.front();
        if (list.component >= layout::component_state) {
          offer.state_items[list.component - layout::component_state] = std::move(list.items);
        }
      }
      out.push_back(effect::Send{destination.session, std::move(offer)});
    }
  }
  note_progress(room, now);
  if (room.last_sent) room_timers_.set(room.handle, room.deadline);  // it may be the shorter limit
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
