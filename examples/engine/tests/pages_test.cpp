// Pages have exactly the users that the books say, and prefixes are found by their tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/arithmetic.h"
#include "engine/page_allocator.h"
#include "engine/prefix_cache.h"

namespace {

using namespace kvferry::engine;

std::vector<std::int32_t> tokens(std::initializer_list<std::int32_t> values) { return values; }

TEST(page_allocator, hands_out_each_page_once_and_refuses_when_empty) {
  PageAllocator allocator(5);
  const auto some = allocator.allocate(3);
  const auto rest = allocator.allocate(2);
  ASSERT_TRUE(some && rest);
  std::set<std::int32_t> all(some->begin(), some->end());
  all.insert(rest->begin(), rest->end());
  EXPECT_EQ((std::set<std::int32_t>{0, 1, 2, 3, 4}), all);
  EXPECT_FALSE(allocator.allocate(1));
  EXPECT_TRUE(allocator.allocate(0));
  allocator.release(*some);
  EXPECT_EQ(3U, allocator.free_pages());
}

TEST(page_allocator, a_page_is_free_only_when_its_last_user_goes) {
  PageAllocator allocator(2);
  const auto page = *allocator.allocate(1);
  allocator.retain(page);
  allocator.release(page);
  EXPECT_EQ(1U, allocator.free_pages());
  allocator.release(page);
  EXPECT_EQ(2U, allocator.free_pages());
  EXPECT_DEATH(allocator.release(page), "not in use");
}

TEST(page_allocator, a_seed_scatters_the_pages_and_repeats) {
  PageAllocator one(64, 5);
  PageAllocator same(64, 5);
  const auto scattered = *one.allocate(64);
  EXPECT_EQ(scattered, *same.allocate(64));
  EXPECT_FALSE(std::is_sorted(scattered.begin(), scattered.end()));
}

TEST(prefix_cache, finds_whole_pages_only_and_shares_them) {
  PageAllocator allocator(8);
  PrefixCache cache(allocator, 2);
  const auto pages = *allocator.allocate(3);
  cache.insert(tokens({1, 2, 3, 4, 5}), pages);
  allocator.release(pages);
  EXPECT_EQ(2U, cache.size());
  EXPECT_EQ(6U, allocator.free_pages());
  EXPECT_EQ((std::vector{pages[0], pages[1]}), cache.acquire(tokens({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ((std::vector{pages[0]}), cache.acquire(tokens({1, 2, 3})));
  EXPECT_EQ((std::vector{pages[0]}), cache.acquire(tokens({1, 2, 9, 4})));
  EXPECT_TRUE(cache.acquire(tokens({3, 4})).empty());
  EXPECT_EQ(4U, allocator.users(pages[0]));
}

TEST(prefix_cache, a_second_copy_of_a_known_prefix_stays_its_owners) {
  PageAllocator allocator(8);
  PrefixCache cache(allocator, 2);
  const auto first = *allocator.allocate(1);
  const auto second = *allocator.allocate(2);
  cache.insert(tokens({1, 2}), first);
  cache.insert(tokens({1, 2, 3, 4}), second);
  EXPECT_EQ(1U, allocator.users(second[0]));
  EXPECT_EQ((std::vector{first[0], second[1]}), cache.acquire(tokens({1, 2, 3, 4})));
}

TEST(prefix_cache, makes_room_from_the_leaves_and_spares_what_is_in_use) {
  PageAllocator allocator(4);
  PrefixCache cache(allocator, 1);
  const auto pages = *allocator.allocate(4);
  cache.insert(tokens({1, 2}), std::vector{pages[0], pages[1]});
  cache.insert(tokens({7, 8}), std::vector{pages[2], pages[3]});
  allocator.release(pages);
  const auto used = cache.acquire(tokens({7}));
  cache.make_room(1);
  EXPECT_EQ(1U, cache.acquire(tokens({1, 2})).size());
  allocator.release(std::vector{pages[0]});
  cache.make_room(100);
  EXPECT_EQ(3U, allocator.free_pages());
  EXPECT_EQ(used, cache.acquire(tokens({7, 8})));
}

TEST(page_allocator, no_page_is_lost_in_a_long_random_life) {
  PageAllocator allocator(32, 1);
  PrefixCache cache(allocator, 2);
  Random random(9);
  std::vector<std::vector<std::int32_t>> live;
  for (int turn = 0; turn < 2000; ++turn) {
    if (!live.empty() && (random.below(2) == 0 || live.size() > 6)) {
      const std::size_t which = random.below(live.size());
      allocator.release(live[which]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    std::vector<std::int32_t> prompt(1 + random.below(12));
    for (auto& token : prompt) token = static_cast<std::int32_t>(random.below(2));
    auto pages = cache.acquire(prompt);
    const std::size_t missing = (prompt.size() + 1) / 2 - pages.size();
    cache.make_room(missing);
    const auto fresh = allocator.allocate(missing);
    if (!fresh) {
      allocator.release(pages);
      continue;
    }
    pages.insert(pages.end(), fresh->begin(), fresh->end());
    cache.insert(prompt, pages);
    live.push_back(pages);
  }
  for (const auto& pages : live) allocator.release(pages);
  cache.make_room(32);
  EXPECT_EQ(0U, cache.size());
  EXPECT_EQ(32U, allocator.free_pages());
}

}  // namespace
