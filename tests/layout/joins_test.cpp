#include "layout/joins.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "page_lists.h"

namespace kvferry::layout {
namespace {

std::vector<std::uint64_t> words_of(FindJoins find, const PageLists& lists) {
  const std::size_t blocks = lists.source.empty() ? 0 : (lists.source.size() - 1) / join_block;
  std::vector<std::uint64_t> words(blocks);
  if (blocks > 0) find(lists.source.data(), lists.target.data(), blocks, words.data());
  return words;
}

TEST(joins, every_way_of_finding_them_finds_what_the_definition_says) {
  EXPECT_TRUE(rc::check("portable and AVX2 agree with joined()", [] {
    const PageLists lists = draw_lists(12);
    const std::vector<std::uint64_t> words = words_of(find_joins_portable, lists);
    for (std::size_t i = 0; i < words.size() * join_block; ++i) {
      const bool expected =
          joined(lists.source[i], lists.source[i + 1]) && joined(lists.target[i], lists.target[i + 1]);
      RC_ASSERT(((words[i / join_block] >> (i % join_block)) & 1) == (expected ? 1u : 0u));
    }
    if (can_avx2()) RC_ASSERT(words_of(find_joins_avx2, lists) == words);
    RC_ASSERT(words_of(find_joins(), lists) == words);
  }));
}

TEST(joins, nothing_is_read_past_the_lists) {
  // Exactly 64 b + 1 entries, so that the sanitizers see one entry too many.
  for (std::size_t blocks = 1; blocks <= 3; ++blocks) {
    PageLists lists;
    for (std::size_t i = 0; i <= blocks * join_block; ++i) lists.source.push_back(static_cast<std::int32_t>(i));
    lists.source.shrink_to_fit();
    lists.target = lists.source;
    lists.target.shrink_to_fit();
    EXPECT_EQ(words_of(find_joins(), lists), std::vector<std::uint64_t>(blocks, ~std::uint64_t{0}));
  }
}

TEST(joins, numbers_at_the_ends_of_their_range_do_not_overflow) {
  EXPECT_FALSE(joined(0, 0));
  EXPECT_TRUE(joined(2'147'483'646, 2'147'483'647));
  EXPECT_FALSE(joined(2'147'483'647, 0));
  EXPECT_FALSE(joined(0, -1));
}

}  // namespace
}  // namespace kvferry::layout
