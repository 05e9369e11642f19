// What the first rank of a split engine tells the others, and what they answer: frames on a socket between two
// processes of one build, so values travel as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/kv_cache.h"
#include "kvferry/kvferry.h"

namespace kvferry::engine {

// Tokens of one request to compute, from a position on.
struct Run {
  std::vector<std::int32_t> tokens{};
  std::uint32_t from = 0;
  std::vector<std::int32_t> pages{};  // of the request, from its first token on
};

namespace order {
struct Open {
  std::uint64_t key = 0;  // the engine's number of the request
  std::uint64_t room = 0;
  std::string bootstrap{};  // decode: of the prefill instance
};
struct Init {
  std::uint64_t key = 0;
  std::uint64_t num_pages = 0;        // prefill
  std::vector<std::int32_t> pages{};  // decode
  std::uint64_t prefix_pages = 0;     // decode
  std::int32_t aux = -1;
};
struct Send {
  std::uint64_t key = 0;
  std::vector<std::int32_t> pages{};
  bool last_layer = false;  // of the rank: the others have gone while they were computed
};
struct Abort {
  std::uint64_t key = 0;
  std::string reason{};
};
struct Forget {
  std::uint64_t key = 0;
};
struct Record {
  std::int32_t aux = -1;
  AuxRecord record{};
};
struct Compute {
  std::vector<Run> runs{};
  // Prefill: pages of a request that go layer by layer as these runs complete them; no key where nothing goes.
  std::optional<std::uint64_t> key{};
  std::vector<std::int32_t> pages{};
  bool hold_last_layer = false;
};
}  // namespace order
using RankOrder =
    std::variant<order::Open, order::Init, order::Send, order::Abort, order::Forget, order::Record, order::Compute>;

// How a room stands on one rank, or on all.
struct RoomView {
  Poll poll = Poll::bootstrapping;
  bool released = true;
  std::uint64_t prefix_pages = 0;
  std::uint64_t bytes = 0;
  Code code = Code::internal;  // where it failed
  std::string text{};
};

namespace answer {
struct Ready {
  std::string failed{};  // empty where the rank is ready
};
struct Room {
  std::uint64_t key = 0;
  RoomView view{};
};
struct Floats {  // of an exchange
  std::vector<float> values{};
};
}  // namespace answer
using RankAnswer = std::variant<answer::Ready, answer::Room, answer::Floats>;

// Frames over a stream socket that this object owns. Calls wait; false once the other end is gone.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Channel& operator=(Channel&&) = delete;

  int fd() const { return fd_; }
  bool send(const RankOrder& order) const;
  bool send(const RankAnswer& answer) const;
  bool send_floats(std::span<const float> values) const;
  std::optional<RankOrder> take_order() const;
  std::optional<RankAnswer> take_answer() const;
  bool take_floats(std::span<float> values) const;  // as many as were sent

 private:
  int fd_;
};

}  // namespace kvferry::engine
