#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/match.h"
#include "core/sender_core.h"
#include "core/words.h"

namespace kvferry::core {

void SenderCore::on(SenderEvent&& event, Instant now, Effects& effects) {
  std::visit([&](auto& e) { handle(e, now, effects); }, event);
}

void SenderCore::handle(event::OpenSender& e, Instant now, Effects& out) {
  KVF_ASSERT(!rooms_.contains(e.handle));
  KVF_ASSERT(!live_.contains(e.room));  // the runtime refuses a live number before it comes here
  Room& room = rooms_[e.handle];
  room.handle = e.handle;
  room.id = e.room;
  room.deadline = now + limits_.bootstrap_timeout;
  live_[e.room] = e.handle;
  if (replaced_) return fail_replaced(e.handle, now, out);
  room_timers_.set(e.handle, room.deadline);
  // A new use of the number: what was remembered of an earlier one does not answer its grants.
  if (const auto old = outcomes_.find(e.room); old != outcomes_.end()) {
    outcome_timers_.erase(old->second.serial);
    outcome_order_.erase(old->second.serial);
    outcomes_.erase(old);
  }
  // Listed first: a grant that does not fit ends the room, and those behind it wait again, for the next use.
  std::vector<std::uint64_t> serials;
  const auto [begin, end] = early_by_room_.equal_range(e.room);
  for (auto early = begin; early != end; ++early) serials.push_back(early->second);
  for (const std::uint64_t serial : serials) {
    auto taken = take_early(serial);
    KVF_ASSERT(taken.has_value());
    on_grant(taken->session, taken->grant, now, out);
  }
}

void SenderCore::handle(event::InitSender& e, Instant now, Effects& out) {
  Room* room = find(e.handle);
  if (room == nullptr || room->concluded() || room->init) return;  // ended meanwhile: the engine sees it by poll
  room->init = true;
  room->num_pages = e.num_pages;
  room->aux_item = e.aux_item;
  if (room->granted()) when_ready(*room, now, out);
}

void SenderCore::handle(event::AbortRoom& e, Instant now, Effects& out) {
  Room* room = find(e.handle);
  if (room == nullptr || room->concluded()) return;  // each side keeps what it concluded first
  fail(*room, Error{Code::aborted, std::move(e.reason), room->id.value}, now, out);
}

void SenderCore::handle(event::ClearRoom& e, Instant now, Effects& out) {
  Room* room = find(e.handle);
  if (room == nullptr || room->cleared) return;
  if (!room->concluded()) fail(*room, Error{Code::aborted, "cleared by the engine", room->id.value}, now, out);
  room = find(e.handle);
  KVF_ASSERT(room != nullptr);
  room->cleared = true;
  live_.erase(room->id);
  if (room->state == Poll::failed && !room->granted()) remember_outcome(*room, now);
  settle(e.handle, now, out);
}

void SenderCore::become(Room& room, Poll state, Effects& out) {
  KVF_ASSERT(!room.concluded());
  KVF_ASSERT(state == Poll::failed || state > room.state);
  room.state = state;
  out.push_back(effect::RoomChanged{room.handle, state, state == Poll::failed ? room.error : std::nullopt});
}

// Ends a room as failed, tells every destination that does not know it yet, and stops what is under way. The room stays
// until its pages are released and the engine has cleared it.
void SenderCore::fail(Room& room, Error error, Instant now, Effects& out) {
  KVF_ASSERT(!room.concluded());
  room.error = std::move(error);
  become(room, Poll::failed, out);
  ++counters_.rooms_failed;
  room_timers_.erase(room.handle);
  if (!room.waiting.empty()) {
    out.push_back(effect::ChunksTaken{room.handle, static_cast<std::uint32_t>(room.waiting.size())});
    room.waiting.clear();
  }
  const HandleId handle = room.handle;
  for (Destination& destination : room.destinations) {
    if (!destination.told && sessions_.contains(destination.session)) {
      destination.told = true;
      out.push_back(
          effect::Send{destination.session, protocol::Abort{room.id, destination.grant.transfer, room.error->code,
                                                            reason_for(*room.error, address_of(destination.session))}});
    }
    if (destination.moves > 0) out.push_back(effect::StopMoves{destination.session, destination.grant.transfer});
  }
  settle(handle, now, out);
}

// Releases what is read no more and forgets what is over. The room may be gone afterwards.
void SenderCore::settle(HandleId handle, Instant /*now*/, Effects& out) {
  Room* room = find(handle);
  if (room == nullptr || !room->concluded()) return;
  if (!room->released) {
    bool all = true;
    for (const Destination& destination : room->destinations) {
      if (destination.released()) {
        transfers_.erase({destination.session, destination.grant.transfer});
      } else {
        all = false;
      }
    }
    if (!all) {
      if (!std::exchange(room->quarantined, true)) counters_.quarantined_pages += room->pages_sent;
      return;
    }
    if (room->quarantined) counters_.quarantined_pages -= room->pages_sent;
    room->released = true;
    out.push_back(effect::PagesReleased{handle});
  }
  if (!room->cleared) return;
  out.push_back(effect::HandleDone{handle});
  rooms_.erase(handle);
}

// The end of a room that not every decode rank had granted yet answers the grants that are still to come.
void SenderCore::remember_outcome(const Room& room, Instant now) {
  if (limits_.outcomes_max == 0) return;
  while (outcomes_.size() >= limits_.outcomes_max && !outcome_order_.empty()) {
    outcome_timers_.erase(outcome_order_.begin()->first);
    outcomes_.erase(outcome_order_.begin()->second);
    outcome_order_.erase(outcome_order_.begin());
  }
  const std::uint64_t serial = ++serial_;
  if (const auto old = outcomes_.find(room.id); old != outcomes_.end()) {
    outcome_timers_.erase(old->second.serial);
    outcome_order_.erase(old->second.serial);
  }
  outcomes_[room.id] = Outcome{*room.error, room.ranks_told, serial};
  outcome_order_[serial] = room.id;
  outcome_timers_.set(serial, now + limits_.outcome_ttl);
}

SenderCore::Room* SenderCore::find(HandleId handle) {
  const auto room = rooms_.find(handle);
  return room == rooms_.end() ? nullptr : &room->second;
}

SenderCore::Room* SenderCore::find_transfer(SessionId session, TransferId transfer) {
  const auto entry = transfers_.find({session, transfer});
  return entry == transfers_.end() ? nullptr : find(entry->second);
}

SenderCore::Destination* SenderCore::find_destination(Room& room, SessionId session, TransferId transfer) {
  for (Destination& destination : room.destinations) {
    if (destination.session == session && destination.grant.transfer == transfer) return &destination;
  }
  return nullptr;
}

std::string SenderCore::address_of(SessionId session) const {
  const auto entry = sessions_.find(session);
  return entry == sessions_.end() ? std::string() : entry->second.address;
}

Counters SenderCore::counters() const {
  Counters counters = counters_;
  counters.sessions_live = sessions_.size();
  counters.orphan_grants = early_.size();
  counters.rooms_live = live_.size();
  return counters;
}

std::optional<std::string> SenderCore::pending() const {
  for (const auto& [handle, room] : rooms_) {
    if (!room.concluded()) {
      return "room " + std::to_string(room.id.value) + " is " + poll_name(room.state) + " with " +
             std::to_string(room.destinations.size()) + " grants";
    }
    if (!room.released) return "room " + std::to_string(room.id.value) + " has ended, its pages are not released";
  }
  return std::nullopt;
}

std::optional<std::string> SenderCore::held() const {
  const auto count = [](std::size_t number, const char* what) { return std::to_string(number) + " " + what; };
  if (!rooms_.empty()) return count(rooms_.size(), "rooms");
  if (!live_.empty()) return count(live_.size(), "live room numbers");
  if (!transfers_.empty()) return count(transfers_.size(), "transfers");
  if (!readers_.empty()) return count(readers_.size(), "lost readers");
  if (!early_.empty()) return count(early_.size(), "early grants");
  if (!outcomes_.empty()) return count(outcomes_.size(), "outcomes");
  if (!room_timers_.empty()) return std::string("timers of rooms");
  return std::nullopt;
}

void SenderCore::check() const {
  for (const auto& [id, handle] : live_) {
    const auto room = rooms_.find(handle);
    KVF_ASSERT(room != rooms_.end() && room->second.id == id && !room->second.cleared);
  }
  for (const auto& [key, handle] : transfers_) KVF_ASSERT(rooms_.contains(handle));
  for (const auto& [handle, room] : rooms_) {
    KVF_ASSERT(!(room.cleared && room.released));
    KVF_ASSERT(room.state != Poll::failed || room.error.has_value());
    KVF_ASSERT(!room.released || room.concluded());
    if (room.state == Poll::success) {
      for (const Destination& destination : room.destinations) KVF_ASSERT(destination.confirmed);
    }
  }
  KVF_ASSERT(outcomes_.size() <= limits_.outcomes_max && outcomes_.size() == outcome_order_.size());
  KVF_ASSERT(early_.size() == early_by_room_.size());
}

}  // namespace kvferry::core
