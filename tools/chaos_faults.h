// The trouble of a chaos run, drawn from its seed alone: what, to whom, when and for how long. No clock, no processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvferry::tools {

enum class FaultKind : std::uint8_t {
  kill,       // SIGKILL, started again after a while
  stop,       // SIGSTOP for longer than its peers wait, then SIGCONT: it wakes up dead to them
  pause,      // SIGSTOP for less than that: nothing may fail
  cut,        // no packet reaches or leaves its network namespace, for longer than its peers wait
  delay,      // packets to its network namespace come late: nothing may fail
  bootstrap,  // a prefill instance's bootstrap server goes and comes back at the same address: nothing may fail
};
const char* fault_name(FaultKind kind);
std::optional<FaultKind> fault_named(std::string_view name);
std::string fault_names();

// Whether rooms with the worker may fail of it. All others may not.
inline bool may_fail_rooms(FaultKind kind) {
  return kind == FaultKind::kill || kind == FaultKind::stop || kind == FaultKind::cut;
}
inline bool needs_network(FaultKind kind) { return kind == FaultKind::cut || kind == FaultKind::delay; }

struct Fault {
  double at_s = 0;  // since the start of the run
  FaultKind kind = FaultKind::kill;
  std::size_t worker = 0;  // prefill workers first, then decode; bootstrap: the prefill worker that registers there
  double lasts_s = 0;
};

struct FaultPlan {
  std::uint64_t seed = 1;
  std::size_t prefill = 3;
  std::size_t decode = 3;
  double seconds = 20;
  double every_s = 1.5;      // from one fault to the next, on average
  double silence_max_s = 1;  // after which its peers give a worker up
  double settle_s = 1.5;     // calm of a worker after a fault
  std::vector<FaultKind> kinds;
};

// In the order of their times. A worker has one fault at a time, at most half of the workers of a role are in trouble
// at once, all trouble is over when the run ends, and the first worker of each role is never killed: it shows what a
// survivor's memory does.
std::vector<Fault> draw_faults(const FaultPlan& plan);

}  // namespace kvferry::tools
