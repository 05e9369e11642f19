#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/assert.h"
#include "draw_messages.h"
#include "kvferry/settings.h"
#include "protocol/codec.h"

namespace kvferry::protocol {
namespace {

using HeaderBytes = std::array<std::byte, frame_header_bytes>;

HeaderBytes header_bytes(std::uint32_t magic, std::uint32_t body, std::uint32_t payload) {
  HeaderBytes bytes{};
  const std::array<std::uint32_t, 3> words{magic, body, payload};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(words[i / 4] >> (8 * (i % 4)));
  return bytes;
}
HeaderBytes text_bytes(const std::string& text) {
  HeaderBytes bytes{};
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  return bytes;
}
bool says(const Error& error, const std::string& words) { return error.text.find(words) != std::string::npos; }

TEST(frame, what_is_appended_is_announced_by_its_header) {
  EXPECT_TRUE(rc::check("frames one after the other are found again", [] {
    std::vector<std::byte> stream;
    std::vector<Message> sent;
    const int count = *rc::gen::inRange(1, 6);
    for (int i = 0; i < count; ++i) {
      sent.push_back(any_message());
      append_frame(sent.back(), static_cast<std::uint32_t>(i), stream);
    }
    std::span<const std::byte> rest(stream);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      RC_ASSERT(rest.size() >= frame_header_bytes);
      const auto header = read_frame_header(rest.first<frame_header_bytes>(), body_bytes_max);
      RC_ASSERT(header.has_value());
      RC_ASSERT(header->payload_bytes == i);
      RC_ASSERT(rest.size() >= frame_header_bytes + header->body_bytes);
      RC_ASSERT(decode_body(rest.subspan(frame_header_bytes, header->body_bytes)).value() == sent[i]);
      rest = rest.subspan(frame_header_bytes + header->body_bytes);
    }
    RC_ASSERT(rest.empty());
  }));
}

TEST(frame, the_bytes_of_a_ping_are_these) {
  std::vector<std::byte> frame;
  append_frame(Ping{5}, 0, frame);
  const std::string expected("KVF1\x04\0\0\0\0\0\0\0\x4a\x02\x08\x05", 16);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.data()), frame.size()), expected);
}

TEST(frame, a_peer_that_speaks_http_is_told_apart) {
  for (const char* text :
       {"GET /route?x", "PUT /route H", "POST /x HTTP", "HTTP/1.1 400", "HEAD / HTTP/", "OPTIONS * HT"}) {
    const auto header = read_frame_header(text_bytes(text), body_bytes_max);
    ASSERT_FALSE(header) << text;
    EXPECT_EQ(header.error().code, Code::protocol);
    EXPECT_TRUE(says(header.error(), "HTTP (\"" + std::string(text, 4) + "\")")) << header.error().text;
  }
}

TEST(frame, a_peer_that_speaks_tls_is_told_apart) {
  const auto header = read_frame_header(text_bytes("\x16\x03\x01\x02"), body_bytes_max);
  ASSERT_FALSE(header);
  EXPECT_TRUE(says(header.error(), "TLS"));
}

TEST(frame, a_foreign_magic_is_refused_with_both_numbers) {
  const auto header = read_frame_header(header_bytes(frame_magic + 1, 1, 0), body_bytes_max);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, Code::protocol);
  EXPECT_TRUE(says(header.error(), std::to_string(frame_magic + 1)));
  EXPECT_TRUE(says(header.error(), std::to_string(frame_magic)));
}

TEST(frame, sizes_over_the_bound_are_refused_with_both_numbers) {
  EXPECT_TRUE(read_frame_header(header_bytes(frame_magic, 1'000, payload_bytes_max), 1'000));
  const auto body = read_frame_header(header_bytes(frame_magic, 1'001, 0), 1'000);
  ASSERT_FALSE(body);
  EXPECT_EQ(body.error().code, Code::protocol);
  EXPECT_TRUE(says(body.error(), "a body of 1001 bytes; at most 1000"));
  const auto payload = read_frame_header(header_bytes(frame_magic, 1, payload_bytes_max + 1), 1'000);
  ASSERT_FALSE(payload);
  EXPECT_TRUE(says(payload.error(), "a payload of 16777217 bytes; at most 16777216"));
  EXPECT_FALSE(read_frame_header(header_bytes(frame_magic, ~0u, ~0u), body_bytes_max));
}

TEST(frame, any_twelve_bytes_are_a_header_within_bounds_or_an_error) {
  EXPECT_TRUE(rc::check("read_frame_header of noise", [](const std::array<std::uint8_t, 12>& noise) {
    HeaderBytes bytes{};
    std::memcpy(bytes.data(), noise.data(), bytes.size());
    if (*rc::gen::arbitrary<bool>()) std::memcpy(bytes.data(), "KVF1", 4);
    const auto header = read_frame_header(bytes, handshake_body_bytes_max);
    if (header) {
      RC_ASSERT(header->body_bytes <= handshake_body_bytes_max);
      RC_ASSERT(header->payload_bytes <= payload_bytes_max);
    } else {
      RC_ASSERT(header.error().code == Code::protocol);
    }
  }));
}

TEST(frame, a_payload_that_no_frame_holds_is_our_own_fault) {
  std::vector<std::byte> out;
  EXPECT_THROW(append_frame(Inline{}, payload_bytes_max + 1, out), AssertionFailed);
  EXPECT_TRUE(out.empty());
}

TEST(frame, the_largest_inline_room_that_can_be_set_fits_a_payload) {
  Settings settings;
  settings.inline_bytes_max = payload_bytes_max;
  EXPECT_TRUE(settings.check());
  settings.inline_bytes_max = std::uint64_t{payload_bytes_max} + 1;
  EXPECT_FALSE(settings.check());
}

}  // namespace
}  // namespace kvferry::protocol
