#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace kvferry {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::vector<std::byte> numbered(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(Crc32c, known_answers_of_the_standard_hold) {
  const std::vector<std::byte> zeros(32);
  for (auto* crc : {&crc32c, &crc32c_by_table}) {
    EXPECT_EQ(crc(bytes_of("123456789"), 0), 0xE3069283u);
    EXPECT_EQ(crc(zeros, 0), 0x8A9136AAu);  // RFC 3720, B.4
    EXPECT_EQ(crc({}, 0), 0u);
  }
}

TEST(Crc32c, instruction_and_table_agree_on_every_length_and_split) {
  const auto bytes = numbered(100);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto all = std::span(bytes).first(size);
    ASSERT_EQ(crc32c(all), crc32c_by_table(all)) << size;
    ASSERT_EQ(crc32c(all.subspan(size / 3), crc32c(all.first(size / 3))), crc32c(all)) << size;
  }
}

TEST(Crc32c, three_at_once_are_the_three_one_by_one) {
  const auto bytes = numbered(400);
  for (std::size_t size : {0, 1, 7, 8, 9, 64, 133}) {
    const auto three = crc32c_of_three({bytes.data(), bytes.data() + 133, bytes.data() + 266}, size);
    for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(three[i], crc32c(std::span(bytes).subspan(i * 133, size))) << size;
  }
}

}  // namespace
}  // namespace kvferry
