#include "protocol/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "base/codes.h"
#include "draw_messages.h"

namespace kvferry::protocol {
namespace {

std::vector<std::byte> body_of(const Message& message) {
  std::vector<std::byte> frame;
  append_frame(message, 0, frame);
  return {frame.begin() + frame_header_bytes, frame.end()};
}
std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}
std::string why_not(const std::vector<std::byte>& body) {
  const auto message = decode_body(body);
  if (message) return "it was taken";
  EXPECT_EQ(message.error().code, Code::protocol);
  return message.error().text;
}
bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST(codec, every_kind_of_message_comes_back_as_it_went) {
  for (std::size_t kind = 0; kind < std::variant_size_v<Message>; ++kind) {
    EXPECT_TRUE(rc::check("decode(encode(m)) == m", [kind] {
      const Message message = any_message_of(kind);
      RC_ASSERT(message.index() == kind);
      const auto read = decode_body(body_of(message));
      RC_ASSERT(read.has_value());
      RC_ASSERT(read.value() == message);
    }));
  }
}

TEST(codec, the_same_bytes_are_written_twice_and_after_other_messages) {
  EXPECT_TRUE(rc::check("nothing is left over from the message before", [] {
    const Message message = any_message();
    const auto first = body_of(message);
    const auto other = body_of(any_message());
    static_cast<void>(decode_body(other));
    RC_ASSERT(body_of(message) == first);
  }));
}

TEST(codec, a_cut_body_is_a_message_or_an_error) {
  EXPECT_TRUE(rc::check("truncation", [] {
    auto body = body_of(any_message());
    body.resize(*rc::gen::inRange<std::size_t>(0, body.size() + 1));
    const auto read = decode_body(body);
    if (!read) RC_ASSERT(read.error().code == Code::protocol);
  }));
}

TEST(codec, a_changed_body_is_a_message_or_an_error) {
  EXPECT_TRUE(rc::check("mutation", [] {
    auto body = body_of(any_message());
    const int changes = *rc::gen::inRange(1, 8);
    for (int i = 0; i < changes && !body.empty(); ++i) {
      body[*rc::gen::inRange<std::size_t>(0, body.size())] =
          static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
    }
    const auto read = decode_body(body);
    if (!read) {
      RC_ASSERT(read.error().code == Code::protocol);
    } else {
      RC_ASSERT(decode_body(body_of(read.value())).value() == read.value());
    }
  }));
}

TEST(codec, noise_is_a_message_or_an_error) {
  EXPECT_TRUE(rc::check("noise", [](const std::vector<std::uint8_t>& noise) {
    std::vector<std::byte> body;
    for (const std::uint8_t byte : noise) body.push_back(static_cast<std::byte>(byte));
    const auto read = decode_body(body);
    if (!read) RC_ASSERT(read.error().code == Code::protocol);
  }));
}

TEST(codec, a_message_without_a_kind_is_refused) {
  EXPECT_TRUE(says(why_not({}), "without a kind"));
  // Field 1000, which nobody knows: skipped, and nothing else is there.
  EXPECT_TRUE(says(why_not(bytes_of("\xc2\x3e\x03"
                                    "abc")),
                   "without a kind"));
}

TEST(codec, fields_of_newer_peers_are_skipped) {
  auto body = body_of(Ping{7});
  for (const std::byte byte : bytes_of("\xc2\x3e\x03"
                                       "abc")) {
    body.push_back(byte);
  }
  EXPECT_EQ(decode_body(body).value(), Message(Ping{7}));
}

TEST(codec, bytes_that_are_no_message_are_refused_with_their_number) {
  EXPECT_TRUE(says(why_not(bytes_of("\xff\xff\xff")), "the 3 bytes of a body are no message"));
}

TEST(codec, an_unknown_error_code_is_refused) {
  // Refuse (field 22) with code (field 1) 16, one past the last.
  static_assert(codes.size() == 16);
  EXPECT_TRUE(says(why_not(bytes_of(std::string("\xb2\x01\x02\x08\x10", 5))), "error code 16"));
  // Abort (field 6) with code (field 3) 200.
  EXPECT_TRUE(says(why_not(bytes_of(std::string("\x32\x03\x18\xc8\x01", 5))), "error code 200"));
}

TEST(codec, reversed_ranges_are_refused) {
  ChunkSpan span{.number = 3, .position_begin = 9, .position_end = 8};
  EXPECT_TRUE(says(why_not(body_of(Inline{{1}, span})), "chunk 3: positions [9, 8)"));
  EXPECT_TRUE(says(why_not(body_of(Offer{{1}, span, {}, -1, {}})), "reversed"));
  span = {.number = 3, .region_begin = 2, .region_end = 1};
  EXPECT_TRUE(says(why_not(body_of(Inline{{1}, span})), "regions [2, 1)"));
}

TEST(codec, lists_that_contradict_themselves_are_refused) {
  // Offer (field 3) with state_counts (field 5) = {2} and no items.
  EXPECT_TRUE(
      says(why_not(bytes_of(std::string("\x1a\x06\x2a\x04\x02\x00\x00\x00", 8))), "count 2 entries, 0 are there"));
  // Welcome (field 19) with regions (field 5) of one component and no bases.
  EXPECT_TRUE(
      says(why_not(bytes_of(std::string("\x9a\x01\x08\x2a\x06\x0a\x04\x00\x00\x00\x00", 11))), "differ in length"));
}

TEST(codec, more_state_components_than_can_be_are_refused) {
  EXPECT_TRUE(decode_body(body_of(Grant{.state_items = std::vector<std::uint64_t>(state_lists_max, 1)})));
  EXPECT_TRUE(says(why_not(body_of(Grant{.state_items = std::vector<std::uint64_t>(state_lists_max + 1, 1)})), "1025"));
  Offer offer;
  offer.state_items.resize(state_lists_max + 1);
  EXPECT_TRUE(says(why_not(body_of(offer)), "at most 1024"));
  Challenge challenge;
  challenge.shape.state.resize(state_lists_max + 1);
  EXPECT_TRUE(says(why_not(body_of(challenge)), "Shape: 1025"));
}

TEST(codec, transports_without_names_or_too_many_are_refused) {
  EXPECT_TRUE(says(why_not(body_of(Welcome{.transports = {"tcp", "", "samehost"}})), "without a name"));
  Proof proof;
  proof.transports.assign(17, "tcp");
  EXPECT_TRUE(says(why_not(body_of(proof)), "more than 16"));
}

TEST(codec, long_reasons_are_cut_by_their_writer_and_long_names_refused_by_their_reader) {
  const auto cut = decode_body(body_of(Abort{.text = std::string(text_bytes_max + 9, 'x')}));
  ASSERT_TRUE(cut);
  EXPECT_EQ(std::get<Abort>(cut.value()).text, std::string(text_bytes_max, 'x'));
  EXPECT_TRUE(says(why_not(body_of(JoinProof{std::string(text_bytes_max + 1, 'x')})), "65537 bytes; at most 65536"));
}

TEST(codec, the_largest_offer_fits_a_body) {
  const Offer offer{.transfer = {~std::uint64_t{0}},
                    .span = {1, 0, ~std::uint64_t{0}, 0, ~std::uint32_t{0}, true},
                    .pages = std::vector<std::int32_t>(offer_items_max - state_lists_max, -1),
                    .aux_item = -2,
                    .state_items = std::vector<std::vector<std::int32_t>>(state_lists_max, {5})};
  const auto body = body_of(offer);
  EXPECT_LE(body.size(), body_bytes_max);
  const auto read = decode_body(body);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read.value() == Message(offer));
}

TEST(codec, a_welcome_of_100000_regions_fits_a_handshake) {
  Welcome welcome;
  welcome.regions.resize(100'000, {1, ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}, -1, ~std::uint64_t{0}});
  const auto body = body_of(welcome);
  EXPECT_LE(body.size(), handshake_body_bytes_max);
  EXPECT_TRUE(decode_body(body).value() == Message(welcome));
}

TEST(codec, an_offer_that_no_body_holds_is_our_own_fault) {
  std::vector<std::byte> out;
  const Offer offer{.pages = std::vector<std::int32_t>(offer_items_max + 65'536)};
  EXPECT_THROW(append_frame(offer, 0, out), AssertionFailed);
  EXPECT_TRUE(out.empty());
  append_frame(Ping{3}, 0, out);
  EXPECT_FALSE(out.empty()) << "the codec goes on after it";
}

TEST(codec, threads_do_not_share_what_they_write_with) {
  std::vector<std::thread> threads;
  std::array<bool, 4> right{};
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([t, &right] {
      right[t] = true;
      for (std::uint64_t i = 0; i < 500; ++i) {
        const Message message = Grant{.room = {i}, .transfer = {t}, .state_items = {t, i}};
        right[t] = right[t] && decode_body(body_of(message)).value() == message;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool ok : right) EXPECT_TRUE(ok);
}

TEST(codec, every_message_has_its_name) {
  EXPECT_STREQ(message_name(Hello{}), "Hello");
  EXPECT_STREQ(message_name(JoinProof{}), "JoinProof");
  EXPECT_STREQ(message_name(Grant{}), "Grant");
  EXPECT_STREQ(message_name(Queued{}), "Queued");
  EXPECT_STREQ(message_name(Pong{}), "Pong");
}

}  // namespace
}  // namespace kvferry::protocol
