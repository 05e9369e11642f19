#include "base/ids.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <type_traits>

namespace kvferry {
namespace {

template <class A, class B>
constexpr bool comparable = requires(A a, B b) {
  a == b;
};

TEST(ids, one_kind_of_id_cannot_stand_for_another) {
  static_assert(!std::is_convertible_v<RoomId, TransferId>);
  static_assert(!std::is_convertible_v<SessionId, LinkId>);
  static_assert(!std::is_convertible_v<std::uint64_t, RoomId>);
  static_assert(!comparable<RoomId, TransferId>);
  static_assert(comparable<RoomId, RoomId>);
  static_assert(sizeof(RoomId) == sizeof(std::uint64_t), "an id costs what its number costs");
}

TEST(ids, order_and_equality_are_those_of_the_numbers) {
  EXPECT_TRUE(rc::check("ids compare as their values", [](std::uint64_t a, std::uint64_t b) {
    RC_ASSERT((RoomId{a} == RoomId{b}) == (a == b));
    RC_ASSERT((RoomId{a} < RoomId{b}) == (a < b));
  }));
}

TEST(ids, incarnations_compare_whole) {
  Incarnation one;
  one.high = 7;
  one.low = 1;
  Incarnation other = one;
  EXPECT_EQ(one, other);
  other.low = 2;
  EXPECT_NE(one, other);
  EXPECT_LT(one, other);
  other.high = 6;
  EXPECT_LT(other, one);
}

TEST(ids, hexadecimal_digits_name_every_bit) {
  EXPECT_EQ(to_hex({0x0123456789abcdef, 0xfedcba9876543210}), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(to_hex({}), std::string(32, '0'));
  EXPECT_TRUE(rc::check("to_hex reads back", [](std::uint64_t high, std::uint64_t low) {
    const std::string text = to_hex({high, low});
    RC_ASSERT(text.size() == 32u);
    RC_ASSERT(std::stoull(text.substr(0, 16), nullptr, 16) == high);
    RC_ASSERT(std::stoull(text.substr(16), nullptr, 16) == low);
  }));
}

}  // namespace
}  // namespace kvferry
