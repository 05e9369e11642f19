// A chaos run: rooms without pause between real processes, while a drawn list of faults is carried out on them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/chaos_cluster.h"
#include "tools/chaos_faults.h"
#include "tools/chaos_ledger.h"
#include "tools/replay_trace.h"

namespace kvferry::tools {

struct ChaosPlan {
  ClusterPlan cluster{};
  FaultPlan faults{};
  std::size_t window = 16;  // rooms in flight a decode worker
};

// Memory of a worker that was never killed.
struct Survivor {
  std::string name;
  std::uint64_t resident_before = 0;
  std::uint64_t resident_after = 0;
  double growth_percent() const {
    if (resident_before == 0) return 0;
    return 100 * (static_cast<double>(resident_after) / static_cast<double>(resident_before) - 1);
  }
};

struct ChaosResult {
  std::vector<std::string> workers;  // names, prefill first
  ChaosTotals totals;
  std::vector<FaultRecord> faults;
  std::vector<std::uint64_t> bytes_by_bucket;
  double bucket_s = 0;
  double seconds = 0;              // until the last room ended
  std::uint64_t rooms_before = 0;  // that had ended when the survivors were measured first
  std::vector<Survivor> survivors;
  std::vector<std::string> complaints;
  std::vector<std::string> left_out;  // faults that could not be carried out, in words
};

// Errors only where no processes can be had. `network` is there where faults that need one are in the plan.
// `progress` is told the seconds that have passed.
Result<ChaosResult> run_chaos(const ChaosPlan& plan, ChaosNetwork* network, const std::vector<TraceRequest>& requests,
                              const std::function<void(double, const ChaosTotals&)>& progress);

}  // namespace kvferry::tools
