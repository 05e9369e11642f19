#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "core/sender_core.h"
#include "layout/pages.h"
#include "protocol/codec.h"

namespace kvferry::core {
namespace {

// The positions that decode granted, in units of the session.
layout::Range granted_positions(const protocol::Grant& grant, const layout::Pairing& pairing) {
  return {grant.prefix_pages * pairing.target_units, grant.total_pages * pairing.target_units};
}

// The pages that cover these positions, where a page is as many units.
layout::Range pages_over(const layout::Range& positions, std::uint32_t units) {
  return {positions.begin / units, (positions.end + units - 1) / units};
}

}  // namespace

// A grant arrived. It may come before the engine opens the room: then it waits, bounded in number and time.
void SenderCore::on_grant(SessionId session, protocol::Grant& grant, Instant now, Effects& out) {
  if (transfers_.contains({session, grant.transfer})) {
    ++counters_.late_messages;  // said twice
    return;
  }
  const auto peer = sessions_.find(session);
  if (peer == sessions_.end()) return;
  if (auto fault = grant_fault(grant, peer->second.pairing)) {
    return refuse(session, grant, std::move(*fault), out);
  }
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

std::optional<Error> SenderCore::grant_fault(const protocol::Grant& grant, const layout::Pairing& pairing) const {
  if (grant.prefix_pages > grant.total_pages || grant.total_pages > limits_.pages_max || grant.grants_awaited == 0) {
    return Error{Code::protocol, "a grant of " + std::to_string(grant.total_pages) + " pages with a prefix of " +
                                     std::to_string(grant.prefix_pages) + " cannot be (at most " +
                                     std::to_string(limits_.pages_max) + " pages)"};
  }
  if (grant.state_items.size() > pairing.state.prefill.size()) {
    return Error{Code::mismatch, "decode grants " + std::to_string(grant.state_items.size()) +
                                     " state components, both sides have " +
                                     std::to_string(pairing.state.prefill.size())};
  }
  if (grant.with_aux && shape_.aux_item_bytes.empty()) {
    return Error{Code::mismatch, "decode grants an aux record, prefill registered no aux region"};
  }
  const std::uint64_t units = pairing.positions(granted_positions(grant, pairing)).size();
  if (grant.inlined && pairing.unit_bytes != 0 && units > protocol::payload_bytes_max / pairing.unit_bytes) {
    return Error{Code::protocol, "a grant of " + std::to_string(grant.total_pages - grant.prefix_pages) +
                                     " pages is too large for the control link"};
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
  if (auto error = disagreement(room, peer->second, grant)) {
    refuse(session, grant, *error, out);
    return fail(room, std::move(*error), now, out);
  }
  transfers_[{session, grant.transfer}] = room.handle;
  const layout::Pairing& pairing = peer->second.pairing;
  const layout::Range granted = granted_positions(grant, pairing);
  room.positions = pairing.positions(granted);
  room.units = pairing.source_units;
  room.destinations.push_back(Destination{session, std::move(grant)});
  if (!room.granted()) return;
  out.push_back(effect::PrefixKnown{room.handle, granted.begin / room.units});
  become(room, Poll::waiting_for_input, out);
  room.deadline = now + limits_.send_timeout;
  room_timers_.set(room.handle, room.deadline);
  if (room.init) when_ready(room, now, out);
}

// The decode ranks of a room must have granted alike, and in pages of one size.
std::optional<Error> SenderCore::disagreement(const Room& room, const Session& peer,
                                              const protocol::Grant& grant) const {
  if (room.destinations.empty()) return std::nullopt;
  const protocol::Grant& first = room.destinations.front().grant;
  const auto session = sessions_.find(room.destinations.front().session);
  KVF_ASSERT(session != sessions_.end());  // a lost session has failed the room
  const layout::Pairing& pairing = session->second.pairing;
  const bool one_size =
      pairing.source_units == peer.pairing.source_units && pairing.target_units == peer.pairing.target_units;
  if (first.prefix_pages == grant.prefix_pages && first.total_pages == grant.total_pages &&
      first.grants_awaited == grant.grants_awaited && one_size) {
    return std::nullopt;
  }
  const auto say = [one_size](const protocol::Grant& one, const layout::Pairing& pages) {
    std::string text = "prefix " + std::to_string(one.prefix_pages) + ", pages " + std::to_string(one.total_pages);
    if (!one_size) {
      text += " of " + std::to_string(pages.target_units) + "/" + std::to_string(pages.source_units) +
              " of a prefill page each";
    }
    return text + ", ranks " + std::to_string(one.grants_awaited);
  };
  return Error{Code::mismatch, "decode ranks disagree: " + say(first, pairing) + " against " + say(grant, peer.pairing),
               room.id.value, peer.address};
}

// Whether the pages that prefill announced are those that decode granted. Of decode's last page, where it is the larger
// one, some may have nothing in them.
std::optional<Error> SenderCore::count_fault(const Room& room) const {
  const Destination& first = room.destinations.front();
  const layout::Pairing& pairing = sessions_.at(first.session).pairing;
  const layout::Range granted = granted_positions(first.grant, pairing);
  const std::uint64_t slack = std::min(pairing.slack(room.positions, granted), room.positions.size());
  const std::uint64_t most = pages_over(room.positions, room.units).size();
  const std::uint64_t least = pages_over({room.positions.begin, room.positions.end - slack}, room.units).size();
  if (room.num_pages >= least && room.num_pages <= most) return std::nullopt;
  std::string here;
  if (room.positions.size() != first.grant.total_pages - first.grant.prefix_pages) {
    here = ", this rank's part is " + (least == most ? "" : std::to_string(least) + " to ") + std::to_string(most);
    if (pairing.source_units != pairing.target_units) here += " of its pages";
  }
  return Error{Code::mismatch,
               "prefill announced " + std::to_string(room.num_pages) + " pages, decode granted " +
                   std::to_string(first.grant.total_pages) + " pages of which it holds the first " +
                   std::to_string(first.grant.prefix_pages) + here + ": the sum must be the same on both sides",
               room.id.value, address_of(first.session)};
}

// Granted and announced: the two counts must agree; then the chunks that waited may go.
void SenderCore::when_ready(Room& room, Instant now, Effects& out) {
  if (auto fault = count_fault(room)) return fail(room, std::move(*fault), now, out);
  if (room.units == 1) room.positions.end = room.positions.begin + room.num_pages;
  const bool aux_wanted = std::ranges::any_of(room.destinations, [](const Destination& d) { return d.grant.with_aux; });
  if (aux_wanted && !room.aux_item) {
    return fail(room,
                Error{Code::mismatch, "decode granted an aux record, prefill's init named no aux_index", room.id.value},
                now, out);
  }
  if (room.waiting.empty()) return;
  out.push_back(effect::ChunksTaken{room.handle, static_cast<std::uint32_t>(room.waiting.size())});
  const HandleId handle = room.handle;
  const std::deque<event::SendChunk> chunks = std::exchange(room.waiting, {});
  for (const event::SendChunk& chunk : chunks) {
    Room* still = find(handle);
    if (still == nullptr || still->concluded()) return;
    dispatch(*still, chunk, now, out);
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
