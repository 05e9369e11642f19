#include "tools/replay_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

namespace kvferry::tools {
namespace {

using Hashes = std::vector<std::uint64_t>;

// A cache of eight pages with blocks of two, filled with the given blocks, oldest first.
BlockCache cache_with(const Hashes& hashes) {
  BlockCache cache(8, 1);
  for (std::uint64_t hash : hashes) {
    auto pages = cache.allocate(2);
    cache.keep(hash, *pages);
  }
  return cache;
}

TEST(BlockCache, every_page_is_handed_out_once) {
  BlockCache cache(8, 1);
  auto pages = cache.allocate(8);
  ASSERT_TRUE(pages);
  EXPECT_EQ(std::set<std::int32_t>(pages->begin(), pages->end()).size(), 8u);
  EXPECT_EQ(std::ranges::max(*pages), 7);
  EXPECT_FALSE(cache.allocate(1));
  EXPECT_TRUE(cache.allocate(0));
  cache.release(*pages);
  EXPECT_EQ(cache.free_pages(), 8u);
}

TEST(BlockCache, the_longest_cached_prefix_is_pinned) {
  BlockCache cache = cache_with({1, 2, 4});
  EXPECT_EQ(cache.pin_prefix(Hashes{1, 2, 3, 4}), 2u);
  EXPECT_EQ(cache.pin_prefix(Hashes{3, 1}), 0u);
  EXPECT_EQ(cache.pin_prefix(Hashes{}), 0u);
}

TEST(BlockCache, the_least_recently_used_block_goes_first) {
  BlockCache cache = cache_with({1, 2, 3});
  const Hashes used{1};
  cache.unpin(std::span(used).first(cache.pin_prefix(used)));
  ASSERT_TRUE(cache.allocate(4));  // two are free, block 2 gives the other two
  EXPECT_TRUE(cache.pages_of(2).empty());
  EXPECT_FALSE(cache.pages_of(1).empty());
  EXPECT_FALSE(cache.pages_of(3).empty());
}

TEST(BlockCache, pinned_blocks_stay_until_the_last_pin_is_gone) {
  BlockCache cache = cache_with({1, 2, 3, 4});
  const Hashes all{1, 2, 3, 4};
  ASSERT_EQ(cache.pin_prefix(all), 4u);
  ASSERT_EQ(cache.pin_prefix(all), 4u);
  EXPECT_FALSE(cache.allocate(1));
  cache.unpin(all);
  EXPECT_FALSE(cache.allocate(1));
  cache.unpin(all);
  EXPECT_TRUE(cache.allocate(8));
  EXPECT_EQ(cache.blocks(), 0u);
}

TEST(BlockCache, the_end_of_a_prefix_goes_before_its_start) {
  BlockCache cache = cache_with({1, 2, 3, 4});
  const Hashes all{1, 2, 3, 4};
  cache.pin_prefix(all);
  cache.unpin(all);
  ASSERT_TRUE(cache.allocate(4));
  EXPECT_EQ(cache.pin_prefix(all), 2u);
}

TEST(BlockCache, a_block_that_came_twice_is_kept_once) {
  BlockCache cache = cache_with({1});
  auto again = cache.allocate(2);
  cache.keep(1, *again);
  EXPECT_EQ(cache.blocks(), 1u);
  EXPECT_EQ(cache.free_pages(), 6u);
  EXPECT_EQ(cache.pages_of(1).size(), 2u);
}

TEST(BlockCache, a_refused_allocation_takes_nothing) {
  BlockCache cache = cache_with({1, 2});
  EXPECT_FALSE(cache.allocate(9));
  EXPECT_EQ(cache.free_pages(), 4u);
  EXPECT_EQ(cache.blocks(), 2u);
}

}  // namespace
}  // namespace kvferry::tools
