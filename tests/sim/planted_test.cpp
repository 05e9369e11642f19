// The checkers can see: each real mistake that the world makes on purpose is found within a few hundred seeds.
#include <gtest/gtest.h>

#include <cstdio>

#include "sim/options.h"
#include "sim/shrink.h"

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
    if (options.plant == Plant::unfair_queue) options.rooms = 200;  // it shows where many wait
    const SimResult result = run(options);
    if (result.ok) continue;
    std::printf("%s: found by seed %llu: %s\n", plant_name(options.plant), static_cast<unsigned long long>(seed),
                result.violation.c_str());
    return;
  }
  FAIL() << plant_name(options.plant) << " went unnoticed in " << seeds_max << " seeds";
}

TEST(planted, with_the_end_to_end_check_flipped_bits_are_never_a_success) {
  std::uint64_t corrupt = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const SimResult result = run({.seed = seed, .plant = Plant::bits_flipped, .verify = true});
    ASSERT_EQ(result.violation.find("is wrong"), std::string::npos) << result.violation;
    if (result.violation.find("the checksum of what prefill sent") != std::string::npos) ++corrupt;
  }
  EXPECT_GT(corrupt, 20U);
}

TEST(planted, what_a_violation_does_not_need_is_left_out) {
  SimOptions options;
  options.plant = Plant::aux_forgotten;
  while (run(options).ok) ++options.seed;
  const Shrunk shrunk = shrink(options);
  EXPECT_FALSE(shrunk.result.ok);
  EXPECT_GE(shrunk.options.without_requests.size(), options.rooms - 1);  // one room with an aux record shows it
  EXPECT_NE(shrunk.result.story.find("VIOLATION"), std::string::npos);
  EXPECT_NE(shrunk.result.story.find("--without-requests"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(all, Planted, testing::ValuesIn(planted),
                         [](const auto& plant) { return std::string(plant_name(plant.param)); });

}  // namespace
