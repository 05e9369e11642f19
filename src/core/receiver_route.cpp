#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "core/receiver_core.h"
#include "layout/ranks.h"

namespace kvferry::core {
namespace {

// Trying again cannot help: the rooms that wait are told at once.
bool is_final(Code code) {
  return code == Code::mismatch || code == Code::unauthorized || code == Code::unsupported ||
         code == Code::invalid_argument;
}

}  // namespace

// First step of a room: which ranks feed it? Known from an earlier room, or asked of the bootstrap server.
void ReceiverCore::locate(Room& room, Instant now, Effects& out) {
  Instance& instance = instances_[room.bootstrap];
  if (instance.sizes) return map_sources(room, *instance.sizes, now, out);
  if (instance.fetching) return;
  instance.fetching = true;
  instance_timers_.erase(room.bootstrap);
  out.push_back(effect::FetchSizes{room.bootstrap});
}

void ReceiverCore::map_sources(Room& room, const InstanceSizes& sizes, Instant now, Effects& out) {
  KVF_ASSERT(room.state == Poll::bootstrapping);
  forget_waiting(room);
  room.sources.clear();
  const std::uint32_t* chosen = room.dp_rank ? &*room.dp_rank : nullptr;
  auto group = layout::dp_group(room.id.value, sizes.parallel.dp, chosen);
  auto feeding = group ? layout::feeding_ranks(sizes.parallel, shape_.parallel, place_, *group)
                       : Result<layout::Feeding>(group.error());
  if (!feeding) {
    Error error = feeding.error();
    error.room = room.id.value;
    error.peer = room.bootstrap.text();
    return fail(room, std::move(error), out);
  }
  room.mapped = true;
  room.grants_awaited = feeding->grants_awaited;
  for (const Place& place : feeding->sources) {
    Source source;
    source.key = PeerKey{room.bootstrap, place};
    room.sources.push_back(std::move(source));
  }
  const HandleId handle = room.handle;
  std::vector<PeerKey> keys;
  for (const Source& source : room.sources) keys.push_back(source.key);
  for (const PeerKey& key : keys) want(key, handle, now, out);
  if (Room* still = find(handle); still != nullptr && !still->concluded()) when_linked(*still, now, out);
}

// The room waits for this peer, unless it is linked; whoever is first starts the linking.
void ReceiverCore::want(const PeerKey& key, HandleId handle, Instant /*now*/, Effects& out) {
  Peer& peer = peers_[key];
  if (peer.link == Link::up) return;
  peer.rooms.insert(handle);
  if (peer.link != Link::idle) return;
  peer.link = Link::resolving;
  out.push_back(effect::FetchRoute{key});
}

void ReceiverCore::handle(event::SizesFetched& e, Instant now, Effects& out) {
  Instance& instance = instances_[e.bootstrap];
  instance.fetching = false;
  std::vector<HandleId> rooms;
  for (const auto& [handle, room] : rooms_) {
    if (room.state == Poll::bootstrapping && !room.mapped && room.bootstrap == e.bootstrap) rooms.push_back(handle);
  }
  if (!e.sizes) {
    instance.last_error = e.sizes.error().text;
    if (is_final(e.sizes.error().code)) {
      for (const HandleId handle : rooms) {
        Error error = e.sizes.error();
        Room* room = find(handle);
        error.room = room->id.value;
        error.peer = e.bootstrap.text();
        fail(*room, std::move(error), out);
      }
    } else if (!rooms.empty()) {
      instance_timers_.set(e.bootstrap, now + back_off(instance.tries++));
    }
    return;
  }
  instance.tries = 0;
  instance.last_error.clear();
  instance.sizes = std::move(*e.sizes);
  const InstanceSizes sizes = *instance.sizes;
  for (const HandleId handle : rooms) {
    Room* room = find(handle);
    if (room != nullptr && !room->concluded() && !room->mapped) map_sources(*room, sizes, now, out);
  }
}

void ReceiverCore::handle(event::RouteFetched& e, Instant now, Effects& out) {
  Peer& peer = peers_[e.key];
  if (peer.link != Link::resolving) return;
  if (!e.route) {
    const Error error = e.route.error();
    retry_later(e.key, error, now, out);
    // The instance behind the address may have been replaced by one without that rank.
    if (!is_final(error.code)) instance_is_stale(e.key.bootstrap, error.text, now);
    return;
  }
  const Instance& instance = instances_[e.key.bootstrap];
  if (instance.sizes && !instance.sizes->instance.empty() && instance.sizes->instance != e.route->instance) {
    // Another instance answers behind the address: its sizes may differ.
    peer.link = Link::idle;
    return instance_is_stale(
        e.key.bootstrap, "instance " + e.route->instance + " answers where " + instance.sizes->instance + " was", now);
  }
  const Incarnation incarnation = e.route->incarnation;
  const bool known = incarnation != Incarnation{};
  for (const auto& [id, session] : sessions_) {
    if (known && session.peer.incarnation == incarnation) return attach(e.key, id, now, out);
  }
  for (const auto& [id, closing] : closing_) {
    if (known ? closing.incarnation != incarnation : !closing.keys.contains(e.key)) continue;
    // Linking again says that nothing of the earlier link is read any more, so that must be true first.
    peer.link = Link::waiting;
    peer_timers_.set(e.key, now + limits_.retry_min);
    return;
  }
  peer.link = Link::dialing;
  out.push_back(effect::Dial{e.key, std::move(*e.route)});
}

void ReceiverCore::handle(event::DialFailed& e, Instant now, Effects& out) {
  const auto peer = peers_.find(e.key);
  if (peer == peers_.end() || peer->second.link != Link::dialing) return;
  if (is_final(e.error.code)) {
    peer->second.link = Link::idle;
    peer->second.tries = 0;
    fail_waiting(e.key, e.error, out);
    return;
  }
  retry_later(e.key, std::move(e.error), now, out);
}

// A refused or failed try fetches the route anew before the next one: it may belong to a process that is gone.
void ReceiverCore::retry_later(const PeerKey& key, Error error, Instant now, Effects& out) {
  Peer& peer = peers_[key];
  peer.last_error = error.text;
  if (peer.rooms.empty()) {
    peer.link = Link::idle;  // nobody waits: the next room starts afresh
    peer.tries = 0;
    return;
  }
  if (is_final(error.code)) {
    peer.link = Link::idle;
    return fail_waiting(key, error, out);
  }
  peer.link = Link::waiting;
  peer_timers_.set(key, now + back_off(peer.tries++));
}

void ReceiverCore::fail_waiting(const PeerKey& key, const Error& error, Effects& out) {
  const std::set<HandleId> rooms = std::exchange(peers_[key].rooms, {});
  for (const HandleId handle : rooms) {
    Room* room = find(handle);
    if (room == nullptr || room->concluded()) continue;
    Error reason = error;
    reason.room = room->id.value;
    if (reason.peer.empty()) reason.peer = key.bootstrap.text();
    fail(*room, std::move(reason), out);
  }
}

// What was known of the instance may be of one that is gone: rooms that have not linked ask again, after a wait, since
// the answers may go on to differ.
void ReceiverCore::instance_is_stale(const Address& bootstrap, std::string why, Instant now) {
  Instance& instance = instances_[bootstrap];
  instance.sizes.reset();
  instance.last_error = std::move(why);
  bool wanted = false;
  for (auto& [handle, room] : rooms_) {
    if (room.state != Poll::bootstrapping || room.bootstrap != bootstrap || !room.mapped) continue;
    forget_waiting(room);
    room.sources.clear();
    room.mapped = false;
    wanted = true;
  }
  if (wanted && !instance.fetching) instance_timers_.set(bootstrap, now + limits_.retry_min);
}

void ReceiverCore::attach(const PeerKey& key, SessionId session, Instant now, Effects& out) {
  Peer& peer = peers_[key];
  peer.link = Link::up;
  peer.session = session;
  peer.tries = 0;
  peer.last_error.clear();
  peer_timers_.erase(key);
  sessions_.at(session).keys.insert(key);
  const std::set<HandleId> rooms = std::exchange(peer.rooms, {});
  for (const HandleId handle : rooms) {
    Room* room = find(handle);
    if (room != nullptr && !room->concluded()) when_linked(*room, now, out);
  }
}

// Doubling from retry_min to retry_max. Jitter is the dialler's: core draws nothing.
Duration ReceiverCore::back_off(std::uint32_t tries) const {
  return std::min(limits_.retry_max, limits_.retry_min * (std::int64_t{1} << std::min<std::uint32_t>(tries, 20)));
}

}  // namespace kvferry::core
