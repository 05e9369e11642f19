// Pages in use are never handed out twice, and prefixes are found by their tokens.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "engine/prefix_cache.h"

namespace kvferry::engine {
namespace {

TEST(PageAllocator, hands_out_each_page_once_and_takes_it_back_at_its_last_user) {
  PageAllocator pages(8, 7);
  const auto all = pages.allocate(8);
  ASSERT_TRUE(all);
  EXPECT_EQ(std::set<std::int32_t>(all->begin(), all->end()).size(), 8U);
  EXPECT_FALSE(pages.allocate(1));
  pages.retain(std::span(*all).first(1));
  pages.release(*all);
  EXPECT_EQ(pages.free_pages(), 7U);
  pages.release(std::span(*all).first(1));
  EXPECT_EQ(pages.free_pages(), 8U);
}

TEST(PrefixCache, finds_the_longest_known_prefix_of_whole_pages) {
  PageAllocator pages(8);
  PrefixCache cache(pages, 4);
  std::vector<std::int32_t> prompt(11);
  std::iota(prompt.begin(), prompt.end(), 0);
  const auto own = *pages.allocate(3);
  cache.insert(prompt, own);
  EXPECT_EQ(cache.size(), 2U);  // the third page is not whole
  auto longer = prompt;
  longer.push_back(99);
  EXPECT_EQ(cache.acquire(longer), (std::vector<std::int32_t>{own[0], own[1]}));
  longer[5] = 77;
  EXPECT_EQ(cache.acquire(longer), (std::vector<std::int32_t>{own[0]}));
}

TEST(PrefixCache, lets_go_of_what_no_request_uses_and_of_nothing_else) {
  PageAllocator pages(4);
  PrefixCache cache(pages, 2);
  const std::vector<std::int32_t> prompt{1, 2, 3, 4};
  const auto own = *pages.allocate(2);
  cache.insert(prompt, own);
  pages.release(own);
  const auto used = cache.acquire(std::vector<std::int32_t>{1, 2});
  cache.make_room(4);
  EXPECT_EQ(pages.free_pages(), 3U);
  EXPECT_EQ(pages.users(used.front()), 2U);
}

}  // namespace
}  // namespace kvferry::engine
