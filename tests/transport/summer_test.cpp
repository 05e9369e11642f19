#include "transport/summer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/crc32c.h"
#include "layout/pages.h"
#include "support.h"

namespace kvferry::transport {
namespace {

constexpr SessionId session{1};
constexpr TransferId transfer{7};

core::SumOrder order_of(std::vector<std::int32_t> kv) {
  return {session, transfer, {{layout::component_kv, std::move(kv)}, {layout::component_aux, {2}}}};
}

// Seven items a list: two rounds of three at once and one alone.
struct SumOf : ::testing::Test {
  SumOf() {
    for (auto& buffer : here.buffers)
      std::iota(reinterpret_cast<char*>(buffer.data()), reinterpret_cast<char*>(buffer.data() + buffer.size()), '\3');
    there.buffers = here.buffers;
  }
  TestMemory here{8, {24, 40}, {16}};
  TestMemory there{8, {24, 40}, {16}};
  const std::vector<std::int32_t> pages{0, 1, 2, 3, 4, 5, 6};
};

TEST_F(SumOf, is_the_crc_of_the_crcs_of_the_items_in_order) {
  std::uint32_t expected = 0;
  const auto add = [&](const Region& region, std::int32_t item) {
    const auto* at = static_cast<const std::byte*>(region.base) + static_cast<std::size_t>(item) * region.item_bytes;
    const std::uint32_t crc = crc32c({at, region.item_bytes});
    expected = crc32c(std::as_bytes(std::span(&crc, 1)), expected);
  };
  for (const Region& region : here.memory.kv) {
    for (const std::int32_t page : pages) add(region, page);
  }
  add(here.memory.aux[0], 2);
  EXPECT_EQ(sum_of(layout::View::of(here.memory), order_of(pages)), expected);
}

TEST_F(SumOf, does_not_mind_where_the_pages_lie_and_sees_one_bit_and_one_swap) {
  const std::vector<std::int32_t> elsewhere{6, 5, 4, 3, 2, 1, 0};
  for (std::size_t r = 0; r < 2; ++r) {
    const std::size_t bytes = here.memory.kv[r].item_bytes;
    for (std::size_t i = 0; i < 7; ++i) {
      std::memcpy(static_cast<std::byte*>(there.memory.kv[r].base) + (6 - i) * bytes,
                  static_cast<const std::byte*>(here.memory.kv[r].base) + i * bytes, bytes);
    }
  }
  const std::uint32_t sum = sum_of(layout::View::of(here.memory), order_of(pages));
  EXPECT_EQ(sum_of(layout::View::of(there.memory), order_of(elsewhere)), sum);
  EXPECT_NE(sum_of(layout::View::of(there.memory), order_of({5, 6, 4, 3, 2, 1, 0})), sum);
  static_cast<char*>(there.memory.kv[1].base)[17] ^= 1;
  EXPECT_NE(sum_of(layout::View::of(there.memory), order_of(elsewhere)), sum);
}

TEST_F(SumOf, orders_are_answered_one_by_one_and_what_waits_goes_with_the_summer) {
  TestSink sink;
  {
    const auto view = std::make_shared<const layout::View>(layout::View::of(here.memory));
    Summer summer(sink);
    for (int i = 0; i < 3; ++i) {
      summer.sum(order_of(pages), view);
      const auto summed = sink.wait<core::Summed>(transfer);
      ASSERT_TRUE(summed);
      EXPECT_EQ(summed->session, session);
      EXPECT_EQ(summed->crc32c, sum_of(layout::View::of(here.memory), order_of(pages)));
    }
    for (int i = 0; i < 100; ++i) summer.sum(order_of(pages), view);
  }
  EXPECT_LE(sink.count<core::Summed>(), 100U);
}

}  // namespace
}  // namespace kvferry::transport
