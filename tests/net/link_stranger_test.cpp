// What a link does with bytes that no rank would send.
#include <gtest/gtest.h>

#include "loop_support.h"
#include "protocol/codec.h"
#include "recording_handler.h"

namespace kvferry::net {
namespace {

using net_test::RawClient;
using net_test::RecordingHandler;
using net_test::run_until;
using net_test::socket_pair;

std::string header(std::uint32_t magic, std::uint32_t body, std::uint32_t payload) {
  std::string bytes;
  for (const std::uint32_t word : {magic, body, payload}) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(word >> (8 * i)));
  }
  return bytes;
}

struct Strange {
  const char* name;
  std::string bytes;
};
std::ostream& operator<<(std::ostream& out, const Strange& strange) { return out << strange.name; }

class Strangers : public ::testing::TestWithParam<Strange> {};

TEST_P(Strangers, end_their_own_link_with_a_protocol_error) {
  boost::asio::io_context loop;
  auto sockets = socket_pair(loop);
  RecordingHandler handler;
  Link link(LinkId{1}, std::move(sockets.first));
  RawClient raw(loop, std::move(sockets.second));
  link.start(handler);
  raw.write(GetParam().bytes);
  ASSERT_TRUE(run_until(loop, [&] { return handler.closed.has_value(); }));
  EXPECT_EQ(handler.closed->code, Code::protocol);
  EXPECT_FALSE(handler.closed->text.empty());
  EXPECT_TRUE(handler.messages.empty());
  EXPECT_TRUE(raw.wait_closed());
}

INSTANTIATE_TEST_SUITE_P(
    Link, Strangers,
    ::testing::Values(Strange{"magic", header(0x12345678, 4, 0) + "abcd"},
                      Strange{"huge_body", header(protocol::frame_magic, 0xffffffff, 0)},
                      Strange{"body_above_the_handshake", header(protocol::frame_magic, (16u << 20) + 1, 0)},
                      Strange{"huge_payload", header(protocol::frame_magic, 4, 0xffffffff) + "abcd"},
                      Strange{"no_protobuf", header(protocol::frame_magic, 4, 0) + "\xff\xff\xff\xff"},
                      Strange{"empty_body", header(protocol::frame_magic, 0, 0)},
                      Strange{"data_frame", std::string("KVFD") + std::string(60, '\0')},
                      Strange{"tls", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", 12)},
                      Strange{"zeros", std::string(64, '\0')}),
    [](const auto& test) { return test.param.name; });

TEST(LinkStrangers, a_browser_is_told_what_this_port_is) {
  for (const char* request : {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PUT /route HTTP/1.1\r\nHost: a\r\n\r\n{}"}) {
    boost::asio::io_context loop;
    auto sockets = socket_pair(loop);
    RecordingHandler handler;
    Link link(LinkId{1}, std::move(sockets.first));
    RawClient raw(loop, std::move(sockets.second));
    link.start(handler);
    raw.write(request);
    EXPECT_TRUE(raw.wait_closed());
    EXPECT_EQ(raw.text.find("HTTP/1.1 400 "), 0u) << raw.text;
    EXPECT_NE(raw.text.find("control port"), std::string::npos) << raw.text;
    ASSERT_TRUE(handler.closed.has_value());
    EXPECT_EQ(handler.closed->code, Code::protocol);
    EXPECT_NE(handler.closed->text.find("HTTP"), std::string::npos) << handler.closed->text;
  }
}

TEST(LinkStrangers, a_claimed_size_costs_nothing_until_its_bytes_come) {
  boost::asio::io_context loop;
  auto sockets = socket_pair(loop);
  RecordingHandler handler;
  Link link(LinkId{1}, std::move(sockets.first));
  RawClient raw(loop, std::move(sockets.second));
  link.start(handler);
  raw.write(header(protocol::frame_magic, 16u << 20, 16u << 20) + "half a frame and then silence");
  while (loop.poll() != 0) continue;
  EXPECT_EQ(handler.closes, 0u) << "the handshake's deadline and the pings see to it";
  raw.close();
  EXPECT_TRUE(run_until(loop, [&] { return handler.closed.has_value(); }));
}

TEST(LinkStrangers, the_largest_frame_may_grow_once_the_peer_is_known) {
  boost::asio::io_context loop;
  auto sockets = socket_pair(loop);
  RecordingHandler handler;
  Link link(LinkId{1}, std::move(sockets.first));
  Link peer(LinkId{2}, std::move(sockets.second));
  RecordingHandler peer_handler;
  link.set_body_bytes_max(100);
  handler.then = [](Link& here) { here.set_body_bytes_max(protocol::body_bytes_max); };
  link.start(handler);
  peer.start(peer_handler);
  peer.send(protocol::Ping{1});
  peer.send(protocol::Refuse{.code = Code::internal, .text = std::string(1'000, 'x')});
  peer.flush();
  EXPECT_TRUE(run_until(loop, [&] { return handler.messages.size() == 2; }));
  link.set_body_bytes_max(100);
  peer.send(protocol::Refuse{.code = Code::internal, .text = std::string(1'000, 'x')});
  peer.flush();
  ASSERT_TRUE(run_until(loop, [&] { return handler.closed.has_value(); }));
  EXPECT_EQ(handler.closed->code, Code::protocol);
}

TEST(LinkStrangers, a_silent_link_holds_up_no_other) {
  boost::asio::io_context loop;
  auto silent_sockets = socket_pair(loop);
  auto lively_sockets = socket_pair(loop);
  RecordingHandler silent_handler;
  RecordingHandler lively_handler;
  RecordingHandler answers;
  Link silent(LinkId{1}, std::move(silent_sockets.first));
  Link lively(LinkId{2}, std::move(lively_sockets.first));
  Link peer(LinkId{3}, std::move(lively_sockets.second));
  silent.start(silent_handler);
  lively.start(lively_handler);
  peer.start(answers);
  // More than the socket takes, to a peer that never reads.
  std::string payload(8'000'000, 'x');
  const layout::Piece piece{reinterpret_cast<std::byte*>(payload.data()), payload.size()};
  silent.send(protocol::Inline{}, {&piece, 1});
  silent.flush();
  EXPECT_GT(silent.bytes_queued(), 0u);
  lively.send(protocol::Ping{1});
  lively.flush();
  EXPECT_TRUE(run_until(loop, [&] { return answers.messages.size() == 1; }));
  EXPECT_EQ(silent_handler.closes, 0u);
}

}  // namespace
}  // namespace kvferry::net
