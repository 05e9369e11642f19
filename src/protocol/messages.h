// The messages of a control link as values. What they look like on the wire is protocol/wire.proto; codec.h goes
// between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "kvferry/layout.h"
#include "kvferry/result.h"
#include "layout/check.h"

namespace kvferry::protocol {

inline constexpr std::uint32_t version = 1;      // spoken by this build
inline constexpr std::uint32_t version_min = 1;  // oldest that it still understands

// Bounds of what a message may hold; a body that goes past one is refused.
inline constexpr std::size_t text_bytes_max = 65'536;     // writers cut longer texts
inline constexpr std::size_t offer_items_max = 1u << 24;  // pages and state items of one Offer: as many as fit a body
inline constexpr std::size_t state_lists_max = layout::state_components_max;
inline constexpr std::ptrdiff_t transports_max = 16;  // names in Proof and Welcome; they hold no comma

// ---- Shaking hands: Hello, Challenge, Proof, Welcome, Ready, Linked; either side may answer Refuse and close. ----

struct Identity {
  std::string instance{};
  Place place{};
  Incarnation incarnation{};
  std::uint64_t start_number = 0;  // microseconds of the wall clock at the start of the process; the higher one wins
  friend bool operator==(const Identity&, const Identity&) = default;
};

struct Hello {  // decode -> prefill, first on a control link
  std::uint32_t version = protocol::version;
  std::uint32_t version_min = protocol::version_min;
  Identity identity{};
  Bits128 nonce{};
  friend bool operator==(const Hello&, const Hello&) = default;
};
struct Challenge {                            // prefill -> decode
  std::uint32_t version = protocol::version;  // the one that is spoken from here on
  Identity identity{};
  Bits128 nonce{};
  std::string proof{};  // HMAC of the token over both nonces and both identities; empty without a token
  layout::Shape shape{};
  friend bool operator==(const Challenge&, const Challenge&) = default;
};
// How a process on the same host is found and told apart; asked of the kernel before it is believed.
struct SameHost {
  std::uint64_t pid = 0;
  std::uint64_t nonce_address = 0;  // where `nonce` lies in that process
  Bits128 nonce{};
  friend bool operator==(const SameHost&, const SameHost&) = default;
};
struct Proof {  // decode -> prefill
  std::string proof{};
  layout::Shape shape{};
  std::vector<std::string> transports{};  // what decode can do, best first: "samehost", "tcp"
  SameHost same_host{};
  friend bool operator==(const Proof&, const Proof&) = default;
};
// A region as a same-host reader sees it.
struct RemoteRegion {
  std::uint32_t component = 0;
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  std::uint64_t item_bytes = 0;
  std::int32_t shared = -1;         // number of the memfd that holds it, -1 for private memory
  std::uint64_t shared_offset = 0;  // where it starts in that memfd
  friend bool operator==(const RemoteRegion&, const RemoteRegion&) = default;
};
struct Welcome {                          // prefill -> decode
  std::vector<std::string> transports{};  // what both can do
  Bits128 stream_secret{};                // joins data streams to this session, once each
  SameHost same_host{};
  std::string memory_socket{};          // abstract Unix socket that hands out the memfds; empty where there are none
  std::vector<RemoteRegion> regions{};  // only where "samehost" is among the transports
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
struct Ready {              // decode -> prefill
  std::string transport{};  // the one decode picked
  std::string detail{};     // for people: "process_vm_readv", or why a better one was not picked
  friend bool operator==(const Ready&, const Ready&) = default;
};
struct Linked {  // prefill -> decode: rooms may be granted
  friend bool operator==(const Linked&, const Linked&) = default;
};
struct Refuse {
  Code code = Code::internal;
  std::string text{};
  friend bool operator==(const Refuse&, const Refuse&) = default;
};

// First on a data stream, decode -> prefill; answered by JoinChallenge, then JoinProof, then raw data frames.
struct Join {
  Incarnation decode{};
  Incarnation prefill{};
  Bits128 nonce{};
  friend bool operator==(const Join&, const Join&) = default;
};
struct JoinChallenge {
  Bits128 nonce{};
  std::string proof{};  // HMAC of stream secret and token over both nonces
  friend bool operator==(const JoinChallenge&, const JoinChallenge&) = default;
};
struct JoinProof {
  std::string proof{};
  friend bool operator==(const JoinProof&, const JoinProof&) = default;
};

// ---- Rooms. ----

struct Grant {  // decode -> prefill
  RoomId room{};
  TransferId transfer{};
  std::uint64_t prefix_pages = 0;
  std::uint64_t total_pages = 0;  // prefix included
  bool with_aux = false;
  std::vector<std::uint64_t> state_items{};  // granted items of each state component
  std::uint32_t grants_awaited = 1;          // decode ranks that the prefill rank waits for
  bool inlined = false;                      // the data travels as Inline, else by the session's transport
  bool dummy = false;
  bool verify = false;  // a Sum is wanted before the room may succeed
  friend bool operator==(const Grant&, const Grant&) = default;
};
// Which part of a room a chunk is. Positions count pages from the start of the request.
struct ChunkSpan {
  std::uint32_t number = 0;  // 0, 1, ... in the order of sending
  std::uint64_t position_begin = 0;
  std::uint64_t position_end = 0;
  std::uint32_t region_begin = 0;  // kv regions, a half-open range
  std::uint32_t region_end = 0;
  bool last = false;  // aux and state come with it, and no chunk has a higher number
  friend bool operator==(const ChunkSpan&, const ChunkSpan&) = default;
};
struct Inline {  // prefill -> decode, a chunk with its bytes in the frame's payload: kv regions in order, then aux,
                 // state
  TransferId transfer{};
  ChunkSpan span{};
  friend bool operator==(const Inline&, const Inline&) = default;
};
struct Offer {  // prefill -> decode: a chunk to be pulled
  TransferId transfer{};
  ChunkSpan span{};
  std::vector<std::int32_t> pages{};  // items of the sender's kv regions, one a position
  std::int32_t aux_item = -1;
  std::vector<std::vector<std::int32_t>> state_items{};
  friend bool operator==(const Offer&, const Offer&) = default;
};
struct Landed {  // decode -> prefill: chunk `number`, not the last to be confirmed, is in place
  TransferId transfer{};
  std::uint32_t number = 0;
  friend bool operator==(const Landed&, const Landed&) = default;
};
struct Sum {  // prefill -> decode, where the grant wants it: the CRC32C of the CRC32Cs of all items that were sent, in
              // the order of components (kv, aux, state), regions, positions
  TransferId transfer{};
  std::uint32_t crc32c = 0;
  friend bool operator==(const Sum&, const Sum&) = default;
};
struct Confirm {  // decode -> prefill: every byte is in place, nothing of the sender is read any more
  TransferId transfer{};
  friend bool operator==(const Confirm&, const Confirm&) = default;
};
struct Abort {  // either way: the room has failed here; on the first message the other side fails too
  RoomId room{};
  TransferId transfer{};
  Code code = Code::aborted;
  std::string text{};
  friend bool operator==(const Abort&, const Abort&) = default;
};
struct Closed {  // decode -> prefill: the window is closed, nothing of the sender is read for this transfer any more
  TransferId transfer{};
  friend bool operator==(const Closed&, const Closed&) = default;
};
struct Queued {  // prefill -> decode: these rooms are alive but have sent nothing yet
  std::vector<TransferId> transfers{};
  friend bool operator==(const Queued&, const Queued&) = default;
};
struct Ping {
  std::uint64_t number = 0;
  friend bool operator==(const Ping&, const Ping&) = default;
};
struct Pong {
  std::uint64_t number = 0;
  friend bool operator==(const Pong&, const Pong&) = default;
};

using Message = std::variant<Hello, Challenge, Proof, Welcome, Ready, Linked, Refuse, Join, JoinChallenge, JoinProof,
                             Grant, Inline, Offer, Landed, Confirm, Abort, Closed, Queued, Ping, Pong, Sum>;

// The alternative's name, for logs: "Grant".
const char* message_name(const Message& message);

}  // namespace kvferry::protocol
