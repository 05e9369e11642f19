#include <gtest/gtest.h>

#include "loop_support.h"
#include "net/link.h"
#include "os/fd.h"

namespace kvferry::net {
namespace {

using boost::asio::ip::tcp;
using net_test::run_until;
using net_test::unknown_host;

class Dialing : public ::testing::Test {
 protected:
  void start(const Address& address, Settings::Millis timeout = std::chrono::seconds(20)) {
    cancel = dial(loop, address, timeout, [this](Result<tcp::socket> result) {
      ++answers;
      if (result) {
        socket.emplace(std::move(*result));
      } else {
        error = result.error();
      }
    });
  }
  std::unique_ptr<Listener> listen(const Address& address) {
    auto listener = Listener::open(loop, address, {}, [this](tcp::socket one) { accepted.push_back(std::move(one)); });
    EXPECT_TRUE(listener) << listener.error().text;
    return listener ? std::move(*listener) : nullptr;
  }
  bool wait_answer() {
    return run_until(loop, [this] { return answers != 0; });
  }

  boost::asio::io_context loop;
  std::function<void()> cancel;
  int answers = 0;
  std::optional<tcp::socket> socket;
  std::optional<Error> error;
  std::vector<tcp::socket> accepted;
};

TEST_F(Dialing, reaches_an_ipv4_address_and_a_name) {
  const auto listener = listen({"127.0.0.1", 0});
  for (const char* host : {"127.0.0.1", "localhost"}) {
    answers = 0;
    start({host, listener->address().port});
    EXPECT_EQ(answers, 0) << "never from inside the call";
    ASSERT_TRUE(wait_answer());
    EXPECT_TRUE(socket.has_value()) << error->text;
    socket.reset();
  }
}

TEST_F(Dialing, reaches_an_ipv6_address) {
  auto listener = Listener::open(loop, {"::1", 0}, {}, [](tcp::socket) {});
  if (!listener) GTEST_SKIP() << "no IPv6 loopback here: " << listener.error().text;
  start((*listener)->address());
  ASSERT_TRUE(wait_answer());
  EXPECT_TRUE(socket.has_value()) << error->text;
}

TEST_F(Dialing, a_port_that_nobody_listens_on_is_unreachable_by_name) {
  const Address address = listen({"127.0.0.1", 0})->address();
  start(address);
  ASSERT_TRUE(wait_answer());
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Code::unreachable);
  EXPECT_EQ(error->peer, address.text());
  EXPECT_NE(error->text.find(address.text()), std::string::npos) << error->text;
  EXPECT_NE(error->text.find("refused"), std::string::npos) << error->text;
}

TEST_F(Dialing, an_unknown_host_is_unreachable_by_name) {
  start({unknown_host, 9'000});
  ASSERT_TRUE(wait_answer());
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Code::unreachable);
  EXPECT_NE(error->text.find(unknown_host), std::string::npos) << error->text;
}

TEST_F(Dialing, a_scope_that_is_no_interface_is_unreachable) {
  start({"fe80::1%no-such-if", 9'000});
  ASSERT_TRUE(wait_answer());
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Code::unreachable);
}

TEST_F(Dialing, an_address_that_never_answers_ends_at_the_timeout) {
  // A listener whose queue is full: further connection attempts hear nothing.
  tcp::acceptor full(loop, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  full.listen(0);
  std::vector<os::Fd> fillers;
  const tcp::endpoint target = full.local_endpoint();
  for (int i = 0; i < 4; ++i) {
    fillers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    static_cast<void>(::connect(fillers.back().get(), target.data(), static_cast<socklen_t>(target.size())));
  }
  start({"127.0.0.1", full.local_endpoint().port()}, std::chrono::milliseconds(50));
  ASSERT_TRUE(wait_answer());
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Code::unreachable);
  EXPECT_NE(error->text.find("no answer"), std::string::npos) << error->text;
  while (loop.poll() != 0) continue;
  EXPECT_EQ(answers, 1);
}

TEST_F(Dialing, a_cancelled_dial_never_answers) {
  const auto listener = listen({"127.0.0.1", 0});
  start(listener->address());
  cancel();
  start({unknown_host, 9'000});
  cancel();
  cancel();
  bool marker = false;
  dial(loop, listener->address(), std::chrono::seconds(20), [&](Result<tcp::socket>) { marker = true; });
  EXPECT_TRUE(run_until(loop, [&] { return marker; }));
  EXPECT_EQ(answers, 0);
}

TEST_F(Dialing, a_loop_may_go_while_names_are_looked_up) {
  boost::asio::io_context short_lived;
  for (int i = 0; i < 4; ++i) {
    dial(short_lived, {unknown_host, 9'000}, std::chrono::seconds(20), [](Result<tcp::socket>) { FAIL(); });
  }
}

TEST_F(Dialing, many_look_ups_at_once_all_end) {
  std::size_t ended = 0;
  for (int i = 0; i < 100; ++i) {
    dial(loop, {unknown_host, 9'000}, std::chrono::seconds(20), [&](Result<tcp::socket> result) {
      EXPECT_FALSE(result);
      ++ended;
    });
  }
  EXPECT_TRUE(run_until(loop, [&] { return ended == 100; }));
}

}  // namespace
}  // namespace kvferry::net
