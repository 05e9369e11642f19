// Rooms from a prefill manager to a decode manager over every way of moving bytes.
#include <sys/uio.h>
#include <unistd.h>

#include "process/pair.h"

namespace kvferry::testing {
namespace {

struct Way {
  const char* name;
  PairOptions options;
};

PairOptions verified(PairOptions options) {
  options.verify = Verify::crc32c;
  return options;
}

class HandOff : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(
    Ways, HandOff,
    ::testing::Values(Way{"tcp", {Transport::tcp, false, 4, 256, 4096, 0}},
                      Way{"samehost", {Transport::samehost, false, 4, 256, 4096, 0}},
                      Way{"shared", {Transport::samehost, true, 4, 256, 4096, 0}},
                      Way{"inlined", {Transport::automatic, false, 4, 256, 1024, 16u << 20}},
                      Way{"tcp_verified", verified({Transport::tcp, false, 4, 256, 4096, 0})},
                      Way{"shared_verified", verified({Transport::samehost, true, 4, 256, 4096, 0})},
                      Way{"inlined_verified", verified({Transport::automatic, false, 4, 256, 1024, 16u << 20})}),
    [](const auto& way) { return way.param.name; });

void expect_success(RoomHandle& handle) {
  const auto state = handle.wait(long_enough);
  ASSERT_TRUE(state) << state.error().message();
  EXPECT_EQ(*state, Poll::success) << (handle.error() ? handle.error()->message() : "");
}

TEST_P(HandOff, a_room_in_one_chunk_arrives_whole_with_its_aux_record) {
  Pair pair(GetParam().options);
  const auto from = shuffled_pages(37, 256, 1);
  const auto to = shuffled_pages(37, 256, 2);
  fill_pages(pair.prefill_memory, pair.options.page_bytes, from, 0, 7);
  std::memset(pair.prefill_memory.aux(5), 0, Buffers::aux_bytes);
  std::memcpy(pair.prefill_memory.aux(5), "first token", 12);

  Sender sender = pair.sending(7);
  Receiver receiver = pair.receive(7);
  ASSERT_TRUE(receiver.init({to, 9}));
  ASSERT_TRUE(sender.init({from.size(), 5}));
  ASSERT_TRUE(sender.send({from}));
  expect_success(receiver);
  expect_success(sender);
  EXPECT_TRUE(pages_equal(pair.prefill_memory, from, pair.decode_memory, to, pair.options.page_bytes));
  EXPECT_EQ(std::memcmp(pair.decode_memory.aux(9), pair.prefill_memory.aux(5), Buffers::aux_bytes), 0);
  EXPECT_EQ(receiver.bytes_received(), 37 * 4 * pair.options.page_bytes + Buffers::aux_bytes);
  EXPECT_TRUE(receiver.wait_pages_released(long_enough));
  EXPECT_TRUE(sender.wait_pages_released(long_enough));
}

TEST_P(HandOff, chunks_and_a_prefix_keep_their_positions) {
  Pair pair(GetParam().options);
  const auto from = shuffled_pages(50, 256, 3);
  const auto to = shuffled_pages(50, 256, 4);
  fill_pages(pair.prefill_memory, pair.options.page_bytes, from, 11, 8);
  Receiver receiver = pair.receive(8);
  ASSERT_TRUE(receiver.init({to, {}, 11}));
  Sender sender = pair.sending(8);
  ASSERT_TRUE(sender.init({from.size()}));
  const std::span<const std::int32_t> all(from);
  ASSERT_TRUE(sender.send({all.subspan(0, 20)}));
  ASSERT_TRUE(sender.send({all.subspan(20, 1)}));
  ASSERT_TRUE(sender.send({all.subspan(21)}));
  expect_success(receiver);
  expect_success(sender);
  EXPECT_EQ(sender.prefix_pages(), 11u);
  EXPECT_TRUE(pages_equal(pair.prefill_memory, from, pair.decode_memory, to, pair.options.page_bytes));
}

TEST_P(HandOff, a_room_that_needs_no_pages_ends_with_its_aux_record) {
  Pair pair(GetParam().options);
  std::memcpy(pair.prefill_memory.aux(1), "cached", 7);
  Sender sender = pair.sending(9);
  Receiver receiver = pair.receive(9);
  ASSERT_TRUE(receiver.init({{}, 2, 12}));
  ASSERT_TRUE(sender.init({0, 1}));
  ASSERT_TRUE(sender.send({}));
  expect_success(receiver);
  expect_success(sender);
  EXPECT_EQ(std::memcmp(pair.decode_memory.aux(2), pair.prefill_memory.aux(1), Buffers::aux_bytes), 0);
}

TEST_P(HandOff, an_abort_on_either_side_fails_the_other_and_releases_the_pages) {
  Pair pair(GetParam().options);
  const auto pages = shuffled_pages(10, 256, 5);
  for (const bool by_sender : {true, false}) {
    const std::uint64_t room = by_sender ? 20 : 21;
    Sender sender = pair.sending(room);
    Receiver receiver = pair.receive(room);
    ASSERT_TRUE(receiver.init({pages}));
    ASSERT_TRUE(sender.init({pages.size()}));
    if (by_sender) {
      sender.abort("the user went away");
    } else {
      receiver.abort("the user went away");
    }
    ASSERT_EQ(sender.wait(long_enough).value(), Poll::failed);
    ASSERT_EQ(receiver.wait(long_enough).value(), Poll::failed);
    EXPECT_NE(receiver.error()->text.find("the user went away"), std::string::npos) << receiver.error()->message();
    EXPECT_TRUE(receiver.wait_pages_released(long_enough));
    EXPECT_TRUE(sender.wait_pages_released(long_enough));
  }
}

TEST_P(HandOff, a_room_number_is_used_again_after_clear) {
  Pair pair(GetParam().options);
  const auto to = shuffled_pages(3, 256, 6);
  for (unsigned use = 0; use < 20; ++use) {
    const auto from = shuffled_pages(3, 256, 100 + use);
    fill_pages(pair.prefill_memory, pair.options.page_bytes, from, 0, use);
    Sender sender = pair.sending(5);
    EXPECT_EQ(pair.prefill->open_sender(5).error().code, Code::already_exists);
    Receiver receiver = pair.receive(5);
    ASSERT_TRUE(receiver.init({to}));
    ASSERT_TRUE(sender.init({3}));
    ASSERT_TRUE(sender.send({from}));
    expect_success(receiver);
    expect_success(sender);
    ASSERT_TRUE(pages_equal(pair.prefill_memory, from, pair.decode_memory, to, pair.options.page_bytes));
    sender.clear();
    receiver.clear();
  }
}

TEST_P(HandOff, a_prefill_rank_that_dies_fails_its_rooms_and_is_found_again_after_its_restart) {
  Pair pair(GetParam().options);
  const auto pages = shuffled_pages(5, 256, 7);
  {
    Receiver waiting = pair.receive(30);
    ASSERT_TRUE(waiting.init({pages}));
    Sender sender = pair.sending(30);
    ASSERT_TRUE(sender.init({5}));
    ASSERT_TRUE(sender.send({std::span(pages).first(2)}));
    while (waiting.poll() != Poll::transferring) ASSERT_FALSE(waiting.error());
    pair.start_prefill();
    ASSERT_EQ(waiting.wait(long_enough).value(), Poll::failed);
    EXPECT_EQ(waiting.error()->code, Code::peer_lost) << waiting.error()->message();
    EXPECT_TRUE(waiting.wait_pages_released(long_enough));
  }
  Receiver receiver = pair.receive(31);
  ASSERT_TRUE(receiver.init({pages}));
  Sender sender = pair.sending(31);
  ASSERT_TRUE(sender.init({5}));
  ASSERT_TRUE(sender.send({pages}));
  expect_success(receiver);
  expect_success(sender);
}

// Through the kernel: an engine that did this would race with the movers, which the thread sanitizer would say.
void poke(void* at, std::uint64_t value) {
  iovec from{&value, sizeof value};
  iovec to{at, sizeof value};
  ASSERT_EQ(::process_vm_writev(::getpid(), &from, 1, &to, 1, 0), static_cast<ssize_t>(sizeof value));
}

// Nobody writes wrong bytes on purpose here, so the sender's engine does: it changes a page between the copy and the
// sum.
TEST(Verify, bytes_that_are_not_those_that_were_sent_fail_the_room) {
  Pair pair(verified({Transport::tcp, false, 4, 256, 65'536, 0}));
  const auto pages = shuffled_pages(256, 256, 11);
  Code code = Code::internal;
  std::uint64_t value = 0;
  for (std::uint64_t room = 1; room < 200 && code != Code::corrupt; ++room) {
    Sender sender = pair.sending(room);
    Receiver receiver = pair.receive(room);
    ASSERT_TRUE(receiver.init({pages}));
    ASSERT_TRUE(sender.init({pages.size()}));
    ASSERT_TRUE(sender.send({pages}));
    while (receiver.poll() < Poll::success && !receiver.error()) {
      for (std::int32_t page = 0; page < 256; ++page) poke(pair.prefill_memory.page(3, page), ++value);
    }
    if (receiver.error()) code = receiver.error()->code;
    EXPECT_TRUE(receiver.wait_pages_released(long_enough));
    EXPECT_TRUE(sender.wait_pages_released(long_enough));
  }
  EXPECT_EQ(code, Code::corrupt);
}

TEST(Replaced, a_rank_whose_place_another_process_has_taken_gives_up_and_the_other_serves) {
  Pair pair;
  pair.settings.lease_ttl = 1000ms;
  pair.start_prefill();
  const std::vector<std::int32_t> page{1};
  const auto hand_over = [&](KvManager& prefill, std::uint64_t room) {
    auto sender = prefill.open_sender(room);
    ASSERT_TRUE(sender);
    Receiver receiver = pair.receive(room);
    ASSERT_TRUE(receiver.init({page}));
    ASSERT_TRUE(sender->init({1}));
    ASSERT_TRUE(sender->send({page}));
    expect_success(receiver);
  };
  hand_over(*pair.prefill, 1);
  Sender waiting = pair.sending(2);
  KvManager successor = pair.make(Role::prefill, pair.prefill_memory.memory);
  ASSERT_EQ(waiting.wait(long_enough).value(), Poll::failed);
  EXPECT_NE(waiting.error()->text.find("another process has registered"), std::string::npos);
  Sender late = pair.sending(3);
  ASSERT_EQ(late.wait(long_enough).value(), Poll::failed);
  while (pair.decode->stats().sessions_live > 0)
    std::this_thread::yield();  // until then rooms would fail with the link
  hand_over(successor, 4);
}

TEST(Address, a_manager_that_listens_on_all_addresses_announces_one_that_is_reached) {
  Pair pair;
  pair.settings.host = "0.0.0.0";
  pair.start_prefill();
  EXPECT_TRUE(pair.prefill->address().starts_with("127.0.0.1:")) << pair.prefill->address();
  Sender sender = pair.sending(1);
  Receiver receiver = pair.receive(1);
  const std::vector<std::int32_t> page{1};
  ASSERT_TRUE(receiver.init({page}));
  ASSERT_TRUE(sender.init({1}));
  ASSERT_TRUE(sender.send({page}));
  expect_success(receiver);
}

}  // namespace
}  // namespace kvferry::testing
