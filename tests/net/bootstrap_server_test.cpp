#include "net/bootstrap_server.h"

#include <gtest/gtest.h>

#include "loop_support.h"

namespace kvferry::net {
namespace {

using net_test::RawClient;
using net_test::run_until;

constexpr const char* put_body =
    R"({"role":"Prefill","tp_size":1,"dp_size":1,"rank_ip":"10.0.0.7","rank_port":9000,"engine_rank":0,)"
    R"("instance":"pre-a"})";

std::string request(const std::string& method, const std::string& target, const std::string& body = "",
                    const std::string& more_headers = "") {
  return method + " " + target + " HTTP/1.1\r\nHost: b\r\n" + more_headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class Server : public ::testing::Test {
 protected:
  void open(HttpLimits limits = {}, const Settings& settings = {}) {
    auto opened = HttpBootstrapServer::open(loop, {"127.0.0.1", 0}, settings, limits);
    ASSERT_TRUE(opened) << opened.error().text;
    server = std::move(*opened);
  }
  // The answer to bytes on a connection of their own, which the server is made to close.
  std::string ask(const std::string& bytes) {
    RawClient client(loop, server->address());
    client.write(bytes);
    client.shut_down_writing();
    EXPECT_TRUE(client.wait_closed());
    return client.text;
  }
  boost::asio::io_context loop;
  std::unique_ptr<HttpBootstrapServer> server;
};

TEST_F(Server, health_answers_ok) {
  open();
  const std::string answer = ask(request("GET", "/health"));
  EXPECT_EQ(answer.find("HTTP/1.1 200 OK\r\n"), 0u) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nOK")) << answer;
}

TEST_F(Server, a_registered_rank_is_found_and_the_instance_is_in_every_answer) {
  open();
  EXPECT_TRUE(ask(request("PUT", "/route", put_body)).ends_with("\r\n\r\nOK"));
  const std::string answer = ask(request("GET", "/route?engine_rank=0&target_dp_group=0"));
  EXPECT_NE(answer.find("\"rank_ip\":\"10.0.0.7\""), std::string::npos) << answer;
  EXPECT_NE(answer.find("application/json"), std::string::npos) << answer;
  for (const char* target : {"/health", "/route", "/nothing"}) {
    EXPECT_NE(ask(request("GET", target)).find("X-Kvferry-Instance: pre-a\r\n"), std::string::npos) << target;
  }
}

TEST_F(Server, several_requests_share_a_connection) {
  open();
  RawClient client(loop, server->address());
  for (int i = 1; i <= 3; ++i) {
    client.text.clear();
    client.write(request("GET", "/health"));
    EXPECT_TRUE(client.wait_for("\r\n\r\nOK"));
  }
  client.text.clear();
  client.write(request("GET", "/health") + request("GET", "/nothing") + request("GET", "/health"));
  EXPECT_TRUE(run_until(loop, [&] {
    client.read();
    return client.text.find("404") != std::string::npos && client.text.ends_with("\r\n\r\nOK");
  }));
}

struct Bad {
  const char* name;
  std::string bytes;
  const char* status;
};
std::ostream& operator<<(std::ostream& out, const Bad& bad) { return out << bad.name; }

class BadRequests : public Server, public ::testing::WithParamInterface<Bad> {};

TEST_P(BadRequests, get_their_status_and_the_server_goes_on) {
  open();
  const std::string answer = ask(GetParam().bytes);
  EXPECT_EQ(answer.find("HTTP/1.1 " + std::string(GetParam().status)), 0u) << answer;
  EXPECT_NE(answer.find("{\"error\":\""), std::string::npos) << answer;
  EXPECT_TRUE(ask(request("GET", "/health")).ends_with("\r\n\r\nOK"));
}

INSTANTIATE_TEST_SUITE_P(
    BootstrapServer, BadRequests,
    ::testing::Values(
        Bad{"no_http", "hello there\r\n\r\n", "400"},
        Bad{"control_frame", std::string("KVF1\x10\0\0\0\0\0\0\0", 12) + std::string(16, 'x'), "400"},
        Bad{"tls", std::string("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n", 15), "400"},
        Bad{"bad_version", "GET /health HTTP/9.9\r\n\r\n", "400"},
        Bad{"bad_length", "PUT /route HTTP/1.1\r\nHost: b\r\nContent-Length: -1\r\n\r\n", "400"},
        Bad{"two_lengths", "PUT /route HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
        Bad{"bad_chunk", "PUT /route HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
        Bad{"large_body", request("PUT", "/route", std::string(64 * 1024 + 1, 'x')), "413"},
        Bad{"claimed_body", "PUT /route HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "413"},
        Bad{"large_header", request("GET", "/health", "", "X-Long: " + std::string(9'000, 'x') + "\r\n"), "431"},
        Bad{"long_target", "GET /" + std::string(9'000, 'x') + " HTTP/1.1\r\n\r\n", "431"},
        Bad{"no_json", request("PUT", "/route", "tp_size=1"), "400"}, Bad{"no_query", request("GET", "/route"), "400"},
        Bad{"wrong_method", request("POST", "/route", "{}"), "405"}, Bad{"unknown_path", request("GET", "/"), "404"},
        Bad{"nobody_registered", request("GET", "/route?engine_rank=0&target_dp_group=0"), "503"}),
    [](const auto& test) { return test.param.name; });

TEST_F(Server, a_client_that_asks_before_it_sends_its_body_is_told_to_go_on) {
  open();
  RawClient client(loop, server->address());
  client.write("PUT /route HTTP/1.1\r\nHost: b\r\nExpect: 100-continue\r\nContent-Length: " +
               std::to_string(std::string(put_body).size()) + "\r\n\r\n");
  EXPECT_TRUE(client.wait_for("100 Continue\r\n\r\n"));
  client.write(put_body);
  EXPECT_TRUE(client.wait_for("200 OK"));
}

TEST_F(Server, half_a_request_and_then_silence_is_closed_and_holds_up_nobody) {
  open({.request_timeout = Settings::Millis(100)});
  RawClient silent(loop, server->address());
  silent.write("PUT /route HTTP/1.1\r\nContent-Le");
  EXPECT_TRUE(ask(request("GET", "/health")).ends_with("\r\n\r\nOK"));
  EXPECT_TRUE(silent.wait_closed());
  EXPECT_EQ(silent.text, "");
}

TEST_F(Server, one_connection_too_many_is_told_to_come_back) {
  open({.connections_max = 2});
  RawClient first(loop, server->address());
  first.write(request("GET", "/health"));
  EXPECT_TRUE(first.wait_for("OK"));
  RawClient second(loop, server->address());
  second.write(request("GET", "/health"));
  EXPECT_TRUE(second.wait_for("OK"));
  RawClient third(loop, server->address());
  EXPECT_TRUE(third.wait_closed());
  EXPECT_EQ(third.text.find("HTTP/1.1 503 "), 0u) << third.text;
  first.close();
  EXPECT_TRUE(run_until(loop, [&] { return ask(request("GET", "/health")).ends_with("\r\n\r\nOK"); }));
}

TEST_F(Server, closing_it_closes_its_connections) {
  open();
  RawClient client(loop, server->address());
  client.write(request("GET", "/health"));
  EXPECT_TRUE(client.wait_for("OK"));
  server.reset();
  EXPECT_TRUE(client.wait_closed());
}

TEST_F(Server, a_port_in_use_is_named) {
  open();
  const auto second = HttpBootstrapServer::open(loop, server->address(), {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unreachable);
  EXPECT_NE(second.error().text.find("already in use"), std::string::npos) << second.error().text;
}

TEST_F(Server, a_public_address_needs_a_token) {
  const auto refused = HttpBootstrapServer::open(loop, {"8.8.8.8", 0}, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unauthorized);
}

}  // namespace
}  // namespace kvferry::net
