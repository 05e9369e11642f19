#include "tools/replay_content.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/crc32c.h"

namespace kvferry::tools {
namespace {

TEST(ItemContent, what_is_written_has_the_crc_that_is_expected) {
  for (std::size_t item_bytes : {40, 64, 4096, 18432}) {
    const ItemContent content(item_bytes);
    std::vector<std::byte> item(item_bytes);
    for (std::uint64_t hash : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      const ItemId id{.hash = hash, .page = 3, .region = 1};
      content.write(item.data(), id);
      EXPECT_EQ(crc32c(item), content.expected_crc(id));
    }
  }
}

TEST(ItemContent, two_processes_write_the_same_bytes) {
  const ItemContent ours(4096);
  const ItemContent theirs(4096);
  std::vector<std::byte> a(4096);
  std::vector<std::byte> b(4096);
  ours.write(a.data(), {.hash = 5, .page = 1, .region = 0});
  theirs.write(b.data(), {.hash = 5, .page = 1, .region = 0});
  EXPECT_EQ(a, b);
}

class ItemCheckOfSeven : public testing::Test {
 protected:
  static constexpr std::size_t item_bytes = 256;
  ItemCheckOfSeven() {
    for (std::uint32_t i = 0; i < 7; ++i) content_.write(item(i), id(i));
  }
  static ItemId id(std::uint32_t i) { return {.hash = 9, .page = i, .region = i % 2}; }
  std::byte* item(std::uint32_t i) { return memory_.data() + i * item_bytes; }
  std::uint64_t wrong() {
    ItemCheck check(content_);
    for (std::uint32_t i = 0; i < 7; ++i) check.add(item(i), id(i));
    return check.finish();
  }
  ItemContent content_{item_bytes};
  std::vector<std::byte> memory_ = std::vector<std::byte>(7 * item_bytes);
};

TEST_F(ItemCheckOfSeven, right_items_are_all_right) { EXPECT_EQ(wrong(), 0u); }

TEST_F(ItemCheckOfSeven, any_flipped_bit_is_seen) {
  for (std::size_t at = 0; at < memory_.size(); at += 13) {
    memory_[at] ^= std::byte{4};
    ASSERT_EQ(wrong(), 1u) << at;
    memory_[at] ^= std::byte{4};
  }
}

TEST_F(ItemCheckOfSeven, items_in_each_others_place_are_seen) {
  std::vector<std::byte> kept(item(0), item(1));
  std::memcpy(item(0), item(6), item_bytes);
  std::memcpy(item(6), kept.data(), item_bytes);
  EXPECT_EQ(wrong(), 2u);
}

}  // namespace
}  // namespace kvferry::tools
