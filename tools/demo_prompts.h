// What the demo asks: prompts that share beginnings, so that decode engines find pages of earlier ones, and one that is
// asked twice, so that nothing is left to hand over but its aux record.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/balancer.h"

namespace kvferry::tools {

struct PromptPlan {
  std::size_t requests = 0;
  std::size_t prefills = 0;  // engines 0 ... prefills-1
  std::size_t decodes = 0;   // engines after them
  std::uint64_t seed = 0;
  std::uint32_t vocab = 0;
  std::uint32_t page_tokens = 0;
  std::size_t beginning_pages = 8;  // that prompts share
  std::size_t tail_tokens_max = 256;
};

struct DemoPrompts {
  std::vector<DemoRequest> requests;
  std::optional<std::size_t> repeated;  // the request whose prompt an earlier one had
};

// The same plan gives the same prompts. Pairs take turns, so that every pair of engines works together.
DemoPrompts make_prompts(const PromptPlan& plan);

// The same requests for one engine (index 0) that does both.
std::vector<DemoRequest> for_one_engine(std::vector<DemoRequest> requests);

}  // namespace kvferry::tools
