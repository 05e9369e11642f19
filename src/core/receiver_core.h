// The decode side's decisions: whom to link, what to grant, when every byte is there. A value: no I/O, no clock.
//
// Room: Bootstrapping --every source linked--> WaitingForInput --first bytes--> Transferring
//         --every source complete and its window closed--> Success
//       any of the first three --error, abort, deadline, lost session--> Failed
// `Failed` shows at once; the pages are released when the movers have acknowledged that the windows are closed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "core/chunk_ledger.h"
#include "core/events.h"
#include "core/peer_health.h"
#include "core/timers.h"
#include "layout/check.h"

namespace kvferry::core {

class ReceiverCore {
 public:
  ReceiverCore(const Limits& limits, layout::Shape shape, Place place)
      : limits_(limits), shape_(std::move(shape)), place_(place) {}

  // Contract in core/README.md. `now` never goes back.
  void on(ReceiverEvent&& event, Instant now, Effects& effects);
  void on_time(Instant now, Effects& effects);
  Instant next_deadline() const;
  Counters counters() const;
  // Why something is still under way, for tests and operators; nothing when every room has ended and been released.
  std::optional<std::string> pending() const;
  // What is still remembered of any room; nothing once the last room was cleared and released.
  std::optional<std::string> held() const;
  // The invariants that tie the tables together; asserts.
  void check() const;

 private:
  enum class Window : std::uint8_t { none, open, closing, closed };
  struct Source {
    PeerKey key;
    std::optional<SessionId> session;  // once the room has granted, or is about to
    ChunkLedger ledger;
    layout::Range layers{};  // of the model, that it sends; none where it sends nothing of the cache
    std::uint32_t regions_a_layer = 1;
    bool told = false;  // that the room has failed, by us or because it told us
    Window window = Window::none;
    bool complete = false;
    bool inlined = false;
    bool with_aux = false;
    std::vector<std::uint64_t> state_items{};  // granted of each of the session's components
    // The end-to-end check; untouched without it.
    std::vector<ItemList> lists;  // what was granted, until it is summed up
    bool summing = false;
    std::optional<std::uint32_t> sum_here;
    std::optional<std::uint32_t> sum_there;
  };
  struct Room {
    HandleId handle;
    RoomId id;
    TransferId transfer;
    Address bootstrap;
    std::optional<std::uint32_t> dp_rank;
    Poll state = Poll::bootstrapping;
    Instant deadline;
    bool cleared = false;
    bool quarantined = false;  // ended, its pages counted as not released yet
    bool released = false;
    bool mapped = false;  // the sources are known
    std::uint32_t grants_awaited = 1;
    std::vector<Source> sources;
    std::optional<event::InitReceiver> init;  // its page list moves into the last window
    std::uint64_t granted_pages = 0;
    std::uint64_t prefix_pages = 0;
    bool with_aux = false;
    std::uint32_t layers_received = 0;
    bool granted = false;
    std::optional<Error> error;
    bool concluded() const { return state == Poll::failed || state == Poll::success; }
  };
  // A prefill instance as its bootstrap server describes it.
  struct Instance {
    std::optional<InstanceSizes> sizes;
    bool fetching = false;
    std::uint32_t tries = 0;
    std::string last_error;
  };
  enum class Link : std::uint8_t { idle, resolving, dialing, up, waiting };
  struct Peer {
    Link link = Link::idle;
    SessionId session;  // while up
    std::uint32_t tries = 0;
    std::string last_error;
    std::set<HandleId> rooms;  // that wait for this peer to be linked
  };
  struct Session {
    protocol::Identity peer;
    std::string address;
    DataPath path = DataPath::push;
    layout::Pairing pairing;
    PeerHealth health;
    std::set<PeerKey> keys;    // one, unless a process is reached under two bootstrap addresses
    std::set<HandleId> rooms;  // linked through it and not settled
  };
  // A session that is lost, until the mover has acknowledged: its process is not dialled before.
  struct Closing {
    Incarnation incarnation;
    std::set<PeerKey> keys;
  };

  // receiver_room.cpp: what the engine asks for, and how a room ends.
  void handle(event::OpenReceiver& e, Instant now, Effects& out);
  void handle(event::InitReceiver& e, Instant now, Effects& out);
  void handle(event::AbortRoom& e, Instant now, Effects& out);
  void handle(event::ClearRoom& e, Instant now, Effects& out);
  void become(Room& room, Poll state, Effects& out);
  void fail(Room& room, Error error, Effects& out);
  void close_window(Room& room, Source& source, Effects& out);
  void settle(HandleId handle, Effects& out);
  void forget_waiting(Room& room);

  // receiver_route.cpp: from a bootstrap address to linked ranks.
  void handle(event::SizesFetched& e, Instant now, Effects& out);
  void handle(event::RouteFetched& e, Instant now, Effects& out);
  void handle(event::DialFailed& e, Instant now, Effects& out);
  void locate(Room& room, Instant now, Effects& out);
  void map_sources(Room& room, const InstanceSizes& sizes, Instant now, Effects& out);
  void want(const PeerKey& key, HandleId handle, Instant now, Effects& out);
  void retry_later(const PeerKey& key, Error error, Instant now, Effects& out);
  void fail_waiting(const PeerKey& key, const Error& error, Effects& out);
  void instance_is_stale(const Address& bootstrap, std::string why, Instant now);
  void attach(const PeerKey& key, SessionId session, Instant now, Effects& out);
  Duration back_off(std::uint32_t tries) const;

  // receiver_grant.cpp: granting, and what comes of it.
  void when_linked(Room& room, Instant now, Effects& out);
  std::optional<Error> coverage_fault(const Room& room) const;
  void grant(Room& room, Instant now, Effects& out);
  void grant_source(Room& room, Source& source, Effects& out);
  void on_offer(SessionId session, protocol::Offer& offer, Instant now, Effects& out);
  void on_abort(SessionId session, const protocol::Abort& m, Effects& out);
  void on_sum(SessionId session, const protocol::Sum& m, Effects& out);
  void on_queued(SessionId session, const protocol::Queued& m, Instant now);
  void handle(MoverEvent& e, Instant now, Effects& out);
  void on_placed(const Placed& placed, Instant now, Effects& out);
  void on_window_closed(SessionId session, TransferId transfer, Effects& out);
  void first_bytes(Room& room, Instant now, Effects& out);
  void note_layers(Room& room, Effects& out);
  std::optional<Error> state_fault(const Source& source, const std::vector<std::uint64_t>& came) const;
  void confirm(Room& room, const Source& source, Effects& out);
  void compare_sums(Room& room, Source& source, Effects& out);
  // Nothing is missing of this source: all bytes are there, and where it is wanted they are those that were sent.
  bool whole(const Source& source) const {
    return source.complete && (!limits_.verify || (source.sum_here && source.sum_here == source.sum_there));
  }
  void conclude_if_complete(Room& room, Effects& out);

  // receiver_session.cpp: peers that come, go and fall silent; deadlines.
  void handle(event::SessionUp& e, Instant now, Effects& out);
  void handle(event::SessionDown& e, Instant now, Effects& out);
  void handle(event::Received& e, Instant now, Effects& out);
  void lose(SessionId session, Error error, Effects& out);
  void on_session_closed(SessionId session, Effects& out);
  void on_session_time(SessionId session, Instant now, Effects& out);
  void on_room_time(HandleId handle, Instant now, Effects& out);

  Room* find(HandleId handle);
  std::pair<Room*, Source*> find_transfer(SessionId session, TransferId transfer);
  std::string address_of(const std::optional<SessionId>& session) const;

  Limits limits_;
  layout::Shape shape_;
  Place place_;
  std::map<HandleId, Room> rooms_;            // bounded by limits_.rooms_max (runtime) plus fences that wait
  std::map<RoomId, HandleId> live_;           // not cleared yet
  std::map<TransferId, HandleId> transfers_;  // granted, until released
  std::map<SessionId, Session> sessions_;
  std::map<SessionId, Closing> closing_;
  std::map<Address, Instance> instances_;  // bounded by the bootstrap addresses that engines name
  std::map<PeerKey, Peer> peers_;          // likewise
  Timers<HandleId> room_timers_;
  Timers<SessionId> session_timers_;
  Timers<PeerKey> peer_timers_;  // tries that wait
  Timers<Address> instance_timers_;
  Counters counters_;
};

}  // namespace kvferry::core
