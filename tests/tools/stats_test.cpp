#include "tools/stats.h"

#include <gtest/gtest.h>

namespace {

using kvferry::tools::percentile;

TEST(stats, a_percentile_is_a_sample_that_was_measured) {
  EXPECT_EQ(percentile({40, 10, 30, 20}, 50), 20);
  EXPECT_EQ(percentile({40, 10, 30, 20}, 51), 30);
  EXPECT_EQ(percentile({40, 10, 30, 20}, 99), 40);
  EXPECT_EQ(percentile({40, 10, 30, 20}, 0), 10);
  EXPECT_EQ(percentile({40, 10, 30, 20}, 100), 40);
  EXPECT_EQ(percentile({7}, 50), 7);
}

TEST(stats, no_samples_have_no_percentile) { EXPECT_TRUE(std::isnan(percentile({}, 50))); }

}  // namespace
