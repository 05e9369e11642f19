#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "core/receiver_core.h"
#include "core/words.h"

namespace kvferry::core {

void ReceiverCore::on(ReceiverEvent&& event, Instant now, Effects& effects) {
  std::visit([&](auto& e) { handle(e, now, effects); }, event);
}

void ReceiverCore::handle(event::OpenReceiver& e, Instant now, Effects& out) {
  KVF_ASSERT(!rooms_.contains(e.handle));
  KVF_ASSERT(!live_.contains(e.room));  // the runtime refuses a live number before it comes here
  Room& room = rooms_[e.handle];
  room.handle = e.handle;
  room.id = e.room;
  room.transfer = e.transfer;
  room.bootstrap = std::move(e.bootstrap);
  room.dp_rank = e.dp_rank;
  room.deadline = now + limits_.waiting_timeout;
  live_[e.room] = e.handle;
  room_timers_.set(e.handle, room.deadline);
  locate(room, now, out);
}

void ReceiverCore::handle(event::InitReceiver& e, Instant now, Effects& out) {
  Room* room = find(e.handle);
  if (room == nullptr || room->concluded() || room->init) return;  // ended meanwhile: the engine sees it by poll
  room->granted_pages = e.pages.size();
  room->prefix_pages = e.prefix_pages;
  room->with_aux = e.aux_item.has_value();
  room->init = std::move(e);
  if (room->state == Poll::waiting_for_input) grant(*room, now, out);
}

void ReceiverCore::handle(event::AbortRoom& e, Instant /*now*/, Effects& out) {
  Room* room = find(e.handle);
  if (room == nullptr || room->concluded()) return;  // each side keeps what it concluded first
  fail(*room, Error{Code::aborted, std::move(e.reason), room->id.value}, out);
}

void ReceiverCore::handle(event::ClearRoom& e, Instant /*now*/, Effects& out) {
  Room* room = find(e.handle);
  if (room == nullptr || room->cleared) return;
  if (!room->concluded()) fail(*room, Error{Code::aborted, "cleared by the engine", room->id.value}, out);
  room = find(e.handle);
  KVF_ASSERT(room != nullptr);
  room->cleared = true;
  live_.erase(room->id);
  settle(e.handle, out);
}

void ReceiverCore::become(Room& room, Poll state, Effects& out) {
  KVF_ASSERT(!room.concluded());
  KVF_ASSERT(state == Poll::failed || state > room.state);
  room.state = state;
  out.push_back(effect::RoomChanged{room.handle, state, state == Poll::failed ? room.error : std::nullopt});
}

// Ends a room as failed, tells every source that does not know it yet, and closes its windows. The pages are given back
// only when the movers have said that nothing can be written any more.
void ReceiverCore::fail(Room& room, Error error, Effects& out) {
  KVF_ASSERT(!room.concluded());
  room.error = std::move(error);
  become(room, Poll::failed, out);
  ++counters_.rooms_failed;
  room_timers_.erase(room.handle);
  forget_waiting(room);
  for (Source& source : room.sources) {
    if (room.granted && !source.told && source.session && sessions_.contains(*source.session)) {
      source.told = true;
      out.push_back(
          effect::Send{*source.session, protocol::Abort{room.id, room.transfer, room.error->code,
                                                        reason_for(*room.error, address_of(source.session))}});
    }
    if (source.window == Window::open) close_window(room, source, out);
    // Closed for the check, and not confirmed: the sender still waits for a word about its pages.
    if (source.window == Window::closed && source.complete && !whole(source) && sessions_.contains(*source.session)) {
      out.push_back(effect::Send{*source.session, protocol::Closed{room.transfer}});
    }
  }
  room.init.reset();
  settle(room.handle, out);
}

void ReceiverCore::close_window(Room& room, Source& source, Effects& out) {
  KVF_ASSERT(source.window == Window::open && source.session.has_value());
  source.window = Window::closing;
  out.push_back(effect::CloseWindow{*source.session, room.transfer, source.inlined});
}

// Releases what is written no more and forgets what is over. The room may be gone afterwards.
void ReceiverCore::settle(HandleId handle, Effects& out) {
  Room* room = find(handle);
  if (room == nullptr || !room->concluded()) return;
  if (!room->released) {
    const bool open = std::ranges::any_of(room->sources, [](const Source& s) {
      return s.window == Window::open || s.window == Window::closing || s.summing;
    });
    if (open) {
      if (!std::exchange(room->quarantined, true)) counters_.quarantined_pages += room->granted_pages;
      return;
    }
    if (room->quarantined) counters_.quarantined_pages -= room->granted_pages;
    room->released = true;
    transfers_.erase(room->transfer);
    for (Source& source : room->sources) {
      if (!source.session) continue;
      if (const auto session = sessions_.find(*source.session); session != sessions_.end()) {
        session->second.rooms.erase(handle);
      }
    }
    out.push_back(effect::PagesReleased{handle});
  }
  if (!room->cleared) return;
  out.push_back(effect::HandleDone{handle});
  rooms_.erase(handle);
}

void ReceiverCore::forget_waiting(Room& room) {
  for (const Source& source : room.sources) {
    if (const auto peer = peers_.find(source.key); peer != peers_.end()) peer->second.rooms.erase(room.handle);
  }
}

ReceiverCore::Room* ReceiverCore::find(HandleId handle) {
  const auto room = rooms_.find(handle);
  return room == rooms_.end() ? nullptr : &room->second;
}

std::pair<ReceiverCore::Room*, ReceiverCore::Source*> ReceiverCore::find_transfer(SessionId session,
                                                                                  TransferId transfer) {
  const auto entry = transfers_.find(transfer);
  if (entry == transfers_.end()) return {nullptr, nullptr};
  Room* room = find(entry->second);
  KVF_ASSERT(room != nullptr);
  for (Source& source : room->sources) {
    if (source.session == session) return {room, &source};
  }
  return {nullptr, nullptr};  // a session that has no part in this room
}

std::string ReceiverCore::address_of(const std::optional<SessionId>& session) const {
  if (!session) return {};
  const auto entry = sessions_.find(*session);
  return entry == sessions_.end() ? std::string() : entry->second.address;
}

Counters ReceiverCore::counters() const {
  Counters counters = counters_;
  counters.sessions_live = sessions_.size();
  counters.rooms_live = live_.size();
  return counters;
}

std::optional<std::string> ReceiverCore::pending() const {
  for (const auto& [handle, room] : rooms_) {
    if (!room.concluded()) {
      std::string text = "room " + std::to_string(room.id.value) + " is " + poll_name(room.state);
      for (const Source& source : room.sources) {
        if (const auto peer = peers_.find(source.key); peer != peers_.end() && !peer->second.last_error.empty()) {
          text += "; " + source.key.bootstrap.text() + ": " + peer->second.last_error;
        }
      }
      return text;
    }
    if (!room.released) return "room " + std::to_string(room.id.value) + " waits for a window that nobody closes";
  }
  return std::nullopt;
}

std::optional<std::string> ReceiverCore::held() const {
  const auto count = [](std::size_t number, const char* what) { return std::to_string(number) + " " + what; };
  if (!rooms_.empty()) return count(rooms_.size(), "rooms");
  if (!live_.empty()) return count(live_.size(), "live room numbers");
  if (!transfers_.empty()) return count(transfers_.size(), "transfers");
  if (!closing_.empty()) return count(closing_.size(), "sessions whose movers have not closed");
  for (const auto& [id, session] : sessions_) {
    if (!session.rooms.empty()) return count(session.rooms.size(), "rooms of a session");
  }
  for (const auto& [key, peer] : peers_) {
    if (!peer.rooms.empty()) return count(peer.rooms.size(), "rooms that wait for a peer");
  }
  if (!room_timers_.empty()) return std::string("timers of rooms");
  return std::nullopt;
}

void ReceiverCore::check() const {
  for (const auto& [id, handle] : live_) {
    const auto room = rooms_.find(handle);
    KVF_ASSERT(room != rooms_.end() && room->second.id == id && !room->second.cleared);
  }
  for (const auto& [transfer, handle] : transfers_) {
    const auto room = rooms_.find(handle);
    KVF_ASSERT(room != rooms_.end() && room->second.transfer == transfer && !room->second.released);
  }
  for (const auto& [handle, room] : rooms_) {
    KVF_ASSERT(!(room.cleared && room.released));
    KVF_ASSERT(room.state != Poll::failed || room.error.has_value());
    for (const Source& source : room.sources) {
      if (room.state == Poll::success) KVF_ASSERT(source.complete && source.window == Window::closed);
      if (room.released) KVF_ASSERT(source.window == Window::none || source.window == Window::closed);
    }
  }
  for (const auto& [id, session] : sessions_) {
    for (const HandleId handle : session.rooms) KVF_ASSERT(rooms_.contains(handle));
    for (const PeerKey& key : session.keys) KVF_ASSERT(peers_.contains(key) && peers_.at(key).session == id);
  }
}

}  // namespace kvferry::core
