#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "base/assert.h"
#include "base/codes.h"
#include "base/try.h"
#include "kvferry/result.h"

namespace kvferry {
namespace {

TEST(errors, every_code_has_one_name_and_a_meaning) {
  std::set<std::string> names;
  for (const CodeRow& row : codes) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(std::string(code_name(row.code)), row.name);
    EXPECT_FALSE(std::string(row.meaning).empty());
  }
  EXPECT_STREQ(code_name(static_cast<Code>(200)), "unknown");
}

TEST(errors, a_message_names_room_and_peer_where_there_are_any) {
  EXPECT_EQ((Error{Code::timeout, "late", {}, {}}.message()), "timeout: late");
  EXPECT_EQ((Error{Code::peer_lost, "gone", 7, "10.0.0.1:9000"}.message()),
            "room 7: peer 10.0.0.1:9000: peer_lost: gone");
}

TEST(errors, a_result_is_its_value_or_its_error) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(3));
  ASSERT_TRUE(good);
  EXPECT_EQ(**good, 3);
  const std::unique_ptr<int> taken = std::move(good).value();
  EXPECT_EQ(*taken, 3);
  const Result<int> bad(Error{Code::closed, "shut"});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::closed);
  EXPECT_THROW(static_cast<void>(bad.value()), std::bad_variant_access);
}

Result<int> half(int value) {
  if (value % 2 != 0) return Error{Code::invalid_argument, "odd"};
  return value / 2;
}
Result<int> quarter(int value) {
  KVF_TRY(first, half(value));
  KVF_TRY(second, half(first));
  return second;
}

TEST(errors, trying_binds_the_value_or_passes_the_error_up) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().text, "odd");
}

TEST(errors, a_broken_invariant_says_what_and_where) {
  try {
    KVF_ASSERT(1 + 1 == 3);
    FAIL() << "the assertion let it pass";
  } catch (const AssertionFailed& failed) {
    EXPECT_STREQ(failed.what, "1 + 1 == 3");
    EXPECT_GT(failed.line, 0);
  }
}

}  // namespace
}  // namespace kvferry
