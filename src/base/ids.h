// Strong ids: a room is not a transfer is not a session.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace kvferry {

template <class Tag>
struct Id {
  std::uint64_t value = 0;
  friend auto operator<=>(const Id&, const Id&) = default;
};

using RoomId = Id<struct RoomTag>;          // the load balancer's number of a request
using TransferId = Id<struct TransferTag>;  // one use of a room, drawn by the receiver
using SessionId = Id<struct SessionTag>;    // one live pairing of two incarnations; local to a manager, never reused
using LinkId = Id<struct LinkTag>;          // one control connection; local to a manager, never reused

// 128 random bits: a process start (incarnation), a stream secret, a nonce.
struct Bits128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const Bits128&, const Bits128&) = default;
};

struct Incarnation : Bits128 {
  friend auto operator<=>(const Incarnation&, const Incarnation&) = default;
};

// 32 hexadecimal digits.
std::string to_hex(const Bits128& bits);

}  // namespace kvferry
