#include "layout/covered.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

namespace kvferry::layout {
namespace {

Range draw_range() {
  const auto begin = *rc::gen::inRange<std::uint64_t>(0, 6);
  return {begin, begin + *rc::gen::inRange<std::uint64_t>(0, 4)};
}

RC_GTEST_PROP(covered, agrees_with_a_set_of_all_pairs, ()) {
  Covered covered;
  std::set<std::pair<std::uint64_t, std::uint64_t>> model;  // region, position
  for (int step = 0; step < 20; ++step) {
    const Range positions = draw_range();
    const Range regions = draw_range();
    bool meets = false;
    for (std::uint64_t r = regions.begin; r < regions.end; ++r) {
      for (std::uint64_t p = positions.begin; p < positions.end; ++p) meets = meets || model.contains({r, p});
    }
    RC_ASSERT(covered.meets(positions, regions) == meets);
    if (meets) continue;
    covered.add(positions, regions);
    for (std::uint64_t r = regions.begin; r < regions.end; ++r) {
      for (std::uint64_t p = positions.begin; p < positions.end; ++p) model.insert({r, p});
    }
    RC_ASSERT(covered.area() == model.size());
    const Range asked = draw_range();
    std::uint64_t end = 0;
    for (const auto& [region, position] : model) {
      if (region >= asked.begin && region < asked.end) end = std::max(end, position + 1);
    }
    RC_ASSERT(covered.end_of(asked) == end);
  }
}

TEST(covered, what_comes_page_by_page_or_layer_by_layer_is_found_whole_again) {
  Covered covered;
  for (std::uint64_t page = 0; page < 50; ++page) {
    for (std::uint64_t layer = 0; layer < 8; ++layer) covered.add({page, page + 1}, {layer, layer + 1});
  }
  EXPECT_EQ(covered.area(), 400u);
  EXPECT_TRUE(covered.meets({49, 50}, {7, 8}));
  EXPECT_FALSE(covered.meets({50, 51}, every_layer));
  EXPECT_FALSE(covered.meets({0, 0}, every_layer)) << "nothing meets nothing";
}

}  // namespace
}  // namespace kvferry::layout
