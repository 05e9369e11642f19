// What `bench failover` measures, scenario by scenario.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench_failover_rig.h"

namespace kvferry::tools {

struct FailoverPlan {
  Way way = Way::samehost;
  std::size_t rooms = 32;
  unsigned kills = 20;
  unsigned big_kills = 5;
  unsigned forked_kills = 5;
  std::uint64_t big_bytes = std::uint64_t{2} << 30;
  unsigned stops = 3;
  Pings stop_pings{.interval = Settings::Millis{200}, .misses_max = 2};
  unsigned healthy_kills = 7;
  double window_seconds = 0.5;
  unsigned rejoins = 8;
  double absence_seconds_max = 1;
};

// One scenario over all of its repetitions.
struct Tally {
  unsigned times = 0;
  std::vector<double> failed_ms;
  std::vector<double> after_close_ms;
  std::size_t hung = 0;
  std::size_t wrong = 0;
  std::string reason;
  void add(const Loss& loss);
};

struct FailoverResult {
  Tally small;
  Tally big;
  Tally forked;
  Tally stopped;
  Tally healthy;  // the process that goes beside the healthy pairs
  Tally rejoined;
  std::vector<double> ratios;          // rooms of the healthy pairs in the window after a kill, over those before
  std::vector<double> rooms_per_s;     // of the healthy pairs before each kill
  std::uint64_t healthy_failures = 0;  // on either side
  std::vector<double> back_ms;         // from SIGCONT to a new room's success
  std::vector<double> rejoin_ms;       // from registration to the first success
  std::vector<double> absence_ms;      // of the process, one a rejoin_ms
  std::vector<std::string> problems;
};

struct FailoverRun {
  const FailoverPlan& plan;
  FailoverResult& result;
  std::function<void()> step;  // after each repetition
};

// Each has a decode manager, bootstrap servers and prefill processes of its own.
Result<void> measure_kills(const FailoverRun& run);
Result<void> measure_stops(const FailoverRun& run);
Result<void> measure_healthy(const FailoverRun& run);
Result<void> measure_rejoins(const FailoverRun& run);

}  // namespace kvferry::tools
