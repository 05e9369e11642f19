// The cores under trouble drawn from seeds; what must always hold is checked at every step.
#include <gtest/gtest.h>

#include "sim/options.h"
#include "thorough.h"

namespace {

using namespace kvferry::sim;

constexpr std::uint64_t small_seeds = thorough ? 1500 : 150;
constexpr std::uint64_t large_seeds = thorough ? 2000 : 20;

// Trouble that lets nothing succeed, or nothing fail, would show nothing.
struct Rooms {
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  void run(const SimOptions& options) {
    const SimResult result = run_checked(options);
    ASSERT_TRUE(result.ok) << result.violation << "\n" << result.story;
    succeeded += result.rooms_succeeded;
    failed += result.rooms_failed;
  }
};

TEST(simulate, what_must_hold_holds_with_few_peers_under_all_kinds_of_trouble) {
  Rooms rooms;
  for (std::uint64_t seed = 1; seed <= small_seeds; ++seed) {
    SimOptions options;
    options.seed = seed;
    options.prefill = 1 + static_cast<std::uint32_t>(seed % 3);
    options.decode = 1 + static_cast<std::uint32_t>(seed / 3 % 3);
    rooms.run(options);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(rooms.succeeded, small_seeds * 10);
  EXPECT_GT(rooms.failed, small_seeds * 2);
}

TEST(simulate, what_must_hold_holds_with_many_peers_under_all_kinds_of_trouble) {
  Rooms rooms;
  for (std::uint64_t seed = 1; seed <= large_seeds; ++seed) {
    rooms.run({.seed = seed, .prefill = 4, .decode = 4, .rooms = 200});
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(rooms.succeeded, large_seeds * 50);
  EXPECT_GT(rooms.failed, large_seeds * 10);
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

TEST(simulate, what_is_left_out_changes_nothing_else_that_is_drawn) {
  SimOptions options;
  options.seed = 7;
  const SimResult whole = run(options);
  options.without_requests = {1'000'000};
  EXPECT_EQ(run(options).trace_hash, whole.trace_hash);
  options.without_requests = {0};
  EXPECT_NE(run(options).trace_hash, whole.trace_hash);
}

TEST(simulate, only_the_kinds_of_trouble_that_are_named_happen) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const SimResult result = run({.seed = seed, .faults = {"abort"}});
    ASSERT_TRUE(result.ok) << result.violation;
    EXPECT_EQ(result.faults, 0U);
    EXPECT_EQ(result.swarm.find("kill"), std::string::npos);
  }
}

TEST(simulate, the_story_does_not_change_what_happens) {
  SimOptions options;
  options.seed = 7;
  const SimResult plain = run(options);
  options.story = true;
  EXPECT_EQ(run(options).trace_hash, plain.trace_hash);
}

}  // namespace
