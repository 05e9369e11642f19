// The load balancer of the demo: hands each request to one prefill and one decode engine at once, and keeps book of
// what became of it, also when an engine is killed on the way.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tools/engine_process.h"

namespace kvferry::tools {

struct DemoRequest {
  std::vector<std::int32_t> prompt;
  std::uint32_t max_tokens = 0;
  std::optional<std::size_t> prefill;  // engine index; none where the decode engine does both
  std::size_t decode = 0;
  std::optional<std::size_t> after;  // waits until that request has ended
};

// What became of one request; of its retry where it had one.
struct Outcome {
  enum class State { waiting, running, done, failed, hung };
  State state = State::waiting;
  EngineAnswer answer{};       // of the decode engine
  bool needed_killed = false;  // it was with the engine that was killed, at that moment
  bool retried = false;
};

// Somebody found out that a request cannot go on.
struct Notice {
  std::size_t request = 0;
  std::string by;            // the engine that said so, or "load balancer"
  std::optional<double> ms;  // after the kill; none where nobody was killed before
  std::string code;
  std::string error;
};

struct Kill {
  std::size_t engine = 0;
  std::size_t after_done = 0;  // answers that must be in
};

struct KillRecord {
  std::size_t engine = 0;
  pid_t pid = -1;
  std::string how{};                         // it ended, in words
  std::size_t answers = 0;                   // that were in
  std::size_t requests = 0;                  // that needed it
  std::chrono::steady_clock::time_point at;  // it was killed
  std::optional<double> ready_ms{};          // from there until its successor was ready
};

class Balancer {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    std::size_t in_flight_max = 4;              // requests with one decode engine
    std::chrono::milliseconds request{20'000};  // from hand-out to answer; then it counts as hung
    std::chrono::milliseconds ready{20'000};    // from start to ready
    // From a failure on the decode side until prefill is told to abort what it has not given up by itself: a decode
    // engine that died before its grant is one that prefill never heard of.
    std::chrono::milliseconds orphan{500};
    std::chrono::milliseconds farewell{3'000};  // for the last words of prefill engines after the last answer
  };

  // `engines` have been started and outlive the balancer.
  Balancer(std::vector<EngineProcess*> engines, std::vector<DemoRequest> requests, Limits limits);

  // Until every request has ended. Errors only where no engine can be started; lost engines and requests are outcomes.
  Result<void> run(const std::optional<Kill>& kill, const std::function<void(std::size_t ended)>& progress);

  const std::vector<Outcome>& outcomes() const { return outcomes_; }
  const std::vector<Notice>& notices() const { return notices_; }
  const std::optional<KillRecord>& killed() const { return killed_; }
  // Requests that their prefill engine has not concluded, though decode has.
  std::size_t prefill_open() const;
  // Engines that ended though nobody killed them, in words.
  const std::vector<std::string>& losses() const { return losses_; }

 private:
  struct Attempt {
    std::size_t request = 0;
    std::optional<std::size_t> prefill;
    std::size_t decode = 0;
    Clock::time_point deadline;
    bool ended = false;          // on the decode side, which decides
    bool prefill_ended = false;  // said done or failed, is gone, or there is none
    std::optional<Clock::time_point> abort_prefill_at{};
  };

  // balancer.cpp
  Result<void> wait_ready();
  bool may_hand_out(std::size_t index) const;
  void hand_out_all();
  void hand_out(std::size_t index);
  void wait_for_answers(std::chrono::milliseconds longest);
  void hear(std::size_t engine, EngineAnswer answer);
  void end(Attempt& attempt, Outcome::State state, EngineAnswer answer);
  void notice(const Attempt& attempt, std::string by, std::string code, std::string error);
  void check_deadlines();
  void abort_orphans(Clock::time_point now);

  // balancer_kill.cpp
  bool kill_is_due(const Kill& kill) const;
  bool needs(const Attempt& attempt, std::size_t engine) const;
  void carry_out(const Kill& kill);
  void lose(std::size_t index);
  void give_up_on(std::size_t index, const std::string& why);
  double ms_since_kill() const;

  std::vector<EngineProcess*> engines_;
  std::vector<DemoRequest> requests_;
  Limits limits_;
  std::vector<Outcome> outcomes_;
  std::vector<Attempt> attempts_;       // the id on the wire is the index; at most two a request
  std::vector<std::size_t> in_flight_;  // requests of each engine as decode
  std::vector<bool> lost_;              // engines that will not come back
  std::vector<Notice> notices_;
  std::vector<std::string> losses_;
  std::optional<KillRecord> killed_;
  std::size_t done_ = 0;
  std::size_t ended_ = 0;
  std::mt19937_64 rooms_;
};

}  // namespace kvferry::tools
