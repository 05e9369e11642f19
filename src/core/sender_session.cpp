#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/match.h"
#include "core/sender_core.h"
#include "core/words.h"

namespace kvferry::core {

void SenderCore::handle(event::SessionUp& e, Instant now, Effects& out) {
  KVF_ASSERT(!sessions_.contains(e.session));
  if (replaced_) {
    out.push_back(effect::CloseSession{e.session, *replaced_});
    out.push_back(effect::CloseMoverSession{e.session});
    return;
  }
  // One link a pair of ranks. The process that started later is the rank; a second link of one process replaces the
  // first.
  std::vector<SessionId> replaced;
  for (const auto& [id, session] : sessions_) {
    if (session.peer.instance != e.peer.instance || session.peer.place != e.peer.place) continue;
    if (session.peer.start_number > e.peer.start_number) {
      out.push_back(effect::CloseSession{
          e.session, Error{Code::peer_lost, "a process of this rank that started later is linked", {}, e.address}});
      out.push_back(effect::CloseMoverSession{e.session});
      return;
    }
    replaced.push_back(id);
  }
  for (const SessionId id : replaced) {
    const bool same = sessions_.at(id).peer.incarnation == e.peer.incarnation;
    lose(id, Error{Code::peer_lost, same ? "the peer linked anew" : "the peer's process was restarted"}, now, out);
  }
  Session& session = sessions_[e.session];
  session.peer = std::move(e.peer);
  session.address = std::move(e.address);
  session.path = e.path;
  session.pairing = std::move(e.pairing);
  session.health = PeerHealth(limits_, now);
  session.queued_at = now + limits_.queued_interval;
  session_timers_.set(e.session, std::min(session.health.next(), session.queued_at));
  // A reader dials again only after it has closed its windows, so it reads nothing of earlier transfers any more.
  release_readers(session.peer.incarnation, now, out);
}

void SenderCore::handle(event::SessionDown& e, Instant now, Effects& out) {
  if (sessions_.contains(e.session)) lose(e.session, std::move(e.error), now, out);
}

// The kernel may say so before the link has ended: then this is how its sessions are lost.
void SenderCore::handle(event::PeerExited& e, Instant now, Effects& out) {
  std::vector<SessionId> sessions;
  for (const auto& [id, session] : sessions_) {
    if (session.peer.incarnation == e.incarnation) sessions.push_back(id);
  }
  for (const SessionId id : sessions) lose(id, Error{Code::peer_lost, "the process has exited"}, now, out);
  release_readers(e.incarnation, now, out);
}

void SenderCore::handle(event::Replaced& e, Instant now, Effects& out) {
  if (replaced_) return;
  replaced_ = std::move(e.reason);
  std::vector<HandleId> rooms;
  for (const auto& [id, handle] : live_) rooms.push_back(handle);
  for (const HandleId handle : rooms) fail_replaced(handle, now, out);
  while (!sessions_.empty()) lose(sessions_.begin()->first, *replaced_, now, out);
}

void SenderCore::fail_replaced(HandleId handle, Instant now, Effects& out) {
  Room* room = find(handle);
  if (room == nullptr || room->concluded()) return;
  Error error = *replaced_;
  error.room = room->id.value;
  fail(*room, std::move(error), now, out);
}

// Ends a session: exactly the rooms that need it fail, its early grants go, its channels close.
void SenderCore::lose(SessionId id, Error error, Instant now, Effects& out) {
  const auto entry = sessions_.find(id);
  KVF_ASSERT(entry != sessions_.end());
  const Session session = std::move(entry->second);
  sessions_.erase(entry);
  session_timers_.erase(id);
  ++counters_.sessions_lost;
  error.peer = session.address;
  out.push_back(effect::Note{"decode rank " + session.address + " is lost: " + error.text});
  out.push_back(effect::CloseSession{id, error});
  for (const std::uint64_t serial : session.early) take_early(serial);
  std::vector<TransferKey> keys;
  for (auto it = transfers_.lower_bound({id, TransferId{0}}); it != transfers_.end() && it->first.first == id; ++it) {
    keys.push_back(it->first);
  }
  for (const TransferKey& key : keys) {
    Room* room = find_transfer(key.first, key.second);
    if (room == nullptr) continue;
    const Destination* destination = find_destination(*room, key.first, key.second);
    KVF_ASSERT(destination != nullptr);
    if (destination->offered) readers_[session.peer.incarnation].push_back(key);
    if (room->concluded()) continue;
    fail(*room, lost_session_error(error, room->id), now, out);
  }
  out.push_back(effect::CloseMoverSession{id});  // after the rooms: the mover still answers for their windows
}

void SenderCore::release_readers(const Incarnation& incarnation, Instant now, Effects& out) {
  const auto entry = readers_.find(incarnation);
  if (entry == readers_.end()) return;
  const std::vector<TransferKey> keys = std::move(entry->second);
  readers_.erase(entry);
  for (const TransferKey& key : keys) {
    Room* room = find_transfer(key.first, key.second);
    if (room == nullptr) continue;
    Destination* destination = find_destination(*room, key.first, key.second);
    KVF_ASSERT(destination != nullptr);
    destination->offered = false;
    settle(room->handle, now, out);
  }
}

void SenderCore::handle(event::Received& e, Instant now, Effects& out) {
  const auto entry = sessions_.find(e.session);
  if (entry == sessions_.end()) {
    ++counters_.late_messages;  // said over a link that has been given up
    return;
  }
  entry->second.health.heard();
  const SessionId id = e.session;
  if (auto* grant = std::get_if<protocol::Grant>(&e.message)) return on_grant(id, *grant, now, out);
  if (const auto* m = std::get_if<protocol::Confirm>(&e.message)) return on_confirm(id, *m, now, out);
  if (const auto* m = std::get_if<protocol::Landed>(&e.message)) return on_landed(id, *m, now, out);
  if (const auto* m = std::get_if<protocol::Abort>(&e.message)) return on_abort(id, *m, now, out);
  if (const auto* m = std::get_if<protocol::Closed>(&e.message)) return on_closed(id, *m, now, out);
  if (const auto* m = std::get_if<protocol::Ping>(&e.message)) {
    out.push_back(effect::Send{id, protocol::Pong{m->number}});
    return;
  }
  if (std::holds_alternative<protocol::Pong>(e.message)) return;
  lose(id,
       Error{Code::protocol, std::string("sent ") + protocol::message_name(e.message) + ", which no decode rank says"},
       now, out);
}

Instant SenderCore::next_deadline() const {
  return std::min({room_timers_.next(), session_timers_.next(), early_timers_.next(), outcome_timers_.next()});
}

void SenderCore::on_time(Instant now, Effects& out) {
  while (const auto session = session_timers_.pop_due(now)) on_session_time(*session, now, out);
  while (const auto handle = room_timers_.pop_due(now)) on_room_time(*handle, now, out);
  while (const auto serial = early_timers_.pop_due(now)) {
    if (const auto early = take_early(*serial)) {
      refuse(early->session, early->grant,
             Error{Code::timeout, "no prefill engine opened the room within the early grant limit of " +
                                      seconds_text(limits_.early_grant_ttl)},
             out);
    }
  }
  while (const auto serial = outcome_timers_.pop_due(now)) {
    const auto entry = outcome_order_.find(*serial);
    KVF_ASSERT(entry != outcome_order_.end());
    outcomes_.erase(entry->second);
    outcome_order_.erase(entry);
  }
}

void SenderCore::on_session_time(SessionId id, Instant now, Effects& out) {
  const auto entry = sessions_.find(id);
  KVF_ASSERT(entry != sessions_.end());
  Session& session = entry->second;
  switch (session.health.on_time(now)) {
    case PeerHealth::Verdict::dead:
      return lose(id, silent_peer(limits_), now, out);
    case PeerHealth::Verdict::ask:
      out.push_back(effect::Send{id, protocol::Ping{session.health.number()}});
      break;
    case PeerHealth::Verdict::alive:
      break;
  }
  if (session.queued_at <= now) {
    session.queued_at = now + limits_.queued_interval;
    protocol::Queued queued;
    for (auto it = transfers_.lower_bound({id, TransferId{0}}); it != transfers_.end() && it->first.first == id; ++it) {
      const Room* room = find(it->second);
      if (room != nullptr && !room->concluded()) queued.transfers.push_back(it->first.second);
    }
    if (!queued.transfers.empty()) out.push_back(effect::Send{id, std::move(queued)});
  }
  session_timers_.set(id, std::min(session.health.next(), session.queued_at));
}

void SenderCore::on_room_time(HandleId handle, Instant now, Effects& out) {
  Room* room = find(handle);
  if (room == nullptr || room->concluded()) return;
  if (room->deadline > now) {  // something moved since the timer was set
    room_timers_.set(handle, room->deadline);
    return;
  }
  std::string text;
  if (room->state == Poll::bootstrapping) {
    text = "no decode rank granted the room within the bootstrap timeout of " + seconds_text(limits_.bootstrap_timeout);
  } else if (!room->last_sent) {
    text = "the engine sent nothing within the send timeout of " + seconds_text(limits_.send_timeout);
  } else {
    text = "no progress within the progress timeout of " + seconds_text(limits_.progress_timeout);
  }
  std::string peer = room->destinations.empty() ? std::string() : address_of(room->destinations.front().session);
  fail(*room, Error{Code::timeout, std::move(text), room->id.value, std::move(peer)}, now, out);
}

}  // namespace kvferry::core
