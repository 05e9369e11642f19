// The checkers can see: each real mistake that the world makes on purpose is found within a few hundred seeds.
#include <gtest/gtest.h>

#include <cstdio>

#include "sim/options.h"

namespace {

using namespace kvferry::sim;

constexpr std::uint64_t seeds_max = 1000;

class Planted : public testing::TestWithParam<Plant> {};

TEST_P(Planted, is_found) {
  SimOptions options;
  options.plant = GetParam();
  for (std::uint64_t seed = 1; seed <= seeds_max; ++seed) {
    options.seed = seed;
    options.prefill = 1 + static_cast<std::uint32_t>(seed % 3);
    const SimResult result = run(options);
    if (result.ok) continue;
    std::printf("%s: found by seed %llu: %s\n", plant_name(options.plant), static_cast<unsigned long long>(seed),
                result.violation.c_str());
    return;
  }
  FAIL() << plant_name(options.plant) << " went unnoticed in " << seeds_max << " seeds";
}

INSTANTIATE_TEST_SUITE_P(all, Planted, testing::ValuesIn(planted),
                         [](const auto& plant) { return std::string(plant_name(plant.param)); });

}  // namespace
