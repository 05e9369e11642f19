// The load balancer of a replay: starts the workers, gives every request a room on one prefill and one decode process,
// and hears how it ended on both.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvferry/kvferry.h"
#include "tools/process.h"
#include "tools/replay_messages.h"
#include "tools/replay_model.h"
#include "tools/replay_trace.h"

namespace kvferry::tools {

struct ReplayPlan {
  unsigned prefill = 2;
  unsigned decode = 2;
  double speed = 0;  // 1 replays the trace's own pace; 0 as fast as pages allow
  ModelShape model{};
  std::uint32_t page_tokens = 16;
  std::uint64_t memory_bytes = 0;  // of all workers together
  std::uint64_t window = 16;       // rooms in flight a decode worker
  std::string transport = "auto";

  // A third of the memory computes, two thirds decode and keep prefixes.
  std::uint64_t prefill_pages() const { return memory_bytes / 3 / prefill / page_bytes(); }
  std::uint64_t decode_pages() const { return memory_bytes / 3 * 2 / decode / page_bytes(); }
  std::uint64_t page_bytes() const { return model.token_bytes() * page_tokens; }
};

struct ReplayResult {
  std::uint64_t rooms = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t wrong = 0;  // rooms that said success and held a wrong byte
  std::uint64_t bytes = 0;
  std::uint64_t tokens = 0;
  std::uint64_t prefix_tokens = 0;  // that decode held already
  double seconds = 0;               // from the first room to the end of the last
  std::vector<double> handoff_us{};
  std::vector<std::string> reasons{};  // of the first failures
};

// A resource: owns the worker processes and the bootstrap servers. One thread.
class ReplayBalancer {
 public:
  // Starts everything and waits until each worker is ready.
  static Result<ReplayBalancer> start(const ReplayPlan& plan);
  // Runs all requests to their end; `progress` is told how many rooms ended. A worker that ends or falls silent for two
  // minutes is an error.
  Result<ReplayResult> run(const std::vector<TraceRequest>& requests,
                           const std::function<void(std::uint64_t)>& progress);

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    Child child;
    std::string bootstrap{};  // prefill: of its instance
    std::uint64_t tokens_in_flight = 0;
    std::uint64_t rooms_in_flight = 0;
  };
  struct Room {
    const TraceRequest* request = nullptr;
    std::size_t prefill = 0;
    std::size_t decode = 0;
    int reports = 0;
    std::string error{};
    RoomOutcome decoded{};
  };

  explicit ReplayBalancer(const ReplayPlan& plan) : plan_(plan) {}
  Result<void> start_worker(Role role, std::uint64_t seed);
  Result<void> dispatch(const TraceRequest& request);
  std::size_t choose_decode(const TraceRequest& request) const;
  bool due(const TraceRequest& request) const;
  bool window_open() const;
  Result<void> wait(const TraceRequest* next);
  Result<void> hear(Worker& worker);
  void settle(Room& room);

  ReplayPlan plan_;
  std::vector<BootstrapServer> servers_;
  std::vector<Worker> prefills_;
  std::vector<Worker> decodes_;
  std::unordered_map<std::uint64_t, Room> rooms_;               // in flight
  std::unordered_map<std::uint64_t, std::size_t> block_owner_;  // the decode worker that got a block last
  std::uint64_t next_room_ = 1;
  Clock::time_point started_{};
  Clock::time_point heard_{};
  ReplayResult result_;
};

}  // namespace kvferry::tools
