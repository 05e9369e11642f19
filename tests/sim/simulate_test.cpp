// The cores under trouble drawn from seeds; what must always hold is checked at every step.
#include <gtest/gtest.h>

#include "sim/options.h"
#include "thorough.h"

namespace {

using namespace kvferry::sim;

constexpr std::uint64_t seeds = thorough ? 3000 : 300;

TEST(simulate, what_must_hold_holds_under_all_kinds_of_trouble) {
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimOptions options;
    options.seed = seed;
    options.prefill = 1 + static_cast<std::uint32_t>(seed % 3);
    options.decode = 1 + static_cast<std::uint32_t>(seed / 3 % 3);
    const SimResult result = run_checked(options);
    ASSERT_TRUE(result.ok) << result.violation << "\n" << result.story;
    succeeded += result.rooms_succeeded;
    failed += result.rooms_failed;
  }
  // Trouble that lets nothing succeed, or nothing fail, would show nothing.
  EXPECT_GT(succeeded, seeds * 10);
  EXPECT_GT(failed, seeds * 2);
}

TEST(simulate, a_seed_decides_everything) {
  SimOptions options;
  options.seed = 7;
  const SimResult first = run(options);
  const SimResult second = run(options);
  EXPECT_EQ(first.trace_hash, second.trace_hash);
  EXPECT_EQ(first.steps, second.steps);
  options.seed = 8;
  EXPECT_NE(run(options).trace_hash, first.trace_hash);
}

TEST(simulate, the_story_does_not_change_what_happens) {
  SimOptions options;
  options.seed = 7;
  const SimResult plain = run(options);
  options.story = true;
  EXPECT_EQ(run(options).trace_hash, plain.trace_hash);
}

}  // namespace
