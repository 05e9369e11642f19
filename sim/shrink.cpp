#include "sim/shrink.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace kvferry::sim {
namespace {

constexpr std::uint32_t faults_max = 12;  // that a seed draws

class Shrinker {
 public:
  Shrinker(SimOptions options, std::uint64_t tries_max) : best_(std::move(options)), tries_max_(tries_max) {}

  void leave_out(std::vector<std::uint32_t> SimOptions::*without, std::uint32_t count) {
    for (std::size_t size = count; size > 0; size /= 2) {
      std::vector<std::uint32_t> kept(count);
      std::iota(kept.begin(), kept.end(), 0u);
      std::erase_if(kept, [&](std::uint32_t i) { return std::ranges::count(best_.*without, i) > 0; });
      for (std::size_t begin = 0; begin < kept.size() && tried_ < tries_max_; begin += size) {
        SimOptions smaller = best_;
        const auto first = kept.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = kept.begin() + static_cast<std::ptrdiff_t>(std::min(kept.size(), begin + size));
        (smaller.*without).insert((smaller.*without).end(), first, last);
        std::ranges::sort(smaller.*without);
        ++tried_;
        if (!run(smaller).ok) best_ = std::move(smaller);
      }
    }
  }

  Shrunk finish() {
    best_.story = true;
    return {best_, run(best_), tried_};
  }

 private:
  SimOptions best_;
  const std::uint64_t tries_max_;
  std::uint64_t tried_ = 0;
};

}  // namespace

Shrunk shrink(const SimOptions& violating, std::uint64_t tries_max) {
  Shrinker shrinker(violating, tries_max);
  // Once the trouble is less, more requests may go, and the other way round.
  for (int round = 0; round < 2; ++round) {
    shrinker.leave_out(&SimOptions::without_requests, violating.rooms);
    shrinker.leave_out(&SimOptions::without_faults, faults_max);
  }
  return shrinker.finish();
}

}  // namespace kvferry::sim
