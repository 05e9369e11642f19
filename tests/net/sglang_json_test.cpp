#include "net/sglang_json.h"

#include <gtest/gtest.h>

#include "net/http_routes.h"
#include "net/registration_json.h"

namespace kvferry::net {
namespace {

// What a prefill rank of SGLang 0.5 sends; `changed` replaces or adds fields.
std::string sglang_put(boost::json::object changed = {}) {
  boost::json::object body{{"attn_tp_size", 2},
                           {"attn_tp_rank", 1},
                           {"attn_cp_size", 1},
                           {"attn_cp_rank", 0},
                           {"attn_dp_size", 1},
                           {"attn_dp_rank", 0},
                           {"pp_size", 1},
                           {"pp_rank", 0},
                           {"system_dp_size", 1},
                           {"system_dp_rank", 0},
                           {"rank_ip", "10.0.0.7"},
                           {"rank_port", 9000},
                           {"page_size", 64},
                           {"kv_cache_dtype", "bfloat16"},
                           {"kv_layout", nullptr},
                           {"dsv41_spec_layout", nullptr},
                           {"load_balance_method", "round_robin"},
                           {"enable_dsa_cache_layer_split", false},
                           {"enable_kv_cache_sharding", false},
                           {"prefill_http_port", 30000},
                           {"decode_allocation_policy", "early"}};
  for (const auto& field : changed) body[field.key()] = field.value();
  return boost::json::serialize(body);
}

boost::json::object object_of(const HttpAnswer& answer) { return boost::json::parse(answer.body).as_object(); }

constexpr const char* sizes_target = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1";

TEST(SglangJson, groups_of_attention_or_of_the_system_become_the_place) {
  const auto attention = parse_registration(sglang_put({{"attn_dp_size", 4}, {"attn_dp_rank", 3}}));
  ASSERT_TRUE(attention);
  EXPECT_EQ(attention->place, (Place{.dp = 3, .tp = 1, .pp = 0, .cp = 0}));
  EXPECT_EQ(attention->parallel, (Parallel{.tp = 2, .dp = 4, .pp = 1, .cp = 1}));
  const auto system = parse_registration(sglang_put({{"system_dp_size", 8}, {"system_dp_rank", 5}}));
  ASSERT_TRUE(system);
  EXPECT_EQ(system->place.dp, 5u);
  EXPECT_EQ(system->parallel.dp, 8u);
}

TEST(SglangJson, a_field_that_cannot_be_is_named) {
  for (const auto& [field, value] : boost::json::object{{"attn_tp_size", 0},
                                                        {"attn_tp_rank", 2},
                                                        {"attn_cp_rank", 1},
                                                        {"pp_rank", 1},
                                                        {"system_dp_rank", 1},
                                                        {"rank_port", 0},
                                                        {"rank_ip", "0.0.0.0"}}) {
    const auto registration = parse_registration(sglang_put({{field, value}}));
    ASSERT_FALSE(registration) << field;
    EXPECT_NE(registration.error().text.find(std::string(field)), std::string::npos) << registration.error().text;
  }
  EXPECT_FALSE(parse_registration(sglang_put({{"kv_layout", std::string(5'000, 'x')}})));
}

TEST(SglangJson, sizes_tell_what_the_engine_said_of_itself) {
  HttpRoutes routes("");
  const HttpRequest ask{.method = "GET", .target = sizes_target};
  EXPECT_EQ(routes.answer(ask, Instant{}).status, 503u);
  routes.answer({.method = "PUT", .target = "/route", .body = sglang_put()}, Instant{});
  EXPECT_EQ(routes.answer(ask, Instant{}).status, 503u) << "one rank of two";
  routes.answer({.method = "PUT", .target = "/route", .body = sglang_put({{"attn_tp_rank", 0}})}, Instant{});
  const auto answer = routes.answer(ask, Instant{});
  ASSERT_EQ(answer.status, 200u) << answer.body;
  const boost::json::object expected{{"attn_tp_size", 2},
                                     {"attn_cp_size", 1},
                                     {"dp_size", 1},
                                     {"pp_size", 1},
                                     {"page_size", 64},
                                     {"kv_cache_dtype", "bfloat16"},
                                     {"follow_bootstrap_room", false},
                                     {"enable_dsa_cache_layer_split", false},
                                     {"decode_allocation_policy", "early"},
                                     {"enable_kv_cache_sharding", false},
                                     {"prefill_http_port", 30000},
                                     {"target_tp_rank", nullptr},
                                     {"target_tp_ranks", nullptr},
                                     {"target_cp_ranks", nullptr},
                                     {"target_pp_ranks", nullptr},
                                     {"required_dst_info_num", nullptr},
                                     {"required_prefill_response_num", nullptr}};
  EXPECT_EQ(object_of(answer), expected);
}

TEST(SglangJson, a_rank_is_found_by_either_form_of_the_query) {
  HttpRoutes routes("");
  routes.answer({.method = "PUT", .target = "/route", .body = sglang_put()}, Instant{});
  routes.answer({.method = "PUT", .target = "/route", .body = sglang_put({{"attn_tp_rank", 0}, {"rank_port", 9001}})},
                Instant{});
  const auto newer = routes.answer(
      {.method = "GET", .target = "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"},
      Instant{});
  EXPECT_EQ(object_of(newer), (boost::json::object{{"rank_ip", "10.0.0.7"}, {"rank_port", 9001}}));
  const auto older = routes.answer({.method = "GET", .target = "/route?engine_rank=1&target_dp_group=0"}, Instant{});
  EXPECT_EQ(object_of(older).at("rank_port"), 9000);
  for (const char* target : {"/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0",
                             "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=-1&target_pp_rank=0"}) {
    EXPECT_EQ(routes.answer({.method = "GET", .target = target}, Instant{}).status, 400u) << target;
  }
  EXPECT_EQ(routes
                .answer({.method = "GET",
                         .target = "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=7&target_pp_rank=0"},
                        Instant{})
                .status,
            404u);
}

TEST(SglangJson, attributes_of_our_ranks_answer_the_newer_query) {
  Registration mine;
  mine.address = Address{"10.0.0.7", 9'000};
  mine.leased = true;
  mine.ttl = std::chrono::seconds(5);
  mine.attributes = R"({"page_size":16,"load_balance_method":"follow_bootstrap_room"})";
  HttpRoutes routes("");
  const HttpRequest put{.method = "PUT", .target = "/route", .body = write_registration(mine)};
  ASSERT_EQ(routes.answer(put, Instant{}).status, 200u);
  const auto sizes = object_of(routes.answer({.method = "GET", .target = sizes_target}, Instant{}));
  EXPECT_EQ(sizes.at("page_size"), 16);
  EXPECT_EQ(sizes.at("follow_bootstrap_room"), true);
  EXPECT_EQ(sizes.at("kv_cache_dtype"), nullptr);
  EXPECT_FALSE(check_attributes("[1]"));
  EXPECT_FALSE(check_attributes("{"));
  EXPECT_FALSE(check_attributes(R"({"a":")" + std::string(5'000, 'x') + "\"}"));
  EXPECT_TRUE(check_attributes(""));
}

HttpAnswer post(HttpRoutes& routes, const char* target, const std::string& body, Instant now = {}) {
  return routes.answer({.method = "POST", .target = target, .body = body}, now);
}

TEST(SglangJson, rooms_tell_their_group_for_two_minutes) {
  HttpRoutes routes("");
  const auto put = post(routes, "/register_dp_rank", R"({"bootstrap_room":9223372036854775807,"dp_rank":3})");
  EXPECT_EQ(put.body, "OK");
  const std::string rooms = R"({"bootstrap_rooms":[9223372036854775807,8]})";
  EXPECT_EQ(object_of(post(routes, "/query_dp_ranks", rooms)), (boost::json::object{{"9223372036854775807", 3}}));
  EXPECT_TRUE(object_of(post(routes, "/query_dp_ranks", rooms, Instant{} + DpRanks::kept)).empty());
  for (const char* body : {"", "{}", R"({"bootstrap_room":-1,"dp_rank":0})", R"({"bootstrap_room":1,"dp_rank":"0"})"}) {
    EXPECT_EQ(post(routes, "/register_dp_rank", body).status, 400u) << body;
  }
  for (const char* body : {"", "{}", R"({"bootstrap_rooms":7})", R"({"bootstrap_rooms":["x"]})"}) {
    EXPECT_EQ(post(routes, "/query_dp_ranks", body).status, 400u) << body;
  }
  EXPECT_EQ(routes.answer({.method = "GET", .target = "/query_dp_ranks"}, Instant{}).status, 405u);
}

TEST(SglangJson, with_a_token_only_who_proves_it_says_where_a_room_is) {
  HttpRoutes routes("secret");
  EXPECT_EQ(post(routes, "/register_dp_rank", R"({"bootstrap_room":1,"dp_rank":3})").status, 401u);
  EXPECT_TRUE(object_of(post(routes, "/query_dp_ranks", R"({"bootstrap_rooms":[1]})")).empty());
}

TEST(DpRanks, the_oldest_goes_at_the_bound_and_a_later_put_counts) {
  DpRanks ranks(2);
  ranks.put(1, 0, Instant{});
  ranks.put(1, 4, Instant{} + std::chrono::seconds(1));
  EXPECT_EQ(ranks.find(1, Instant{} + DpRanks::kept), 4u);
  ranks.put(2, 0, Instant{} + std::chrono::seconds(2));
  ranks.put(3, 0, Instant{} + std::chrono::seconds(3));
  EXPECT_EQ(ranks.rooms(), 2u);
  EXPECT_FALSE(ranks.find(1, Instant{} + std::chrono::seconds(3)));
}

}  // namespace
}  // namespace kvferry::net
