#include "net/http_routes.h"

#include <gtest/gtest.h>

#include "net/registration_json.h"

namespace kvferry::net {
namespace {

constexpr const char* sglang_put =
    R"({"role":"Prefill","tp_size":1,"dp_size":1,"rank_ip":"10.0.0.7","rank_port":9000,"engine_rank":0})";
constexpr const char* our_put =
    R"({"role":"Prefill","tp_size":1,"dp_size":1,"rank_ip":"10.0.0.7","rank_port":9000,"engine_rank":0,)"
    R"("instance":"pre-a","incarnation":"000000000000000000000000000000ab","lease_ttl_ms":15000})";

std::string header(const HttpAnswer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(HttpRoutes, an_engine_that_registers_once_hears_two_letters_and_is_found) {
  HttpRoutes routes("");
  const auto put = routes.answer({.method = "PUT", .target = "/route", .body = sglang_put}, Instant{});
  EXPECT_EQ(put.status, 200u);
  EXPECT_EQ(put.body, "OK");
  EXPECT_FALSE(put.json);
  const auto get = routes.answer({.method = "GET", .target = "/route?engine_rank=0&target_dp_group=0"},
                                 Instant{} + std::chrono::hours(1'000));
  EXPECT_EQ(get.status, 200u);
  EXPECT_EQ(parse_route(get.body)->address, (Address{"10.0.0.7", 9'000}));
}

TEST(HttpRoutes, ours_hears_its_lease_and_every_answer_names_the_instance) {
  HttpRoutes routes("");
  const auto put = routes.answer({.method = "PUT", .target = "/route", .body = our_put}, Instant{});
  EXPECT_EQ(put.status, 200u);
  EXPECT_EQ(parse_registration_answer(put.body)->generation, 1u);
  for (const char* target : {"/route?engine_rank=0&target_dp_group=0", "/route?engine_rank=-1&target_dp_group=-1",
                             "/health", "/route", "/nothing"}) {
    const auto answer = routes.answer({.method = "GET", .target = target}, Instant{});
    EXPECT_EQ(header(answer, header_instance), "pre-a") << target;
  }
}

TEST(HttpRoutes, whole_sizes_are_answered_as_they_were_registered) {
  HttpRoutes routes("");
  for (int rank = 0; rank < 4; ++rank) {
    const std::string body = R"({"role":"Prefill","tp_size":4,"dp_size":2,"rank_ip":"10.0.0.7","rank_port":9000,)"
                             R"("engine_rank":)" +
                             std::to_string(rank) + "}";
    EXPECT_EQ(routes.answer({.method = "PUT", .target = "/route", .body = body}, Instant{}).status, 200u);
  }
  const auto sizes = routes.answer({.method = "GET", .target = "/route?engine_rank=-1&target_dp_group=-1"}, Instant{});
  EXPECT_NE(sizes.body.find("\"prefill_tp_size\":4"), std::string::npos) << sizes.body;
  EXPECT_NE(sizes.body.find("\"prefill_dp_size\":2"), std::string::npos) << sizes.body;
  EXPECT_EQ(routes.answer({.method = "GET", .target = "/route?engine_rank=1&target_dp_group=1"}, Instant{}).status,
            200u);
  EXPECT_EQ(routes.answer({.method = "GET", .target = "/route?engine_rank=2&target_dp_group=0"}, Instant{}).status,
            404u);
}

TEST(HttpRoutes, every_refusal_has_its_status_and_says_why) {
  struct Case {
    const char* method;
    const char* target;
    const char* body;
    unsigned status;
  };
  const Case cases[] = {
      {"GET", "/route?engine_rank=0&target_dp_group=0", "", 503},
      {"GET", "/route?engine_rank=-1&target_dp_group=-1", "", 503},
      {"GET", "/route", "", 400},
      {"GET", "/route?engine_rank=x&target_dp_group=0", "", 400},
      {"PUT", "/route", "", 400},
      {"PUT", "/route", "{\"role\":\"Prefill\"}", 400},
      {"DELETE", "/route", "", 400},
      {"DELETE", "/route?lease=zz", "", 400},
      {"DELETE", "/route?lease=00000000000000000000000000000001", "", 200},
      {"POST", "/route", "", 405},
      {"PATCH", "/route", "", 405},
      {"PUT", "/health", "", 405},
      {"GET", "/health", "", 200},
      {"GET", "/", "", 404},
      {"GET", "", "", 404},
      {"GET", "/routes", "", 404},
      {"GET", "/route/", "", 404},
  };
  for (const Case& each : cases) {
    HttpRoutes routes("");
    const auto answer = routes.answer({.method = each.method, .target = each.target, .body = each.body}, Instant{});
    EXPECT_EQ(answer.status, each.status) << each.method << " " << each.target;
    EXPECT_EQ(answer.body.starts_with("{\"error\":\""), answer.status != 200) << answer.body;
    EXPECT_EQ(header(answer, "Allow").empty(), answer.status != 405);
  }
}

TEST(HttpRoutes, a_replaced_lease_is_a_conflict_and_deletion_takes_the_rank_away) {
  HttpRoutes routes("");
  const HttpRequest put{.method = "PUT", .target = "/route", .body = our_put};
  const auto old = parse_registration_answer(routes.answer(put, Instant{}).body);
  const auto fresh = parse_registration_answer(routes.answer(put, Instant{}).body);
  ASSERT_TRUE(old && fresh);
  Registration renewal = *parse_registration(our_put);
  renewal.lease = old->lease;
  const auto refused =
      routes.answer({.method = "PUT", .target = "/route", .body = write_registration(renewal)}, Instant{});
  EXPECT_EQ(refused.status, 409u);
  EXPECT_NE(refused.body.find("replaced"), std::string::npos) << refused.body;
  routes.answer({.method = "DELETE", .target = "/route?lease=" + to_hex(fresh->lease)}, Instant{});
  EXPECT_EQ(routes.answer({.method = "GET", .target = "/route?engine_rank=0&target_dp_group=0"}, Instant{}).status,
            503u);
}

class HttpToken : public ::testing::Test {
 protected:
  HttpRequest challenged(HttpRequest request) {
    request.nonce = nonce;
    const auto answer = routes.answer(request, now);
    EXPECT_EQ(answer.status, 401u);
    request.challenge = header(answer, header_challenge);
    EXPECT_EQ(request.challenge.size(), 32u);
    return request;
  }
  void prove(HttpRequest& request, const std::string& token = "secret") const {
    request.proof =
        prove_request(token, request.method, request.target, request.body, request.nonce, request.challenge);
  }
  std::size_t registered() {
    return routes.answer({.method = "GET", .target = "/route?engine_rank=0&target_dp_group=0"}, now).status == 200;
  }

  const std::string nonce = "0123456789abcdef0123456789abcdef";
  HttpRoutes routes{"secret"};
  Instant now{};
  const HttpRequest put{.method = "PUT", .target = "/route", .body = our_put};
};

TEST_F(HttpToken, a_proven_registration_is_taken_and_its_answer_proven) {
  HttpRequest request = challenged(put);
  prove(request);
  const auto answer = routes.answer(request, now);
  EXPECT_EQ(answer.status, 200u);
  EXPECT_EQ(header(answer, header_proof), prove_answer("secret", 200, answer.body, nonce, request.challenge));
  EXPECT_TRUE(registered());
}

TEST_F(HttpToken, without_a_proof_nothing_is_taken) {
  EXPECT_EQ(routes.answer(put, now).status, 401u);
  HttpRequest request = challenged(put);
  EXPECT_EQ(routes.answer(request, now).status, 401u);
  EXPECT_FALSE(registered());
}

TEST_F(HttpToken, a_wrong_token_a_changed_body_and_a_second_use_are_refused) {
  HttpRequest wrong = challenged(put);
  prove(wrong, "guess");
  EXPECT_EQ(routes.answer(wrong, now).status, 401u);

  HttpRequest changed = challenged(put);
  prove(changed);
  changed.body.back() = ' ';
  EXPECT_EQ(routes.answer(changed, now).status, 401u);

  HttpRequest other_method = challenged(put);
  prove(other_method);
  other_method.method = "DELETE";
  EXPECT_EQ(routes.answer(other_method, now).status, 401u);
  EXPECT_FALSE(registered());

  HttpRequest twice = challenged(put);
  prove(twice);
  EXPECT_EQ(routes.answer(twice, now).status, 200u);
  EXPECT_EQ(routes.answer(twice, now).status, 401u);
}

TEST_F(HttpToken, a_challenge_runs_out_and_deletion_needs_a_proof_too) {
  HttpRequest late = challenged(put);
  prove(late);
  now += std::chrono::minutes(1);
  EXPECT_EQ(routes.answer(late, now).status, 401u);
  EXPECT_EQ(routes.answer({.method = "DELETE", .target = "/route?lease=00000000000000000000000000000001"}, now).status,
            401u);
}

}  // namespace
}  // namespace kvferry::net
