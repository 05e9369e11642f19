// What comes back by itself: lost links, bootstrap servers, and everybody who had no part in a failure.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "process/pair.h"

namespace kvferry::testing {
namespace {

PairOptions bulk(Transport transport) { return {transport, false, 4, 256, 4096, 0}; }

Poll hand_over(Pair& pair, std::uint64_t room) {
  const auto pages = shuffled_pages(3, 256, static_cast<unsigned>(room));
  fill_pages(pair.prefill_memory, pair.options.page_bytes, pages, 0, room);
  Sender sender = pair.sending(room);
  Receiver receiver = pair.receive(room);
  EXPECT_TRUE(receiver.init({pages}));
  EXPECT_TRUE(sender.init({pages.size()}));
  EXPECT_TRUE(sender.send({pages}));
  const auto ended = receiver.wait(long_enough);
  const Poll state = ended ? *ended : Poll::bootstrapping;
  if (state == Poll::success) {
    EXPECT_TRUE(pages_equal(pair.prefill_memory, pages, pair.decode_memory, pages, pair.options.page_bytes));
    EXPECT_EQ(sender.wait(long_enough).value(), Poll::success);
  }
  return state;
}

std::uint16_t port_of(const std::string& address) {
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

// Breaks every connection of this process to `port`, as a reset on the way would.
std::size_t break_connections_to(std::uint16_t port) {
  std::size_t broken = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.sin_family != AF_INET) continue;
    if (ntohs(peer.sin_port) == port && ::shutdown(fd, SHUT_RDWR) == 0) ++broken;
  }
  return broken;
}

bool is_granted(const Sender& sender) {
  const auto deadline = std::chrono::steady_clock::now() + long_enough;
  while (sender.poll() == Poll::bootstrapping && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return sender.poll() >= Poll::waiting_for_input;
}

class Recovery : public ::testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Ways, Recovery, ::testing::Values(Transport::tcp, Transport::samehost),
                         [](const auto& way) { return std::string(way.param == Transport::tcp ? "tcp" : "samehost"); });

TEST_P(Recovery, a_pair_that_lost_its_link_while_both_live_is_linked_again_by_the_next_room) {
  Pair pair(bulk(GetParam()));
  ASSERT_EQ(hand_over(pair, 1), Poll::success);
  Sender sender = pair.sending(2);
  Receiver receiver = pair.receive(2);
  const std::vector<std::int32_t> page{1};
  ASSERT_TRUE(receiver.init({page}));
  ASSERT_TRUE(is_granted(sender));
  ASSERT_GE(break_connections_to(port_of(pair.prefill->address())), 1u);
  EXPECT_EQ(receiver.wait(long_enough).value(), Poll::failed);
  EXPECT_EQ(receiver.error()->code, Code::peer_lost) << receiver.error()->message();
  EXPECT_EQ(sender.wait(long_enough).value(), Poll::failed);
  EXPECT_TRUE(receiver.wait_pages_released(long_enough));
  for (std::uint64_t room = 3; room < 13; ++room) ASSERT_EQ(hand_over(pair, room), Poll::success);
  EXPECT_TRUE(sender.wait_pages_released(long_enough));
  EXPECT_EQ(pair.decode->stats().sessions_live, 1u);
}

TEST_P(Recovery, a_poisoned_room_fails_alone_and_the_next_ten_on_its_session_succeed) {
  Pair pair(bulk(GetParam()));
  ASSERT_EQ(hand_over(pair, 1), Poll::success);
  Sender sender = pair.sending(2);
  Receiver receiver = pair.receive(2);
  const auto two = shuffled_pages(2, 256, 1);
  ASSERT_TRUE(receiver.init({two}));
  ASSERT_TRUE(sender.init({3}));  // one more than is granted
  EXPECT_EQ(receiver.wait(long_enough).value(), Poll::failed);
  EXPECT_EQ(sender.wait(long_enough).value(), Poll::failed);
  for (std::uint64_t room = 3; room < 13; ++room) ASSERT_EQ(hand_over(pair, room), Poll::success);
  EXPECT_EQ(pair.decode->stats().sessions_lost, 0u);
  EXPECT_EQ(pair.prefill->stats().sessions_lost, 0u);
}

TEST(BootstrapServer, a_server_that_restarts_is_found_again_by_both_sides) {
  Pair pair(bulk(Transport::tcp));
  pair.settings.lease_ttl = 1000ms;
  pair.start_prefill();
  ASSERT_EQ(hand_over(pair, 1), Poll::success);
  const std::uint16_t port = port_of(pair.server->address());
  pair.server.reset();
  ASSERT_EQ(hand_over(pair, 2), Poll::success) << "a linked pair needs no server";

  pair.start_decode();
  auto early = pair.decode->open_receiver("127.0.0.1:" + std::to_string(port), 3);
  ASSERT_TRUE(early);
  Sender sender = pair.sending(3);
  const std::vector<std::int32_t> page{1};
  ASSERT_TRUE(early->init({page}));
  ASSERT_TRUE(sender.init({1}));
  ASSERT_TRUE(sender.send({page}));
  BootstrapOptions again;
  again.port = port;
  again.settings = pair.settings;
  auto server = BootstrapServer::start(again);
  ASSERT_TRUE(server) << server.error().message();
  pair.server.emplace(std::move(*server));
  EXPECT_EQ(early->wait(long_enough).value(), Poll::success) << "it waited for the server, not for a new try";
  pair.start_prefill();
  pair.start_decode();
  EXPECT_EQ(hand_over(pair, 4), Poll::success);
}

TEST(Isolation, a_dead_peer_is_nobody_elses_problem) {
  Pair pair(bulk(Transport::tcp));
  PairOptions other = bulk(Transport::tcp);
  Pair second(other);
  // One decode manager with two prefill instances.
  Receiver healthy = pair.receive(1);
  auto doomed = pair.decode->open_receiver(second.server->address(), 2);
  ASSERT_TRUE(doomed);
  const auto some = shuffled_pages(4, 256, 1);
  const auto rest = shuffled_pages(4, 256, 2);
  ASSERT_TRUE(healthy.init({some}));
  ASSERT_TRUE(doomed->init({rest}));
  Sender sender = pair.sending(1);
  Sender lost = second.sending(2);
  ASSERT_TRUE(is_granted(lost));
  second.prefill.reset();
  EXPECT_EQ(doomed->wait(long_enough).value(), Poll::failed);
  EXPECT_EQ(doomed->error()->code, Code::peer_lost);
  fill_pages(pair.prefill_memory, 4096, some, 0, 1);
  ASSERT_TRUE(sender.init({some.size()}));
  ASSERT_TRUE(sender.send({some}));
  EXPECT_EQ(healthy.wait(long_enough).value(), Poll::success);
}

}  // namespace
}  // namespace kvferry::testing
