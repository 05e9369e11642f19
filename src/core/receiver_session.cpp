#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "core/receiver_core.h"
#include "core/words.h"

namespace kvferry::core {

void ReceiverCore::handle(event::SessionUp& e, Instant now, Effects& out) {
  KVF_ASSERT(e.key.has_value() && !sessions_.contains(e.session));
  const auto peer = peers_.find(*e.key);
  if (peer == peers_.end() || peer->second.link != Link::dialing) {
    // Not wanted any more.
    out.push_back(effect::CloseSession{e.session, Error{Code::peer_lost, "the link is not needed"}});
    out.push_back(effect::CloseMoverSession{e.session});
    closing_[e.session] = Closing{e.peer.incarnation, {*e.key}};
    return;
  }
  if (e.peer.place != e.key->place) {
    // The route was of a process that is gone, and another rank has taken its address.
    Error error{Code::unreachable,
                "another rank answers there: dp " + std::to_string(e.peer.place.dp) + " tp " +
                    std::to_string(e.peer.place.tp) + " pp " + std::to_string(e.peer.place.pp) + " cp " +
                    std::to_string(e.peer.place.cp),
                {},
                e.address};
    out.push_back(effect::CloseSession{e.session, error});
    out.push_back(effect::CloseMoverSession{e.session});
    closing_[e.session] = Closing{e.peer.incarnation, {*e.key}};
    return retry_later(*e.key, std::move(error), now, out);
  }
  Session& session = sessions_[e.session];
  session.peer = std::move(e.peer);
  session.address = std::move(e.address);
  session.path = e.path;
  session.pairing = std::move(e.pairing);
  session.health = PeerHealth(limits_, now);
  session_timers_.set(e.session, session.health.next());
  attach(*e.key, e.session, now, out);
}

void ReceiverCore::handle(event::SessionDown& e, Instant /*now*/, Effects& out) {
  if (sessions_.contains(e.session)) lose(e.session, std::move(e.error), out);
}

// Ends a session: exactly the rooms that were linked through it fail, unless all their bytes are there. Its ranks are
// looked up anew by the next room that wants them, or at once where rooms wait.
void ReceiverCore::lose(SessionId id, Error error, Effects& out) {
  const auto entry = sessions_.find(id);
  KVF_ASSERT(entry != sessions_.end());
  const Session session = std::move(entry->second);
  sessions_.erase(entry);
  session_timers_.erase(id);
  ++counters_.sessions_lost;
  error.peer = session.address;
  out.push_back(effect::Note{"prefill rank " + session.address + " is lost: " + error.text});
  out.push_back(effect::CloseSession{id, error});
  closing_[id] = Closing{session.peer.incarnation, session.keys};
  for (const PeerKey& key : session.keys) {
    Peer& peer = peers_.at(key);
    peer.link = Link::idle;
    peer.last_error = error.text;
    instances_[key.bootstrap].sizes.reset();  // the next instance behind the address may have other sizes
  }
  for (const HandleId handle : session.rooms) {
    Room* room = find(handle);
    if (room == nullptr) continue;
    if (room->concluded()) continue;
    const bool complete =
        std::ranges::all_of(room->sources, [&](const Source& s) { return s.session != id || whole(s); });
    if (complete) continue;  // nothing of this session is missing
    fail(*room, lost_session_error(error, room->id), out);
  }
  out.push_back(effect::CloseMoverSession{id});  // after the rooms: the mover still answers for their windows
}

// Nothing of the session is written any more: every window of it is closed.
void ReceiverCore::on_session_closed(SessionId id, Effects& out) {
  closing_.erase(id);
  std::vector<TransferId> transfers;
  for (const auto& [transfer, handle] : transfers_) {
    const Room& room = rooms_.at(handle);
    for (const Source& source : room.sources) {
      if (source.session == id && (source.window == Window::open || source.window == Window::closing)) {
        transfers.push_back(transfer);
      }
    }
  }
  for (const TransferId transfer : transfers) on_window_closed(id, transfer, out);
  // Rooms that came meanwhile wait for these ranks.
  for (auto& [key, peer] : peers_) {
    if (peer.link == Link::idle && !peer.rooms.empty()) {
      peer.link = Link::resolving;
      out.push_back(effect::FetchRoute{key});
    }
  }
}

void ReceiverCore::handle(event::Received& e, Instant now, Effects& out) {
  const auto entry = sessions_.find(e.session);
  if (entry == sessions_.end()) {
    ++counters_.late_messages;  // said over a link that has been given up
    return;
  }
  entry->second.health.heard();
  const SessionId id = e.session;
  if (auto* offer = std::get_if<protocol::Offer>(&e.message)) return on_offer(id, *offer, now, out);
  if (const auto* m = std::get_if<protocol::Abort>(&e.message)) return on_abort(id, *m, out);
  if (const auto* m = std::get_if<protocol::Sum>(&e.message)) return on_sum(id, *m, out);
  if (const auto* m = std::get_if<protocol::Queued>(&e.message)) return on_queued(id, *m, now);
  if (const auto* m = std::get_if<protocol::Ping>(&e.message)) {
    out.push_back(effect::Send{id, protocol::Pong{m->number}});
    return;
  }
  if (std::holds_alternative<protocol::Pong>(e.message)) return;
  lose(id,
       Error{Code::protocol, std::string("sent ") + protocol::message_name(e.message) + ", which no prefill rank says"},
       out);
}

Instant ReceiverCore::next_deadline() const {
  return std::min({room_timers_.next(), session_timers_.next(), peer_timers_.next(), instance_timers_.next()});
}

void ReceiverCore::on_time(Instant now, Effects& out) {
  while (const auto session = session_timers_.pop_due(now)) on_session_time(*session, now, out);
  while (const auto handle = room_timers_.pop_due(now)) on_room_time(*handle, now, out);
  while (const auto key = peer_timers_.pop_due(now)) {
    Peer& peer = peers_.at(*key);
    if (peer.link != Link::waiting) continue;
    peer.link = peer.rooms.empty() ? Link::idle : Link::resolving;
    if (peer.link == Link::resolving) out.push_back(effect::FetchRoute{*key});
  }
  while (const auto bootstrap = instance_timers_.pop_due(now)) {
    Instance& instance = instances_.at(*bootstrap);
    const bool wanted = std::ranges::any_of(rooms_, [&](const auto& entry) {
      return entry.second.state == Poll::bootstrapping && !entry.second.mapped && entry.second.bootstrap == *bootstrap;
    });
    if (!wanted || instance.fetching || instance.sizes) continue;
    instance.fetching = true;
    out.push_back(effect::FetchSizes{*bootstrap});
  }
}

void ReceiverCore::on_session_time(SessionId id, Instant now, Effects& out) {
  Session& session = sessions_.at(id);
  switch (session.health.on_time(now)) {
    case PeerHealth::Verdict::dead:
      return lose(id, silent_peer(limits_), out);
    case PeerHealth::Verdict::ask:
      out.push_back(effect::Send{id, protocol::Ping{session.health.number()}});
      break;
    case PeerHealth::Verdict::alive:
      break;
  }
  session_timers_.set(id, session.health.next());
}

void ReceiverCore::on_room_time(HandleId handle, Instant now, Effects& out) {
  Room* room = find(handle);
  if (room == nullptr || room->concluded()) return;
  if (room->deadline > now) {  // something moved since the timer was set
    room_timers_.set(handle, room->deadline);
    return;
  }
  std::string text;
  std::string peer = room->bootstrap.text();
  if (room->state == Poll::transferring) {
    text = "no progress within the progress timeout of " + seconds_text(limits_.progress_timeout);
  } else {
    text = std::string(room->state == Poll::bootstrapping ? "the prefill ranks were not linked"
                       : room->granted                    ? "prefill sent nothing"
                                                          : "the engine called no init") +
           " within the waiting timeout of " + seconds_text(limits_.waiting_timeout);
    if (const auto instance = instances_.find(room->bootstrap);
        !room->mapped && instance != instances_.end() && !instance->second.last_error.empty()) {
      text += "; last answer of the bootstrap server: " + instance->second.last_error;
    }
    for (const Source& source : room->sources) {
      if (const auto entry = peers_.find(source.key);
          room->state == Poll::bootstrapping && entry != peers_.end() && !entry->second.last_error.empty()) {
        text += "; last try: " + entry->second.last_error;
      }
    }
  }
  if (!room->sources.empty() && room->sources.front().session) peer = address_of(room->sources.front().session);
  fail(*room, Error{Code::timeout, std::move(text), room->id.value, std::move(peer)}, out);
}

}  // namespace kvferry::core
