#include "layout/ranks.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace kvferry::layout {
namespace {

TEST(ranks, equal_sizes_feed_rank_by_rank) {
  EXPECT_TRUE(rc::check("one source, the same tp rank, the chosen group", [] {
    const auto tp = *rc::gen::inRange<std::uint32_t>(1, 65);
    const auto dp = *rc::gen::inRange<std::uint32_t>(1, 65);
    const auto rank = *rc::gen::inRange<std::uint32_t>(0, tp);
    const auto group = *rc::gen::inRange<std::uint32_t>(0, dp);
    const Parallel decode{.tp = tp, .dp = *rc::gen::inRange<std::uint32_t>(1, 65), .pp = 1};
    const auto feeding = feeding_ranks({.tp = tp, .dp = dp, .pp = 1}, decode, {.dp = 0, .tp = rank, .pp = 0}, group);
    RC_ASSERT(feeding.has_value());
    RC_ASSERT(feeding->sources == (std::vector<Place>{{.dp = group, .tp = rank, .pp = 0}}));
    RC_ASSERT(feeding->grants_awaited == 1u);
  }));
}

TEST(ranks, sizes_that_cannot_be_mapped_are_refused_with_both) {
  const auto refused = feeding_ranks({.tp = 4, .dp = 2, .pp = 1}, {.tp = 3, .dp = 5, .pp = 1}, {}, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::mismatch);
  EXPECT_NE(refused.error().text.find("tp 4 dp 2 pp 1 cp 1"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find("tp 3 dp 5 pp 1 cp 1"), std::string::npos) << refused.error().text;
  EXPECT_EQ(feeding_ranks({}, {.pp = 2}, {}, 0).error().code, Code::mismatch);
  EXPECT_EQ(feeding_ranks({.pp = 3}, {.pp = 2}, {}, 0).error().code, Code::mismatch);
  EXPECT_EQ(feeding_ranks({}, {.cp = 2}, {}, 0).error().code, Code::mismatch);
  EXPECT_EQ(feeding_ranks({.tp = 0, .dp = 1, .pp = 1}, {.tp = 0, .dp = 1, .pp = 1}, {}, 0).error().code,
            Code::mismatch);
}

TEST(ranks, a_place_or_group_that_is_not_there_is_refused) {
  EXPECT_EQ(feeding_ranks({}, {}, {.dp = 0, .tp = 1, .pp = 0}, 0).error().code, Code::invalid_argument);
  EXPECT_EQ(feeding_ranks({}, {}, {.dp = 0, .tp = 0, .pp = 1}, 0).error().code, Code::invalid_argument);
  EXPECT_EQ(feeding_ranks({}, {}, {}, 1).error().code, Code::out_of_range);
}

TEST(ranks, the_group_of_a_room_is_the_balancers_choice_or_the_remainder) {
  const std::uint32_t two = 2;
  const std::uint32_t three = 3;
  EXPECT_EQ(dp_group(7, 3, nullptr).value(), 1u);
  EXPECT_EQ(dp_group(~std::uint64_t{0}, 4, nullptr).value(), 3u);
  EXPECT_EQ(dp_group(7, 3, &two).value(), 2u);
  const auto outside = dp_group(7, 3, &three);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, Code::out_of_range);
  EXPECT_EQ(outside.error().text, "dp group 3 was chosen, the instance has 3 (0 to 2)");
  EXPECT_EQ(dp_group(7, 0, nullptr).error().code, Code::out_of_range);
}

}  // namespace
}  // namespace kvferry::layout
