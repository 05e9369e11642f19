// What goes into the cores and what comes out. Events are in the past tense or an engine's wish; effects are orders.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/address.h"
#include "base/ids.h"
#include "core/orders.h"
#include "kvferry/kvferry.h"
#include "layout/pairing.h"
#include "protocol/messages.h"

namespace kvferry::core {

using HandleId = Id<struct HandleTag>;  // one use of a room on this side; local to a manager, never reused

// How a session's bulk data moves.
enum class DataPath : std::uint8_t {
  push,  // the sender's mover writes into the stream, the receiver's mover places
  pull,  // the sender offers, the receiver's mover reads
};

// A prefill rank as decode knows it before it has met it.
struct PeerKey {
  Address bootstrap;
  Place place;
  friend auto operator<=>(const PeerKey&, const PeerKey&) = default;
};

// What the bootstrap server says.
struct InstanceSizes {
  Parallel parallel;
  std::string instance;
};
struct Route {
  Address address;
  std::string instance;
  Incarnation incarnation;  // zero where the engine registered without one
};

namespace event {

// ---- The engine's wishes, checked against what was registered before they come here. ----
struct OpenSender {
  HandleId handle;
  RoomId room;
};
struct InitSender {
  HandleId handle;
  std::uint64_t num_pages = 0;
  std::optional<std::int32_t> aux_item;
};
struct SendChunk {
  HandleId handle;
  std::vector<std::int32_t> pages;
  std::uint64_t first_page = 0;                       // which of the announced pages the first of these is
  layout::Range layers = layout::every_layer;         // of the model
  std::vector<std::vector<std::int32_t>> state = {};  // with the last chunk
  bool last = false;                                  // with it all announced pages of all layers have been sent
};
struct OpenReceiver {
  HandleId handle;
  RoomId room;
  TransferId transfer;  // drawn by the caller
  Address bootstrap;
  std::optional<std::uint32_t> dp_rank;
};
struct InitReceiver {
  HandleId handle;
  std::vector<std::int32_t> pages;
  std::optional<std::int32_t> aux_item;
  std::uint64_t prefix_pages = 0;
  std::vector<std::vector<std::int32_t>> state;
};
struct AbortRoom {
  HandleId handle;
  std::string reason;
};
struct ClearRoom {
  HandleId handle;
};

// ---- The network. ----
struct SessionUp {
  SessionId session;
  protocol::Identity peer;
  std::string address;  // for people and errors
  DataPath path = DataPath::push;
  std::optional<PeerKey> key;  // decode: what was dialled
  layout::Pairing pairing;     // what moves between the two
};
struct SessionDown {
  SessionId session;
  Error error;
};
struct Received {
  SessionId session;
  protocol::Message message;
};
// The process of a same-host session has exited, whether or not its link has ended already: it reads nothing of ours
// any more.
struct PeerExited {
  Incarnation incarnation;
};
// Another process has taken this prefill rank's place at the bootstrap server: decode ranks that are still linked here
// must not go on with one process while others are sent to the next.
struct Replaced {
  Error reason;
};
struct SizesFetched {
  Address bootstrap;
  Result<InstanceSizes> sizes;
};
struct RouteFetched {
  PeerKey key;
  Result<Route> route;
};
// No session came of a Dial. `mismatch`, `unauthorized` and `unsupported` are for good: the rooms that wait fail.
struct DialFailed {
  PeerKey key;
  Error error;
};

}  // namespace event

using SenderEvent =
    std::variant<event::OpenSender, event::InitSender, event::SendChunk, event::AbortRoom, event::ClearRoom,
                 event::SessionUp, event::SessionDown, event::Received, event::PeerExited, event::Replaced, MoverEvent>;
using ReceiverEvent = std::variant<event::OpenReceiver, event::InitReceiver, event::AbortRoom, event::ClearRoom,
                                   event::SessionUp, event::SessionDown, event::Received, event::SizesFetched,
                                   event::RouteFetched, event::DialFailed, MoverEvent>;

namespace effect {

// ---- To the network. ----
struct Send {
  SessionId session;
  protocol::Message message;
};
// An Inline message: the bytes of `lists` (sender's items) are its payload.
struct SendInline {
  ChunkOrder order;
};
struct CloseSession {  // the link; movers are told apart
  SessionId session;
  Error reason;
};
struct FetchSizes {
  Address bootstrap;
};
struct FetchRoute {
  PeerKey key;
};
struct Dial {
  PeerKey key;
  Route route;
};

// ---- To the movers; answered by MoverEvents. ----
struct OpenWindow {
  Window window;
  bool inlined = false;
};
struct CloseWindow {
  SessionId session;
  TransferId transfer;
  bool inlined = false;
};
struct Move {
  ChunkOrder order;
};
struct Sum {
  SumOrder order;
};
struct StopMoves {
  SessionId session;
  TransferId transfer;
};
struct CloseMoverSession {  // answered by SessionClosed
  SessionId session;
};

// ---- To the engine. ----
struct RoomChanged {
  HandleId handle;
  Poll state = Poll::bootstrapping;
  std::optional<Error> error;  // with `failed`
};
struct PagesReleased {
  HandleId handle;
};
struct PrefixKnown {
  HandleId handle;
  std::uint64_t prefix_pages = 0;  // of this side's size; a page that decode holds in part is not among them
};
struct ChunksTaken {  // they left the room's waiting list
  HandleId handle;
  std::uint32_t count = 0;
};
struct BytesMoved {
  HandleId handle;
  std::uint64_t bytes = 0;
};
struct LayersReceived {  // this many of the rank's layers, from its first on, are whole; said when it grows
  HandleId handle;
  std::uint32_t count = 0;
};
struct HandleDone {  // core holds nothing of it any more
  HandleId handle;
};
// A line for the log: something that a person on call may want to know.
struct Note {
  std::string text;
};

}  // namespace effect

using Effect =
    std::variant<effect::Send, effect::SendInline, effect::CloseSession, effect::FetchSizes, effect::FetchRoute,
                 effect::Dial, effect::OpenWindow, effect::CloseWindow, effect::Move, effect::Sum, effect::StopMoves,
                 effect::CloseMoverSession, effect::RoomChanged, effect::PagesReleased, effect::PrefixKnown,
                 effect::ChunksTaken, effect::BytesMoved, effect::LayersReceived, effect::HandleDone, effect::Note>;
using Effects = std::vector<Effect>;

// Numbers of one core since its start, and of what it holds now.
struct Counters {
  std::uint64_t rooms_succeeded = 0;
  std::uint64_t rooms_failed = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sessions_lost = 0;
  std::uint64_t late_messages = 0;
  std::uint64_t rooms_live = 0;
  std::uint64_t sessions_live = 0;
  std::uint64_t quarantined_pages = 0;
  std::uint64_t orphan_grants = 0;
};

}  // namespace kvferry::core
