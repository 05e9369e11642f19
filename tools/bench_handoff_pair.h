// The decode process of `bench handoff` and `bench idle`, linked to its prefill process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/child.h"
#include "bench/memory.h"
#include "kvferry/kvferry.h"
#include "tools/bench_pair.h"

namespace kvferry::tools {

struct StreamResult {
  double seconds = 0;
  double cpu_seconds = 0;  // of both processes, all threads
};

// A resource: holds the manager, its memory and the bootstrap server. `child` outlives it.
class HandoffPair {
 public:
  static Result<HandoffPair> make(bench::Child& child, Way way);

  // `rooms` rooms of one page from the first to the last, `window` of them in flight on both sides.
  Result<StreamResult> stream(std::uint64_t rooms, std::uint64_t window);
  // One room at a time, the sender's side of which has sent already: microseconds from Receiver::init to Success.
  Result<std::vector<double>> lone_us(std::uint64_t rooms);
  // The epoll ping-pong between the same two processes.
  Result<std::vector<double>> ping_us(unsigned rounds);

 private:
  explicit HandoffPair(bench::Child& child) : child_(child) {}
  Result<double> lone_room_us(std::uint64_t room, std::int32_t page);
  Result<void> check(std::uint64_t room, std::int32_t page);

  bench::Child& child_;
  bench::Buffer memory_;
  std::optional<BootstrapServer> server_;
  std::optional<KvManager> manager_;
  std::string address_;
  std::uint64_t next_room_ = 1;
};

}  // namespace kvferry::tools
