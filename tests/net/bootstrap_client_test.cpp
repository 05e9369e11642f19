#include "net/bootstrap_client.h"

#include <gtest/gtest.h>

#include "loop_support.h"
#include "net/bootstrap_server.h"
#include "net/sockets.h"

namespace kvferry::net {
namespace {

using boost::asio::ip::tcp;
using net_test::run_until;
using net_test::unknown_host;

// A server that takes connections and answers every one of them with fixed bytes, or with nothing.
class FixedServer {
 public:
  FixedServer(boost::asio::io_context& loop, std::string answer) {
    auto opened = Listener::open(loop, {"127.0.0.1", 0}, {}, [this, answer](tcp::socket socket) {
      boost::system::error_code ignored;
      if (!answer.empty()) {
        socket.write_some(boost::asio::buffer(answer), ignored);
        close_gently(socket.native_handle());
        return;
      }
      kept_.push_back(std::move(socket));
    });
    if (opened) listener_ = std::move(*opened);
  }
  Address address() const { return listener_->address(); }

 private:
  std::unique_ptr<Listener> listener_;
  std::vector<tcp::socket> kept_;
};

class Client : public ::testing::Test {
 protected:
  Result<InstanceSizes> sizes(const Address& server, const Settings& settings = {}) {
    std::optional<Result<InstanceSizes>> answer;
    fetch_sizes(loop, server, settings, [&](Result<InstanceSizes> result) { answer.emplace(std::move(result)); });
    EXPECT_FALSE(answer.has_value()) << "never from inside the call";
    EXPECT_TRUE(run_until(loop, [&] { return answer.has_value(); }));
    return answer ? *answer : Error{};
  }
  Result<Route> route(const Address& server, std::uint32_t dp, std::uint32_t tp, std::uint32_t pp = 0) {
    std::optional<Result<Route>> answer;
    fetch_route(loop, server, {}, {.dp = dp, .tp = tp, .pp = pp},
                [&](Result<Route> result) { answer.emplace(std::move(result)); });
    EXPECT_TRUE(run_until(loop, [&] { return answer.has_value(); }));
    return answer ? *answer : Error{};
  }
  boost::asio::io_context loop;
};

TEST_F(Client, fetches_sizes_and_routes_of_what_has_registered) {
  auto server = HttpBootstrapServer::open(loop, {"127.0.0.1", 0}, {});
  ASSERT_TRUE(server);
  EXPECT_EQ(sizes((*server)->address()).error().code, Code::try_later);
  EXPECT_EQ(route((*server)->address(), 0, 0).error().code, Code::try_later);
  std::vector<std::unique_ptr<RegistrationKeeper>> keepers;
  std::size_t registered = 0;
  for (std::uint32_t dp = 0; dp < 2; ++dp) {
    for (std::uint32_t pp = 0; pp < 2; ++pp) {
      Registration registration;
      registration.instance = "pre";
      registration.parallel = {.tp = 1, .dp = 2, .pp = 2};
      registration.place = {.dp = dp, .tp = 0, .pp = pp};
      registration.address = {"fd00::1", static_cast<std::uint16_t>(100 + 10 * dp + pp)};
      registration.incarnation = Incarnation{Bits128{dp + 1, pp}};
      keepers.push_back(std::make_unique<RegistrationKeeper>(
          loop, (*server)->address(), Settings{}, registration,
          [&](const RegistrationKeeper::Status& status) { registered += status.registered; }));
    }
  }
  ASSERT_TRUE(run_until(loop, [&] { return registered == 4; }));
  const auto found = sizes((*server)->address());
  ASSERT_TRUE(found) << found.error().text;
  EXPECT_EQ(found->parallel, (Parallel{.tp = 1, .dp = 2, .pp = 2}));
  EXPECT_EQ(found->instance, "pre");
  const auto place = route((*server)->address(), 1, 0, 1);
  ASSERT_TRUE(place) << place.error().text;
  EXPECT_EQ(place->address, (Address{"fd00::1", 111}));
  EXPECT_EQ(place->incarnation, (Incarnation{Bits128{2, 1}}));
  EXPECT_EQ(place->generation, 1u);
  EXPECT_EQ(route((*server)->address(), 0, 1).error().code, Code::unreachable);
}

TEST_F(Client, nobody_there_is_unreachable_and_names_the_server) {
  Address address;
  {
    FixedServer gone(loop, "");
    address = gone.address();
  }
  const auto answer = sizes(address);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::unreachable);
  EXPECT_EQ(answer.error().peer, address.text());
  EXPECT_NE(answer.error().text.find(address.text()), std::string::npos) << answer.error().text;
}

TEST_F(Client, an_unknown_host_is_unreachable_and_named) {
  const auto answer = sizes({unknown_host, 8'998});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::unreachable);
  EXPECT_NE(answer.error().text.find(unknown_host), std::string::npos) << answer.error().text;
}

TEST_F(Client, a_server_that_accepts_and_never_answers_times_out_and_holds_up_nobody) {
  FixedServer silent(loop, "");
  auto lively = HttpBootstrapServer::open(loop, {"127.0.0.1", 0}, {});
  ASSERT_TRUE(lively);
  Settings settings;
  settings.connect_timeout = Settings::Millis(300);
  std::optional<Result<InstanceSizes>> late;
  fetch_sizes(loop, silent.address(), settings, [&](Result<InstanceSizes> result) { late.emplace(std::move(result)); });
  EXPECT_EQ(sizes((*lively)->address()).error().code, Code::try_later);
  ASSERT_TRUE(run_until(loop, [&] { return late.has_value(); }));
  ASSERT_FALSE(*late);
  EXPECT_EQ(late->error().code, Code::timeout);
  EXPECT_NE(late->error().text.find("300 ms"), std::string::npos) << late->error().text;
}

TEST_F(Client, answers_that_are_none_are_protocol_errors) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: ";
  const std::pair<std::string, Code> cases[] = {
      {"SSH-2.0-OpenSSH_9.2\r\n\r\n", Code::protocol},
      {std::string("KVF1\0\0\0\0\0\0\0\0", 12), Code::protocol},
      {head + "2\r\n\r\nOK", Code::protocol},
      {head + "2\r\n\r\n{}", Code::protocol},
      {head + "9999999\r\n\r\n{", Code::protocol},
      {head + "100\r\n\r\n{", Code::unreachable},
      {"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", Code::protocol},
      {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Code::unreachable},
      {"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", Code::protocol},
  };
  for (const auto& [bytes, code] : cases) {
    FixedServer server(loop, bytes);
    const auto answer = sizes(server.address());
    ASSERT_FALSE(answer) << bytes;
    EXPECT_EQ(answer.error().code, code) << bytes << ": " << answer.error().text;
  }
}

}  // namespace
}  // namespace kvferry::net
