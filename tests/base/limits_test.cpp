#include <gtest/gtest.h>

#include "base/limits_from.h"

namespace kvferry {
namespace {

using std::chrono::seconds;

TEST(limits, settings_that_nobody_touched_are_the_limits_that_nobody_touched) {
  const Limits set = limits_from(Settings{});
  const Limits bare;
  EXPECT_EQ(set.bootstrap_timeout, bare.bootstrap_timeout);
  EXPECT_EQ(set.send_timeout, bare.send_timeout);
  EXPECT_EQ(set.progress_timeout, bare.progress_timeout);
  EXPECT_EQ(set.waiting_timeout, bare.waiting_timeout);
  EXPECT_EQ(set.early_grant_ttl, bare.early_grant_ttl);
  EXPECT_EQ(set.ping_interval, bare.ping_interval);
  EXPECT_EQ(set.ping_misses_max, bare.ping_misses_max);
  EXPECT_EQ(set.queued_interval, bare.queued_interval);
  EXPECT_EQ(set.rooms_max, bare.rooms_max);
  EXPECT_EQ(set.orphan_grants_max, bare.orphan_grants_max);
  EXPECT_EQ(set.chunks_queued_max, bare.chunks_queued_max);
  EXPECT_EQ(set.inline_bytes_max, bare.inline_bytes_max);
}

TEST(limits, every_setting_reaches_its_limit) {
  Settings settings;
  settings.bootstrap_timeout = seconds(1);
  settings.send_timeout = seconds(2);
  settings.progress_timeout = seconds(3);
  settings.waiting_timeout = seconds(4);
  settings.ping_interval = seconds(5);
  settings.ping_misses_max = 6;
  settings.rooms_max = 7;
  settings.orphan_grants_max = 8;
  settings.chunks_queued_max = 9;
  settings.inline_bytes_max = 10;
  const Limits limits = limits_from(settings);
  EXPECT_EQ(limits.bootstrap_timeout, seconds(1));
  EXPECT_EQ(limits.early_grant_ttl, seconds(1));
  EXPECT_EQ(limits.send_timeout, seconds(2));
  EXPECT_EQ(limits.progress_timeout, seconds(3));
  EXPECT_EQ(limits.waiting_timeout, seconds(4));
  EXPECT_EQ(limits.ping_interval, seconds(5));
  EXPECT_EQ(limits.ping_misses_max, 6u);
  EXPECT_EQ(limits.rooms_max, 7u);
  EXPECT_EQ(limits.orphan_grants_max, 8u);
  EXPECT_EQ(limits.chunks_queued_max, 9u);
  EXPECT_EQ(limits.inline_bytes_max, 10u);
}

TEST(limits, queued_rooms_are_spoken_of_before_their_receivers_give_up) {
  Settings settings;
  settings.waiting_timeout = seconds(6);
  EXPECT_LE(limits_from(settings).queued_interval * 3, limits_from(settings).waiting_timeout);
}

}  // namespace
}  // namespace kvferry
