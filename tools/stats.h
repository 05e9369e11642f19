// Percentiles of a list of samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace kvferry::tools {

// The smallest sample that at least `percent` of all samples do not exceed (nearest rank), so that the answer is always
// one that was measured. NaN where there are none. The list is taken by value because it is reordered.
inline double percentile(std::vector<double> samples, double percent) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  double rank = std::ceil(percent / 100.0 * static_cast<double>(samples.size()));
  auto index = static_cast<std::ptrdiff_t>(std::clamp(rank, 1.0, static_cast<double>(samples.size()))) - 1;
  std::nth_element(samples.begin(), samples.begin() + index, samples.end());
  return samples[static_cast<std::size_t>(index)];
}

}  // namespace kvferry::tools
