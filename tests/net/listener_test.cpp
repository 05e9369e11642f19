#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "loop_support.h"
#include "net/link.h"
#include "os/fd.h"
#include "recording_handler.h"

namespace kvferry::net {
namespace {

using boost::asio::ip::tcp;
using net_test::endpoint_of;
using net_test::run_until;
using net_test::unknown_host;

class Listening : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Listener>> open(const Address& address, const Settings& settings = {}) {
    return Listener::open(loop, address, settings,
                          [this](tcp::socket socket) { accepted.push_back(std::move(socket)); });
  }
  boost::asio::io_context loop;
  std::vector<tcp::socket> accepted;
};

TEST_F(Listening, tells_the_port_that_the_kernel_picked_and_accepts) {
  auto listener = open({"127.0.0.1", 0});
  ASSERT_TRUE(listener) << listener.error().text;
  EXPECT_EQ((*listener)->address().host, "127.0.0.1");
  EXPECT_NE((*listener)->address().port, 0);
  tcp::socket client(loop);
  client.connect(endpoint_of((*listener)->address()));
  EXPECT_TRUE(run_until(loop, [&] { return accepted.size() == 1; }));
}

TEST_F(Listening, a_port_in_use_is_named) {
  auto first = open({"127.0.0.1", 0});
  ASSERT_TRUE(first);
  const auto second = open((*first)->address());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unreachable);
  EXPECT_NE(second.error().text.find("already in use"), std::string::npos) << second.error().text;
  EXPECT_NE(second.error().text.find((*first)->address().text()), std::string::npos) << second.error().text;
}

TEST_F(Listening, an_address_is_free_again_at_once_even_with_connections_that_linger) {
  auto first = open({"127.0.0.1", 0});
  ASSERT_TRUE(first);
  const Address address = (*first)->address();
  tcp::socket client(loop);
  client.connect(endpoint_of(address));
  ASSERT_TRUE(run_until(loop, [&] { return accepted.size() == 1; }));
  accepted.clear();  // the listening side closes first: its end waits in the kernel
  first = Error{};
  const auto second = open(address);
  EXPECT_TRUE(second) << second.error().text;
}

TEST_F(Listening, a_public_address_needs_a_token_or_a_permission) {
  const Address address{"8.8.8.8", 0};
  const auto refused = open(address);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unauthorized);
  EXPECT_NE(refused.error().text.find("KVFERRY_TOKEN"), std::string::npos) << refused.error().text;
  Settings with_token;
  with_token.token = "secret";
  EXPECT_EQ(open(address, with_token).error().code, Code::unreachable) << "allowed, but not an address of this machine";
  Settings allowed;
  allowed.allow_public = true;
  EXPECT_EQ(open(address, allowed).error().code, Code::unreachable);
}

TEST_F(Listening, a_host_that_is_no_address_here_is_named) {
  const auto refused = open({unknown_host, 0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unreachable);
  EXPECT_NE(refused.error().text.find(unknown_host), std::string::npos) << refused.error().text;
}

TEST_F(Listening, the_ipv6_wildcard_hears_both_families_and_shows_ipv4_peers_as_ipv4) {
  auto listener = open({"::", 0});
  ASSERT_TRUE(listener) << listener.error().text;
  tcp::socket four(loop);
  four.connect({boost::asio::ip::make_address("127.0.0.1"), (*listener)->address().port});
  ASSERT_TRUE(run_until(loop, [&] { return accepted.size() == 1; }));
  const Link link(LinkId{1}, std::move(accepted[0]));
  EXPECT_EQ(link.peer(), Address({"127.0.0.1", four.local_endpoint().port()}).text());
  EXPECT_TRUE(link.peer_is_private());
  tcp::socket six(loop);
  boost::system::error_code no_ipv6;
  six.connect({boost::asio::ip::make_address("::1"), (*listener)->address().port}, no_ipv6);
  if (no_ipv6) GTEST_SKIP() << "this machine has no IPv6 loopback: " << no_ipv6.message();
  EXPECT_TRUE(run_until(loop, [&] { return accepted.size() == 2; }));
}

TEST_F(Listening, a_name_can_be_listened_on) {
  auto listener = open({"localhost", 0});
  ASSERT_TRUE(listener) << listener.error().text;
  EXPECT_TRUE(is_private_or_loopback((*listener)->address().host));
}

TEST_F(Listening, every_descriptor_is_close_on_exec_and_links_do_not_wait_for_more_bytes) {
  auto listener = open({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  std::optional<tcp::socket> dialed;
  dial(loop, (*listener)->address(), std::chrono::seconds(20), [&](Result<tcp::socket> socket) {
    ASSERT_TRUE(socket) << socket.error().text;
    dialed.emplace(std::move(*socket));
  });
  ASSERT_TRUE(run_until(loop, [&] { return dialed.has_value() && accepted.size() == 1; }));
  const int dialed_fd = dialed->native_handle();
  const int accepted_fd = accepted[0].native_handle();
  const Link one(LinkId{1}, std::move(*dialed));
  const Link other(LinkId{2}, std::move(accepted[0]));
  for (int fd = 3; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    char path[64] = {};
    char target[256] = {};
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (flags < 0 || ::readlink(path, target, sizeof target - 1) < 0) continue;
    const std::string what = target;
    const bool ours = what.starts_with("socket:") || what.starts_with("anon_inode:");
    EXPECT_TRUE(!ours || (flags & FD_CLOEXEC) != 0) << fd << " is " << what;
  }
  for (const int fd : {dialed_fd, accepted_fd}) {
    int on = 0;
    socklen_t length = sizeof on;
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &length), 0);
    EXPECT_NE(on, 0);
    ASSERT_EQ(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &length), 0);
    EXPECT_NE(on, 0);
  }
}

TEST_F(Listening, out_of_descriptors_it_waits_instead_of_spinning_and_goes_on_afterwards) {
  auto listener = open({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  tcp::socket client(loop);
  client.connect(endpoint_of((*listener)->address()));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_free = ::dup(0);
  ASSERT_GE(next_free, 0);
  ::close(next_free);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next_free);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  const std::size_t turns = loop.run_for(std::chrono::milliseconds(250));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(turns, 20u);
  EXPECT_TRUE(accepted.empty());
  EXPECT_TRUE(run_until(loop, [&] { return accepted.size() == 1; }));
}

TEST_F(Listening, a_listener_that_is_gone_accepts_nobody) {
  auto listener = open({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  const Address address = (*listener)->address();
  loop.poll();
  listener = Error{};
  loop.poll();
  tcp::socket client(loop);
  boost::system::error_code refused;
  client.connect(endpoint_of(address), refused);
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace kvferry::net
