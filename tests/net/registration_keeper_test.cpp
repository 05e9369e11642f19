#include <gtest/gtest.h>

#include "loop_support.h"
#include "net/bootstrap_client.h"
#include "net/bootstrap_server.h"

namespace kvferry::net {
namespace {

using net_test::run_until;
using Status = RegistrationKeeper::Status;

class Keeping : public ::testing::Test {
 protected:
  Keeping() { settings.lease_ttl = Settings::Millis(300); }

  void open(const Settings& server_settings, std::uint16_t port = 0) {
    auto opened = HttpBootstrapServer::open(loop, {"127.0.0.1", port}, server_settings);
    ASSERT_TRUE(opened) << opened.error().text;
    server = std::move(*opened);
    address = server->address();
  }
  std::unique_ptr<RegistrationKeeper> keep(std::vector<Status>& seen, std::uint16_t port = 9'000) {
    Registration registration;
    registration.instance = "pre";
    registration.address = {"10.0.0.7", port};
    return std::make_unique<RegistrationKeeper>(loop, address, settings, registration,
                                                [&seen](const Status& status) { seen.push_back(status); });
  }
  std::uint16_t routed_port() {
    std::optional<Result<Route>> answer;
    fetch_route(loop, address, settings, Place{}, [&](Result<Route> result) { answer.emplace(std::move(result)); });
    EXPECT_TRUE(run_until(loop, [&] { return answer.has_value(); }));
    return answer && *answer ? (*answer)->address.port : 0;
  }
  static bool registered(const std::vector<Status>& seen) { return !seen.empty() && seen.back().registered; }

  boost::asio::io_context loop;
  Settings settings;
  std::unique_ptr<HttpBootstrapServer> server;
  Address address;
};

TEST_F(Keeping, a_lease_is_renewed_for_as_long_as_its_keeper_lives) {
  settings.lease_ttl = Settings::Millis(1'000);  // long enough for a busy machine to renew in time
  open({});
  std::vector<Status> seen;
  auto keeper = keep(seen);
  ASSERT_TRUE(run_until(loop, [&] { return registered(seen); }));
  EXPECT_EQ(seen.back().generation, 1u);
  loop.run_for(settings.lease_ttl * 2);
  EXPECT_EQ(routed_port(), 9'000);
  EXPECT_EQ(seen.size(), 1u) << "renewals change nothing";
  keeper.reset();
  EXPECT_TRUE(run_until(loop, [&] { return routed_port() == 0; }));
}

TEST_F(Keeping, tries_until_the_server_is_there) {
  open({});
  server.reset();
  std::vector<Status> seen;
  const auto keeper = keep(seen);
  ASSERT_TRUE(run_until(loop, [&] { return !seen.empty(); }));
  EXPECT_FALSE(seen.back().registered);
  EXPECT_NE(seen.back().last_error.find(address.text()), std::string::npos) << seen.back().last_error;
  open({}, address.port);
  EXPECT_TRUE(run_until(loop, [&] { return registered(seen); }));
  EXPECT_EQ(seen.back().last_error, "");
}

TEST_F(Keeping, registers_anew_after_the_server_restarted) {
  open({});
  std::vector<Status> seen;
  const auto keeper = keep(seen);
  ASSERT_TRUE(run_until(loop, [&] { return registered(seen); }));
  server.reset();
  ASSERT_TRUE(run_until(loop, [&] { return !registered(seen); }));
  open({}, address.port);
  ASSERT_TRUE(run_until(loop, [&] { return registered(seen); }));
  EXPECT_EQ(routed_port(), 9'000);
}

TEST_F(Keeping, a_replaced_registration_stops_and_says_so) {
  open({});
  std::vector<Status> old_seen;
  std::vector<Status> new_seen;
  const auto old_keeper = keep(old_seen, 9'000);
  ASSERT_TRUE(run_until(loop, [&] { return registered(old_seen); }));
  const auto new_keeper = keep(new_seen, 9'001);
  ASSERT_TRUE(run_until(loop, [&] { return registered(new_seen) && !registered(old_seen); }));
  EXPECT_NE(old_seen.back().last_error.find("replaced"), std::string::npos) << old_seen.back().last_error;
  EXPECT_TRUE(old_seen.back().replaced);
  EXPECT_GE(new_seen.back().generation, 2u);
  loop.run_for(settings.lease_ttl * 2);
  EXPECT_TRUE(run_until(loop, [&] { return routed_port() == 9'001; }));
  EXPECT_EQ(old_seen.size(), 2u) << "it never registers again";
}

TEST_F(Keeping, the_token_is_proven_both_ways) {
  settings.token = "secret";
  open(settings);
  std::vector<Status> seen;
  auto keeper = keep(seen);
  ASSERT_TRUE(run_until(loop, [&] { return registered(seen); })) << seen.back().last_error;
  loop.run_for(settings.lease_ttl);
  EXPECT_TRUE(run_until(loop, [&] { return routed_port() == 9'000; }));
  keeper.reset();
  EXPECT_TRUE(run_until(loop, [&] { return routed_port() == 0; }));
}

TEST_F(Keeping, without_the_right_token_on_either_side_nothing_is_believed) {
  struct Case {
    const char* server;
    const char* rank;
    const char* words;
  };
  for (const Case& each : {Case{"secret", "", "token"}, Case{"secret", "guess", "KVFERRY_TOKEN"},
                           Case{"", "secret", "did not ask for the shared token"}}) {
    Settings server_settings;
    server_settings.token = each.server;
    open(server_settings);
    settings.token = each.rank;
    std::vector<Status> seen;
    const auto keeper = keep(seen);
    ASSERT_TRUE(run_until(loop, [&] { return !seen.empty(); }));
    EXPECT_FALSE(seen.back().registered) << each.words;
    EXPECT_NE(seen.back().last_error.find(each.words), std::string::npos) << seen.back().last_error;
  }
}

TEST_F(Keeping, a_keeper_may_be_dropped_at_any_moment) {
  open({});
  std::vector<Status> seen;
  for (int turns = 0; turns < 40; ++turns) {
    auto keeper = keep(seen);
    for (int i = 0; i < turns; ++i) loop.poll_one();
    keeper.reset();
  }
  std::unique_ptr<RegistrationKeeper> dropped_inside;
  Registration registration;
  registration.address = {"10.0.0.7", 1};
  dropped_inside = std::make_unique<RegistrationKeeper>(loop, address, settings, registration,
                                                        [&](const Status&) { dropped_inside.reset(); });
  EXPECT_TRUE(run_until(loop, [&] { return dropped_inside == nullptr; }));
}

}  // namespace
}  // namespace kvferry::net
