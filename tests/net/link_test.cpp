#include "net/link.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "loop_support.h"
#include "os/fd.h"
#include "protocol/codec.h"
#include "recording_handler.h"

namespace kvferry::net {
namespace {

using net_test::RawClient;
using net_test::RecordingHandler;
using net_test::run_until;
using net_test::socket_pair;
using protocol::Message;

std::string frame(const Message& message, const std::string& payload = "") {
  std::vector<std::byte> bytes;
  protocol::append_frame(message, static_cast<std::uint32_t>(payload.size()), bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + payload;
}

layout::Piece piece_of(std::string& text) { return {reinterpret_cast<std::byte*>(text.data()), text.size()}; }

// A link and a raw socket at its other end.
class OneLink : public ::testing::Test {
 protected:
  boost::asio::io_context loop_;
  std::pair<boost::asio::ip::tcp::socket, boost::asio::ip::tcp::socket> sockets_ = socket_pair(loop_);
  RecordingHandler handler;
  Link link{LinkId{7}, std::move(sockets_.first)};
  RawClient raw{loop_, std::move(sockets_.second)};
};

// Two links that face each other.
class TwoLinks : public ::testing::Test {
 protected:
  TwoLinks() {
    first.start(first_heard);
    second.start(second_heard);
  }
  boost::asio::io_context loop_;
  std::pair<boost::asio::ip::tcp::socket, boost::asio::ip::tcp::socket> sockets_ = socket_pair(loop_);
  RecordingHandler first_heard;
  RecordingHandler second_heard;
  std::uint64_t answered = 0;
  Link first{LinkId{1}, std::move(sockets_.first)};
  Link second{LinkId{2}, std::move(sockets_.second)};
};

TEST_F(TwoLinks, messages_and_payloads_arrive_in_order_both_ways) {
  std::string half = "payload-";
  std::string rest = "in two pieces";
  const layout::Piece pieces[] = {piece_of(half), piece_of(rest)};
  const protocol::Inline chunk{.transfer = TransferId{9}, .span = {.number = 1, .last = true}};
  first.send(protocol::Ping{1});
  first.send(chunk, pieces);
  first.send(protocol::Ping{2});
  EXPECT_GT(first.bytes_queued(), 0u);
  first.flush();
  second.send(protocol::Pong{3});
  second.flush();
  ASSERT_TRUE(run_until(loop_, [&] { return second_heard.messages.size() == 3 && first_heard.messages.size() == 1; }));
  EXPECT_EQ(second_heard.messages[0], Message(protocol::Ping{1}));
  EXPECT_EQ(second_heard.messages[1], Message(chunk));
  EXPECT_EQ(second_heard.messages[2], Message(protocol::Ping{2}));
  EXPECT_EQ(second_heard.payloads, (std::vector<std::string>{"", "payload-in two pieces", ""}));
  EXPECT_EQ(second_heard.batches, 1u) << "one write, one read, one turn";
  EXPECT_EQ(first_heard.messages[0], Message(protocol::Pong{3}));
  EXPECT_EQ(first.bytes_queued(), 0u);
}

TEST_F(TwoLinks, nothing_leaves_before_the_flush) {
  first.send(protocol::Ping{1});
  while (loop_.poll() != 0) continue;
  EXPECT_TRUE(second_heard.messages.empty());
  first.flush();
  EXPECT_TRUE(run_until(loop_, [&] { return second_heard.messages.size() == 1; }));
}

TEST_F(TwoLinks, much_more_than_the_sockets_hold_arrives_whole) {
  std::string payload(3'000'000, 'x');
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 31 >> 8);
  const layout::Piece piece = piece_of(payload);
  for (std::uint32_t number = 0; number < 12; ++number) {
    first.send(protocol::Inline{.transfer = TransferId{1}, .span = {.number = number}}, {&piece, 1});
    first.flush();
    second.send(protocol::Inline{.transfer = TransferId{2}, .span = {.number = number}}, {&piece, 1});
    second.flush();
  }
  ASSERT_TRUE(
      run_until(loop_, [&] { return second_heard.messages.size() == 12 && first_heard.messages.size() == 12; }));
  for (std::uint32_t number = 0; number < 12; ++number) {
    EXPECT_EQ(std::get<protocol::Inline>(second_heard.messages[number]).span.number, number);
    EXPECT_TRUE(second_heard.payloads[number] == payload);
    EXPECT_TRUE(first_heard.payloads[number] == payload);
  }
  EXPECT_EQ(first.bytes_queued(), 0u);
}

TEST_F(TwoLinks, a_thousand_small_messages_sent_from_inside_a_turn_all_arrive) {
  second_heard.at_batch_end = [this](Link& link) {
    while (answered < second_heard.messages.size()) link.send(protocol::Pong{answered++});
    link.flush();
  };
  for (std::uint64_t number = 0; number < 1'000; ++number) {
    first.send(protocol::Ping{number});
    if (number % 10 == 0) first.flush();
  }
  first.flush();
  ASSERT_TRUE(run_until(loop_, [&] { return first_heard.messages.size() == 1'000; }));
  for (std::uint64_t number = 0; number < 1'000; ++number) {
    EXPECT_EQ(first_heard.messages[number], Message(protocol::Pong{number}));
  }
}

TEST_F(TwoLinks, close_tells_the_other_side_once_and_this_side_never) {
  first.send(protocol::Ping{1});
  first.flush();
  first.close();
  first.close();
  first.send(protocol::Ping{2});
  first.flush();
  ASSERT_TRUE(run_until(loop_, [&] { return second_heard.closed.has_value(); }));
  EXPECT_EQ(second_heard.messages.size(), 1u) << "what was flushed is delivered";
  EXPECT_EQ(second_heard.closed->code, Code::peer_lost);
  EXPECT_EQ(second_heard.closed->peer, second.peer());
  while (loop_.poll() != 0) continue;
  EXPECT_EQ(second_heard.closes, 1u);
  EXPECT_EQ(first_heard.closes, 0u);
  second.send(protocol::Ping{3});
  second.flush();
}

TEST_F(TwoLinks, a_write_to_a_peer_that_left_hands_over_its_last_words_first) {
  second.send(protocol::Refuse{.code = Code::mismatch, .text = "page sizes differ"});
  second.flush();
  second.close();
  // The kernel answers the first write with a reset, the second one fails.
  for (int i = 0; i < 3; ++i) {
    first.send(protocol::Ping{1});
    first.flush();
    EXPECT_EQ(first_heard.closes, 0u) << "never from inside flush";
  }
  ASSERT_TRUE(run_until(loop_, [&] { return first_heard.closed.has_value(); }));
  ASSERT_EQ(first_heard.messages.size(), 1u);
  EXPECT_EQ(std::get<protocol::Refuse>(first_heard.messages[0]).text, "page sizes differ");
  EXPECT_EQ(first_heard.closed->code, Code::peer_lost);
}

TEST_F(OneLink, a_frame_split_at_every_byte_is_one_message) {
  const std::string bytes = frame(protocol::Ping{42}) + frame(protocol::Inline{.transfer = TransferId{3}}, "data");
  link.start(handler);
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    const std::size_t before = handler.messages.size();
    raw.write(bytes.substr(0, cut));
    while (loop_.poll() != 0) continue;
    raw.write(bytes.substr(cut));
    ASSERT_TRUE(run_until(loop_, [&] { return handler.messages.size() == before + 2; })) << "cut at " << cut;
    EXPECT_EQ(handler.messages[before], Message(protocol::Ping{42}));
    EXPECT_EQ(handler.payloads[before + 1], "data");
  }
  for (const char byte : bytes) {
    raw.write(std::string(1, byte));
    while (loop_.poll() != 0) continue;
  }
  EXPECT_TRUE(run_until(loop_, [&] { return handler.messages.size() == 2 * bytes.size(); }));
  EXPECT_EQ(handler.closes, 0u);
}

TEST_F(OneLink, a_peer_that_leaves_in_the_middle_of_a_frame_is_lost_and_named) {
  link.start(handler);
  raw.write(frame(protocol::Ping{1}).substr(0, 13));
  raw.close();
  ASSERT_TRUE(run_until(loop_, [&] { return handler.closed.has_value(); }));
  EXPECT_EQ(handler.closed->code, Code::peer_lost);
  EXPECT_NE(handler.closed->text.find("middle of a frame"), std::string::npos) << handler.closed->text;
}

TEST_F(OneLink, a_handler_may_close_from_inside_a_message_and_hears_nothing_more) {
  handler.then = [](Link& closing) { closing.close(); };
  link.start(handler);
  raw.write(frame(protocol::Ping{1}) + frame(protocol::Ping{2}));
  EXPECT_TRUE(raw.wait_closed());
  while (loop_.poll() != 0) continue;
  EXPECT_EQ(handler.messages.size(), 1u);
  EXPECT_EQ(handler.batches, 0u);
  EXPECT_EQ(handler.closes, 0u);
}

TEST_F(OneLink, a_released_socket_is_handed_over_with_no_byte_missing) {
  os::Fd released;
  handler.then = [&](Link& link_here) {
    auto fd = link_here.release_socket();
    ASSERT_TRUE(fd) << fd.error().text;
    released = std::move(*fd);
  };
  link.start(handler);
  raw.write(frame(protocol::Ping{1}));
  ASSERT_TRUE(run_until(loop_, [&] { return static_cast<bool>(released); }));
  EXPECT_NE(fcntl(released.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(released.get(), F_GETFD) & FD_CLOEXEC, 0);
  raw.write("raw data");
  char text[16] = {};
  ASSERT_TRUE(run_until(loop_, [&] { return ::recv(released.get(), text, sizeof text, MSG_DONTWAIT) == 8; }));
  EXPECT_STREQ(text, "raw data");
  EXPECT_EQ(handler.closes, 0u);
}

TEST_F(OneLink, a_socket_is_not_released_when_bytes_came_too_early) {
  std::optional<Error> refused;
  handler.then = [&](Link& link_here) {
    const auto fd = link_here.release_socket();
    ASSERT_FALSE(fd);
    refused = fd.error();
    link_here.close();
  };
  link.start(handler);
  raw.write(frame(protocol::Ping{1}) + "early");
  ASSERT_TRUE(run_until(loop_, [&] { return refused.has_value(); }));
  EXPECT_EQ(refused->code, Code::protocol);
}

TEST_F(OneLink, knows_its_peer) {
  EXPECT_EQ(link.id(), LinkId{7});
  EXPECT_EQ(link.peer().find("127.0.0.1:"), 0u) << link.peer();
  EXPECT_TRUE(link.peer_is_private());
}

TEST(Link, a_handler_may_be_gone_before_its_link_as_long_as_the_link_is_closed) {
  boost::asio::io_context loop;
  auto sockets = socket_pair(loop);
  auto handler = std::make_unique<RecordingHandler>();
  auto link = std::make_unique<Link>(LinkId{1}, std::move(sockets.first));
  link->start(*handler);
  loop.poll();
  link.reset();
  handler.reset();
  loop.poll();
}

}  // namespace
}  // namespace kvferry::net
