#include "net/input_buffer.h"

#include <gtest/gtest.h>

#include <string>

namespace kvferry::net {
namespace {

void put(InputBuffer& buffer, std::size_t bytes, std::size_t& written) {
  while (bytes != 0) {
    const auto space = buffer.space().first(std::min(bytes, buffer.space().size()));
    for (std::byte& byte : space) byte = static_cast<std::byte>(written++ % 251);
    buffer.commit(space.size());
    bytes -= space.size();
  }
}

TEST(InputBuffer, keeps_bytes_in_order_through_growth_and_moves) {
  InputBuffer buffer;
  std::size_t written = 0;
  std::size_t read = 0;
  for (std::size_t step = 1; step < 300'000; step = step * 3 + 7) {
    put(buffer, step, written);
    const std::size_t taken = buffer.filled().size() / 2 + 1;
    for (std::size_t i = 0; i < taken; ++i) {
      ASSERT_EQ(buffer.filled()[i], static_cast<std::byte>((read + i) % 251));
    }
    buffer.consume(taken);
    read += taken;
  }
}

TEST(InputBuffer, never_holds_more_than_twice_what_came) {
  InputBuffer buffer;
  std::size_t written = 0;
  for (int i = 0; i < 40; ++i) {
    put(buffer, 50'000, written);
    EXPECT_LE(buffer.filled().size() + buffer.space().size(), std::max<std::size_t>(64 * 1024, 2 * written + 2));
  }
  buffer.consume(written);
  EXPECT_EQ(buffer.space().size(), 64u * 1024) << "an empty one gives large memory back";
}

}  // namespace
}  // namespace kvferry::net
