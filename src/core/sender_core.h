// The prefill side's decisions: which rooms may send, to whom, and when they are over. A value: no I/O, no clock.
//
// Room: Bootstrapping --all grants--> WaitingForInput --first chunk--> Transferring --all confirmed--> Success
//       any of the first three --error, abort, deadline, lost session--> Failed
// Behind a concluded room its fence lives on until nothing of its pages is read any more; then it is released.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "core/events.h"
#include "core/peer_health.h"
#include "core/timers.h"

namespace kvferry::core {

class SenderCore {
 public:
  SenderCore(const Limits& limits, layout::Shape shape) : limits_(limits), shape_(std::move(shape)) {}

  // Contract in core/README.md. `now` never goes back.
  void on(SenderEvent&& event, Instant now, Effects& effects);
  void on_time(Instant now, Effects& effects);
  Instant next_deadline() const;
  Counters counters() const;
  // Why something is still under way, for tests and operators; nothing when every room has ended and been released.
  std::optional<std::string> pending() const;
  // What is still remembered of any room; nothing once the last room was cleared and released and the times of early
  // grants and outcomes have passed.
  std::optional<std::string> held() const;
  // The invariants that tie the tables together; asserts.
  void check() const;

 private:
  using Rank = std::pair<std::string, Place>;  // a decode rank: its instance and its place there
  struct Destination {
    SessionId session;
    protocol::Grant grant;
    std::uint32_t chunks = 0;  // sent to it; each destination counts its own
    bool confirmed = false;
    bool told = false;        // that the room has failed, by us or because it told us
    std::uint32_t moves = 0;  // orders that our mover has not finished: pages may be read here
    bool offered = false;     // the peer may read our pages
    bool summing = false;     // we read them ourselves, for the end-to-end check
    bool released() const { return moves == 0 && !offered && !summing; }
  };
  struct Room {
    HandleId handle;
    RoomId id;
    Poll state = Poll::bootstrapping;
    Instant deadline;
    bool init = false;
    bool cleared = false;
    bool quarantined = false;  // ended, its pages counted as not released yet
    bool released = false;
    std::uint64_t num_pages = 0;
    std::optional<std::int32_t> aux_item;
    std::vector<Destination> destinations;
    std::string owner;          // the decode instance of the first grant
    std::set<Rank> ranks_told;  // whose grant of this use was taken or refused: their next one is of the next use
    layout::Range positions;    // that this rank sends, in units (layout::Pairing)
    std::uint32_t units = 1;    // of a page here
    std::deque<event::SendChunk> waiting;
    std::uint64_t pages_sent = 0;            // the furthest of them
    std::vector<std::int32_t> units_to_sum;  // one a position, where a grant wants the end-to-end check
    bool last_sent = false;
    std::optional<Error> error;
    bool concluded() const { return state == Poll::failed || state == Poll::success; }
    bool granted() const {
      return !destinations.empty() && destinations.size() == destinations.front().grant.grants_awaited;
    }
  };
  struct Session {
    protocol::Identity peer;
    std::string address;
    DataPath path = DataPath::push;
    layout::Pairing pairing;
    PeerHealth health;
    std::deque<std::uint64_t> early;  // serials, the oldest first
    Instant queued_at;                // next Queued notice
  };
  struct EarlyGrant {
    SessionId session;
    protocol::Grant grant;
  };
  struct Outcome {
    Error error;
    std::set<Rank> ranks_told;
    std::uint64_t serial = 0;
  };
  using TransferKey = std::pair<SessionId, TransferId>;

  // sender_room.cpp: what the engine asks for, and how a room ends.
  void handle(event::OpenSender& e, Instant now, Effects& out);
  void handle(event::InitSender& e, Instant now, Effects& out);
  void handle(event::AbortRoom& e, Instant now, Effects& out);
  void handle(event::ClearRoom& e, Instant now, Effects& out);
  void become(Room& room, Poll state, Effects& out);
  void fail(Room& room, Error error, Instant now, Effects& out);
  void settle(HandleId handle, Instant now, Effects& out);
  void remember_outcome(const Room& room, Instant now);

  // sender_grant.cpp: grants, early ones included.
  void on_grant(SessionId session, protocol::Grant& grant, Instant now, Effects& out);
  void accept(Room& room, SessionId session, protocol::Grant& grant, Instant now, Effects& out);
  void refuse(SessionId session, const protocol::Grant& grant, Error error, Effects& out);
  bool refuse_ended(const Error& error, std::set<Rank>& ranks_told, SessionId session, const protocol::Grant& grant,
                    Effects& out);
  void keep_early(SessionId session, protocol::Grant& grant, Instant now, Effects& out);
  std::optional<EarlyGrant> take_early(std::uint64_t serial);
  std::optional<Error> grant_fault(const protocol::Grant& grant, const layout::Pairing& pairing) const;
  std::optional<Error> disagreement(const Room& room, const Session& peer, const protocol::Grant& grant) const;
  void when_ready(Room& room, Instant now, Effects& out);
  std::optional<Error> count_fault(const Room& room) const;

  // sender_chunk.cpp: chunks on their way and what comes back.
  void handle(event::SendChunk& e, Instant now, Effects& out);
  void dispatch(Room& room, const event::SendChunk& chunk, Instant now, Effects& out);
  std::optional<Error> state_fault(const Room& room, const event::SendChunk& chunk) const;
  ChunkOrder order_for(const Room& room, Destination& destination, const event::SendChunk& chunk,
                       const layout::Range& sent) const;
  void hand_over(Destination& destination, ChunkOrder order, Effects& out);
  void on_confirm(SessionId session, const protocol::Confirm& m, Instant now, Effects& out);
  void on_landed(SessionId session, const protocol::Landed& m, Instant now, Effects& out);
  void on_abort(SessionId session, const protocol::Abort& m, Instant now, Effects& out);
  void on_closed(SessionId session, const protocol::Closed& m, Instant now, Effects& out);
  void handle(MoverEvent& e, Instant now, Effects& out);
  void note_progress(Room& room, Instant now);

  // sender_session.cpp: peers that come, go and fall silent; deadlines.
  void handle(event::SessionUp& e, Instant now, Effects& out);
  void handle(event::SessionDown& e, Instant now, Effects& out);
  void handle(event::Received& e, Instant now, Effects& out);
  void handle(event::PeerExited& e, Instant now, Effects& out);
  void handle(event::Replaced& e, Instant now, Effects& out);
  void fail_replaced(HandleId handle, Instant now, Effects& out);
  void lose(SessionId session, Error error, Instant now, Effects& out);
  void release_readers(const Incarnation& incarnation, Instant now, Effects& out);
  void on_session_time(SessionId session, Instant now, Effects& out);
  void on_room_time(HandleId handle, Instant now, Effects& out);

  Room* find(HandleId handle);
  Room* find_transfer(SessionId session, TransferId transfer);
  Destination* find_destination(Room& room, SessionId session, TransferId transfer);
  std::string address_of(SessionId session) const;

  Limits limits_;
  layout::Shape shape_;
  std::map<HandleId, Room> rooms_;             // bounded by limits_.rooms_max (runtime) plus fences that wait
  std::map<RoomId, HandleId> live_;            // not cleared yet
  std::map<TransferKey, HandleId> transfers_;  // one a destination, until it is released
  std::map<SessionId, Session> sessions_;
  std::map<Incarnation, std::vector<TransferKey>> readers_;  // what a lost same-host peer may still read
  std::map<std::uint64_t, EarlyGrant> early_;                // by serial; bounded by orphan_grants_max a session
  std::multimap<RoomId, std::uint64_t> early_by_room_;
  std::map<RoomId, Outcome> outcomes_;  // bounded by outcomes_max
  std::map<std::uint64_t, RoomId> outcome_order_;
  std::uint64_t serial_ = 0;
  std::optional<Error> replaced_;  // nothing is begun any more
  Timers<HandleId> room_timers_;
  Timers<SessionId> session_timers_;
  Timers<std::uint64_t> early_timers_;
  Timers<std::uint64_t> outcome_timers_;
  Counters counters_;
};

}  // namespace kvferry::core
