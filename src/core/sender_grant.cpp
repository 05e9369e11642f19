#include <algorithm>
#include <string>

#include "base/assert.h"
#include "core/sender_core.h"
#include "layout/pages.h"
#include "protocol/codec.h"

namespace kvferry::core {
namespace {

std::uint64_t item_bytes(const std::vector<std::uint64_t>& regions) {
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : regions) sum += bytes;
  return sum;
}

}  // namespace

// A grant arrived. It may come before the engine opens the room: then it waits, bounded in number and time.
void SenderCore::on_grant(SessionId session, protocol::Grant& grant, Instant now, Effects& out) {
  if (transfers_.contains({session, grant.transfer})) {
    ++counters_.late_messages;  // said twice
    return;
  }
  if (auto fault = grant_fault(grant)) return refuse(session, grant, std::move(*fault), out);
  if (const auto live = live_.find(grant.room); live != live_.end()) {
    Room* room = find(live->second);
    KVF_ASSERT(room != nullptr);
    if (!room->concluded()) return accept(*room, session, grant, now, out);
    if (!room->granted() && refuse_ended(*room->error, room->ranks_told, session, grant, out)) return;
    return keep_early(session, grant, now, out);
  }
  if (const auto outcome = outcomes_.find(grant.room); outcome != outcomes_.end()) {
    if (refuse_ended(outcome->second.error, outcome->second.ranks_told, session, grant, out)) return;
  }
  keep_early(session, grant, now, out);
}

// A room ended without this rank's grant: the answer is how it ended. A rank that has granted that use, or was
// answered, means the next use of the number.
bool SenderCore::refuse_ended(const Error& error, std::set<Rank>& ranks_told, SessionId session,
                              const protocol::Grant& grant, Effects& out) {
  const auto peer = sessions_.find(session);
  if (peer == sessions_.end()) return true;
  if (!ranks_told.insert({peer->second.peer.instance, peer->second.peer.place}).second) return false;
  refuse(session, grant, error, out);
  return true;
}

std::optional<Error> SenderCore::grant_fault(const protocol::Grant& grant) const {
  if (grant.prefix_pages > grant.total_pages || grant.total_pages > limits_.pages_max || grant.grants_awaited == 0) {
    return Error{Code::protocol, "a grant of " + std::to_string(grant.total_pages) + " pages with a prefix of " +
                                     std::to_string(grant.prefix_pages) + " cannot be (at most " +
                                     std::to_string(limits_.pages_max) + " pages)"};
  }
  if (grant.state_items.size() > shape_.state_item_bytes.size()) {
    return Error{Code::mismatch, "decode grants " + std::to_string(grant.state_items.size()) +
                                     " state components, prefill has " +
                                     std::to_string(shape_.state_item_bytes.size())};
  }
  if (grant.with_aux && shape_.aux_item_bytes.empty()) {
    return Error{Code::mismatch, "decode grants an aux record, prefill registered no aux region"};
  }
  const std::uint64_t page = item_bytes(shape_.kv_item_bytes);
  const std::uint64_t pages = grant.total_pages - grant.prefix_pages;
  if (grant.inlined && page != 0 && pages > protocol::payload_bytes_max / page) {
    return Error{Code::protocol, "a grant of " + std::to_string(pages) + " pages is too large for the control link"};
  }
  return std::nullopt;
}

void SenderCore::refuse(SessionId session, const protocol::Grant& grant, Error error, Effects& out) {
  if (!sessions_.contains(session)) return;
  out.push_back(effect::Send{session, protocol::Abort{grant.room, grant.transfer, error.code, std::move(error.text)}});
}

void SenderCore::accept(Room& room, SessionId session, protocol::Grant& grant, Instant now, Effects& out) {
  const auto peer = sessions_.find(session);
  if (peer == sessions_.end()) return;  // its link went while the grant waited
  const std::string& instance = peer->second.peer.instance;
  if (!room.destinations.empty() && room.owner != instance) {
    return refuse(session, grant, Error{Code::already_exists, "the room is owned by decode instance " + room.owner},
                  out);
  }
  const bool again = std::ranges::any_of(room.destinations, [&](const Destination& d) {
    const auto other = sessions_.find(d.session);
    return d.session == session || (other != sessions_.end() && other->second.peer.place == peer->second.peer.place);
  });
  if (again) {
    return refuse(session, grant, Error{Code::already_exists, "the room is live with an earlier grant of this rank"},
                  out);
  }
  if (room.granted()) {
    return refuse(session, grant,
                  Error{Code::already_exists, "all " + std::to_string(room.destinations.size()) +
                                                  " decode ranks that the room waits for have granted it"},
                  out);
  }
  room.owner = instance;
  room.ranks_told.insert({instance, peer->second.peer.place});
  if (!room.destinations.empty()) {
    const protocol::Grant& first = room.destinations.front().grant;
    if (first.prefix_pages != grant.prefix_pages || first.total_pages != grant.total_pages ||
        first.grants_awaited != grant.grants_awaited) {
      Error error{Code::mismatch,
                  "decode ranks disagree: prefix " + std::to_string(first.prefix_pages) + ", pages " +
                      std::to_string(first.total_pages) + ", ranks " + std::to_string(first.grants_awaited) +
                      " against prefix " + std::to_string(grant.prefix_pages) + ", pages " +
                      std::to_string(grant.total_pages) + ", ranks " + std::to_string(grant.grants_awaited),
                  room.id.value, peer->second.address};
      refuse(session, grant, error, out);
      return fail(room, std::move(error), now, out);
    }
  }
  transfers_[{session, grant.transfer}] = room.handle;
  const layout::Pairing& pairing = peer->second.pairing;
  const layout::Range granted{grant.prefix_pages, grant.total_pages};
  room.destinations.push_back(Destination{session, std::move(grant), pairing.positions(granted),
                                          static_cast<std::uint32_t>(pairing.source.size())});
  if (!room.granted()) return;
  out.push_back(effect::PrefixKnown{room.handle, room.destinations.front().grant.prefix_pages});
  become(room, Poll::waiting_for_input, out);
  room.deadline = now + limits_.send_timeout;
  room_timers_.set(room.handle, room.deadline);
  if (room.init) when_ready(room, now, out);
}

// Granted and announced: the two counts must agree; then the chunks that waited may go.
void SenderCore::when_ready(Room& room, Instant now, Effects& out) {
  const protocol::Grant& grant = room.destinations.front().grant;
  if (room.num_pages != room.destinations.front().positions.size()) {
    const std::uint64_t mine = room.destinations.front().positions.size();
    const bool shared = mine != grant.total_pages - grant.prefix_pages;
    return fail(room,
                Error{Code::mismatch,
                      "prefill announced " + std::to_string(room.num_pages) + " pages, decode granted " +
                          std::to_string(grant.total_pages) + " pages of which it holds the first " +
                          std::to_string(grant.prefix_pages) +
                          (shared ? ", this rank's share is " + std::to_string(mine) : std::string()) +
                          ": the sum must be the same on both sides",
                      room.id.value, address_of(room.destinations.front().session)},
                now, out);
  }
  const bool aux_wanted = std::ranges::any_of(room.destinations, [](const Destination& d) { return d.grant.with_aux; });
  if (aux_wanted && !room.aux_item) {
    return fail(room,
                Error{Code::mismatch, "decode granted an aux record, prefill's init named no aux_index", room.id.value},
                now, out);
  }
  if (room.waiting.empty()) return;
  out.push_back(effect::ChunksTaken{room.handle, static_cast<std::uint32_t>(room.waiting.size())});
  const HandleId handle = room.handle;
  std::deque<WaitingChunk> chunks = std::move(room.waiting);
  room.waiting.clear();
  for (WaitingChunk& chunk : chunks) {
    Room* still = find(handle);
    if (still == nullptr || still->concluded()) return;
    dispatch(*still, std::move(chunk), now, out);
  }
}

void SenderCore::keep_early(SessionId session, protocol::Grant& grant, Instant now, Effects& out) {
  const auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return;
  if (entry->second.early.size() >= limits_.orphan_grants_max) {
    if (const auto oldest = take_early(entry->second.early.front())) {
      refuse(session, oldest->grant,
             Error{Code::try_later, "more than " + std::to_string(limits_.orphan_grants_max) +
                                        " grants of this rank wait for rooms that no prefill engine has opened"},
             out);
    }
  }
  if (limits_.orphan_grants_max == 0) return;
  const std::uint64_t serial = ++serial_;
  early_by_room_.insert({grant.room, serial});
  early_.emplace(serial, EarlyGrant{session, std::move(grant)});
  entry->second.early.push_back(serial);
  early_timers_.set(serial, now + limits_.early_grant_ttl);
}

std::optional<SenderCore::EarlyGrant> SenderCore::take_early(std::uint64_t serial) {
  const auto entry = early_.find(serial);
  if (entry == early_.end()) return std::nullopt;
  EarlyGrant grant = std::move(entry->second);
  early_.erase(entry);
  early_timers_.erase(serial);
  const auto [begin, end] = early_by_room_.equal_range(grant.grant.room);
  for (auto it = begin; it != end; ++it) {
    if (it->second == serial) {
      early_by_room_.erase(it);
      break;
    }
  }
  if (const auto session = sessions_.find(grant.session); session != sessions_.end()) {
    std::erase(session->second.early, serial);
  }
  return grant;
}

}  // namespace kvferry::core
