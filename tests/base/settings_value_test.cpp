#include "base/settings_value.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

namespace kvferry {
namespace {

using std::chrono::milliseconds;

TEST(settings_value, durations_are_seconds_or_carry_their_unit) {
  EXPECT_EQ(parse_duration("30"), milliseconds(30'000));
  EXPECT_EQ(parse_duration("1.5"), milliseconds(1'500));
  EXPECT_EQ(parse_duration("200ms"), milliseconds(200));
  EXPECT_EQ(parse_duration("5s"), milliseconds(5'000));
  EXPECT_EQ(parse_duration("2m"), milliseconds(120'000));
  EXPECT_EQ(parse_duration("1h"), milliseconds(3'600'000));
  EXPECT_EQ(parse_duration("0.0015"), milliseconds(2));
  EXPECT_EQ(parse_duration("0"), milliseconds(0));
}

TEST(settings_value, what_is_no_duration_is_refused) {
  for (const char* text :
       {"",    "s",   "ms",   "-1",  "+1",   " 1",  "1 ", "1 s",  "1d",    "1S",
        "inf", "nan", "infs", "1e3", "0x10", "1,5", ".5", "1..5", "1e400", "99999999999999999999999h"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
}

TEST(settings_value, a_printed_duration_is_read_back) {
  EXPECT_TRUE(rc::check("parse_duration(duration_text(d)) == d", [] {
    const milliseconds duration(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000));
    RC_ASSERT(parse_duration(duration_text(duration)) == duration);
  }));
}

TEST(settings_value, counts_are_digits_and_nothing_else) {
  EXPECT_TRUE(rc::check("parse_count(to_string(n)) == n",
                        [](std::uint64_t n) { RC_ASSERT(parse_count(std::to_string(n)) == n); }));
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "1k", "18446744073709551616"}) {
    EXPECT_FALSE(parse_count(text)) << text;
  }
}

TEST(settings_value, words_for_yes_no_and_transports_are_taken_in_any_case) {
  EXPECT_EQ(parse_bool("YES"), true);
  EXPECT_EQ(parse_bool("1"), true);
  EXPECT_EQ(parse_bool("Off"), false);
  EXPECT_FALSE(parse_bool("2"));
  EXPECT_FALSE(parse_bool(""));
  EXPECT_EQ(parse_transport("TCP"), Transport::tcp);
  EXPECT_EQ(parse_transport("auto"), Transport::automatic);
  EXPECT_EQ(parse_transport("samehost"), Transport::samehost);
  EXPECT_FALSE(parse_transport("rdma"));
}

}  // namespace
}  // namespace kvferry
