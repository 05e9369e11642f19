// Requests for a chaos run without a trace: drawn from a seed, as conversations that come back longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/replay_trace.h"

namespace kvferry::tools {

// Lengths spread from a hundred to 60,000 tokens with most around 4,000; half of the requests go on with the blocks of
// an earlier one, and all begin with one common block where they are long enough to have it whole.
std::vector<TraceRequest> draw_requests(std::uint64_t seed, std::size_t count);

}  // namespace kvferry::tools
