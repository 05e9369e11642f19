// Judges what became of the demo's requests and writes it into a report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/balancer.h"
#include "tools/report.h"

namespace kvferry::tools {

struct DemoResult {
  std::vector<std::string> engine_names;  // as DemoRequest counts them
  std::vector<DemoRequest> requests;
  std::vector<std::vector<std::int32_t>> expected;  // the one-process answers
  std::vector<Outcome> outcomes;
  std::vector<Notice> notices;
  std::vector<std::string> losses;
  std::optional<KillRecord> killed;
  bool kill_wanted = false;
  std::size_t prefill_open = 0;  // requests that decode ended and prefill did not
  std::optional<std::size_t> repeated;
};

// Good where no answer is wrong and none hangs, and every request is identical: those that needed a killed engine may
// fail instead, with a reason.
void judge(const DemoResult& result, Report& report);

}  // namespace kvferry::tools
