// PeerHealth and Timers: the two that count time.
#include <gtest/gtest.h>

#include "core/peer_health.h"
#include "core/timers.h"

namespace {

using kvferry::Instant;
using kvferry::Limits;
using kvferry::core::PeerHealth;
using kvferry::core::Timers;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = PeerHealth::Verdict;

constexpr Instant start{seconds(100)};

Limits three_misses() {
  Limits limits;
  limits.ping_interval = seconds(1);
  limits.ping_misses_max = 3;
  return limits;
}

TEST(peer_health, asks_once_an_interval_and_declares_death_after_the_misses) {
  PeerHealth health(three_misses(), start);
  EXPECT_EQ(health.next(), start + seconds(1));
  EXPECT_EQ(health.on_time(start + milliseconds(999)), Verdict::alive);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(health.on_time(start + seconds(i)), Verdict::ask);
    EXPECT_EQ(health.number(), static_cast<std::uint64_t>(i));
  }
  EXPECT_EQ(health.on_time(start + milliseconds(3999)), Verdict::alive);
  EXPECT_EQ(health.on_time(start + seconds(4)), Verdict::dead);
}

TEST(peer_health, any_sign_of_life_starts_the_count_anew) {
  PeerHealth health(three_misses(), start);
  for (int i = 1; i <= 3; ++i) health.on_time(start + seconds(i));
  health.heard();
  EXPECT_EQ(health.misses(), 0u);
  for (int i = 4; i <= 6; ++i) EXPECT_EQ(health.on_time(start + seconds(i)), Verdict::ask);
  EXPECT_EQ(health.on_time(start + seconds(7)), Verdict::dead);
}

TEST(peer_health, who_wakes_late_asks_before_it_judges) {
  PeerHealth health(three_misses(), start);
  for (int i = 1; i <= 3; ++i) health.on_time(start + seconds(i));
  EXPECT_EQ(health.on_time(start + seconds(60)), Verdict::ask);
  EXPECT_EQ(health.next(), start + seconds(61));
  EXPECT_EQ(health.on_time(start + seconds(61)), Verdict::dead) << "asked, and nothing was said since";
}

TEST(peer_health, at_least_one_ping_is_asked_before_death) {
  Limits limits = three_misses();
  limits.ping_misses_max = 0;
  PeerHealth health(limits, start);
  EXPECT_EQ(health.on_time(start + seconds(1)), Verdict::ask);
  EXPECT_EQ(health.on_time(start + seconds(2)), Verdict::dead);
}

TEST(timers, gives_what_is_due_the_earliest_first) {
  Timers<int> timers;
  EXPECT_EQ(timers.next(), Instant::max());
  timers.set(1, start + seconds(3));
  timers.set(2, start + seconds(1));
  timers.set(3, start + seconds(2));
  EXPECT_EQ(timers.next(), start + seconds(1));
  EXPECT_EQ(timers.pop_due(start), std::nullopt);
  EXPECT_EQ(timers.pop_due(start + seconds(2)), 2);
  EXPECT_EQ(timers.pop_due(start + seconds(2)), 3);
  EXPECT_EQ(timers.pop_due(start + seconds(2)), std::nullopt);
  EXPECT_FALSE(timers.empty());
}

TEST(timers, a_key_has_one_deadline) {
  Timers<int> timers;
  timers.set(1, start + seconds(3));
  timers.set(1, start + seconds(1));
  EXPECT_EQ(timers.next(), start + seconds(1));
  timers.set(1, start + seconds(5));
  EXPECT_EQ(timers.pop_due(start + seconds(4)), std::nullopt);
  timers.erase(1);
  timers.erase(1);
  EXPECT_TRUE(timers.empty());
}

}  // namespace
