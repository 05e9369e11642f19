#include "tools/chaos_load.h"

#include <algorithm>
#include <random>

namespace kvferry::tools {

std::vector<TraceRequest> draw_requests(std::uint64_t seed, std::size_t count) {
  constexpr std::uint64_t common_block = 0;
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> length(8.3, 1.2);  // its median is 4,024
  std::uint64_t next_block = 1;
  std::vector<TraceRequest> requests;
  for (std::size_t i = 0; i < count; ++i) {
    TraceRequest request{.line = i + 1};
    request.input_tokens = static_cast<std::uint64_t>(std::clamp(length(random), 100.0, 60'000.0));
    const std::size_t blocks = (request.input_tokens + trace_block_tokens - 1) / trace_block_tokens;
    if (!requests.empty() && random() % 2 == 0) request.hash_ids = requests[random() % requests.size()].hash_ids;
    // The last block of the earlier one may have been a part of one, and stands for other tokens here.
    if (request.hash_ids.size() > 1) request.hash_ids.pop_back();
    if (request.hash_ids.empty()) request.hash_ids.push_back(common_block);
    request.hash_ids.resize(std::min(blocks, request.hash_ids.size()));
    while (request.hash_ids.size() < blocks) request.hash_ids.push_back(next_block++);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace kvferry::tools
