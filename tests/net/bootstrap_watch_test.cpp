#include "net/bootstrap_watch.h"

#include <gtest/gtest.h>

#include "loop_support.h"
#include "net/bootstrap_server.h"

namespace kvferry::net {
namespace {

using net_test::run_until;

class Watching : public ::testing::Test {
 protected:
  Watching() { settings.health_interval = Settings::Millis(5); }

  void open(std::uint16_t port = 0) {
    auto opened = HttpBootstrapServer::open(loop, {"127.0.0.1", port}, {});
    ASSERT_TRUE(opened) << opened.error().text;
    server = std::move(*opened);
    address = server->address();
  }
  std::unique_ptr<BootstrapWatch> watch() {
    return std::make_unique<BootstrapWatch>(
        loop, settings,
        BootstrapWatch::Owner{.has_link = [](const Address&) { return false; },
                              .changed = [this](std::size_t count) { changes.push_back(count); }});
  }

  boost::asio::io_context loop;
  Settings settings;
  std::unique_ptr<HttpBootstrapServer> server;
  Address address;
  std::vector<std::size_t> changes;
};

TEST_F(Watching, a_server_that_goes_and_comes_back_is_told_once_each) {
  open();
  auto watched = watch();
  watched->use(address);
  watched->use(address);
  EXPECT_EQ(watched->watched(), 1u);
  server.reset();
  ASSERT_TRUE(run_until(loop, [&] { return !changes.empty(); }));
  open(address.port);
  ASSERT_TRUE(run_until(loop, [&] { return changes.size() > 1; }));
  EXPECT_EQ(changes, (std::vector<std::size_t>{1, 0}));
}

TEST_F(Watching, servers_are_counted_each_for_itself) {
  open();
  auto watched = watch();
  watched->use(address);
  const Address other{"127.0.0.1", address.port};
  auto second = HttpBootstrapServer::open(loop, {"127.0.0.1", 0}, {});
  ASSERT_TRUE(second);
  watched->use((*second)->address());
  server.reset();
  second->reset();
  ASSERT_TRUE(run_until(loop, [&] { return !changes.empty() && changes.back() == 2; }));
  open(other.port);
  EXPECT_TRUE(run_until(loop, [&] { return changes.back() == 1; }));
}

TEST_F(Watching, nothing_is_told_after_the_watch_is_gone) {
  open();
  auto watched = watch();
  watched->use(address);
  server.reset();
  watched.reset();
  loop.run_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(changes.empty());
}

}  // namespace
}  // namespace kvferry::net
