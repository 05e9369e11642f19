#include "transport/fair_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace kvferry::transport {
namespace {

constexpr std::int64_t kib = 1024;

TEST(FairQueue, who_takes_less_than_its_budget_keeps_the_rest) {
  FairQueue<char> queue;
  queue.add('a');
  auto turn = queue.take();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->budget_bytes, quantum_bytes);
  queue.add('a', turn->budget_bytes - 1000 * kib);
  EXPECT_EQ(queue.take()->budget_bytes, quantum_bytes + 24 * kib);
}

TEST(FairQueue, who_took_more_than_its_budget_waits_until_it_is_paid_back) {
  FairQueue<char> queue;
  queue.add('a');
  queue.add('b');
  // a takes items of 3 MiB, b of 1 MiB: for each turn of a there are three of b.
  std::string order;
  for (int i = 0; i < 12; ++i) {
    const auto turn = queue.take();
    order += turn->key;
    queue.add(turn->key, turn->budget_bytes - (turn->key == 'a' ? 3 : 1) * quantum_bytes);
  }
  EXPECT_EQ(order, "abbbabbbabbb");
}

TEST(FairQueue, savings_are_bounded_by_one_quantum) {
  FairQueue<char> queue;
  queue.add('a', 100 * quantum_bytes);
  EXPECT_EQ(queue.take()->budget_bytes, 2 * quantum_bytes);
}

TEST(FairQueue, what_is_removed_has_no_turn) {
  FairQueue<char> queue;
  queue.add('a');
  queue.add('b');
  queue.remove('a');
  EXPECT_EQ(queue.take()->key, 'b');
  EXPECT_FALSE(queue.take());
}

}  // namespace
}  // namespace kvferry::transport
