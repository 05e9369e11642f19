#include "net/registration_json.h"

#include <gtest/gtest.h>

namespace kvferry::net {
namespace {

struct BadBody {
  const char* name;
  std::string body;
  const char* names;  // what the error must name
};
std::ostream& operator<<(std::ostream& out, const BadBody& bad) { return out << bad.name; }

// A good registration with one field replaced.
std::string with(const std::string& field, const std::string& value) {
  const std::pair<const char*, const char*> fields[] = {
      {"role", "\"Prefill\""}, {"tp_size", "8"},     {"dp_size", "2"},
      {"rank_port", "9000"},   {"engine_rank", "5"}, {"rank_ip", "\"10.0.0.7\""},
  };
  std::string body;
  bool replaced = false;
  for (const auto& [name, usual] : fields) {
    const bool mine = name == field;
    replaced |= mine;
    if (mine && value.empty()) continue;
    body += (body.empty() ? "{\"" : ",\"") + std::string(name) + "\":" + (mine ? value : usual);
  }
  if (!replaced && !value.empty()) body += ",\"" + field + "\":" + value;
  return body + "}";
}

class BadBodies : public ::testing::TestWithParam<BadBody> {};

TEST_P(BadBodies, are_refused_by_name) {
  const auto registration = parse_registration(GetParam().body);
  ASSERT_FALSE(registration) << GetParam().body;
  EXPECT_EQ(registration.error().code, Code::invalid_argument);
  EXPECT_NE(registration.error().text.find(GetParam().names), std::string::npos) << registration.error().text;
}

INSTANTIATE_TEST_SUITE_P(
    RegistrationJson, BadBodies,
    ::testing::Values(
        BadBody{"empty", "", "JSON"}, BadBody{"no_json", "tp_size=8", "JSON"}, BadBody{"cut", "{\"role\":", "JSON"},
        BadBody{"array", "[1,2]", "object"}, BadBody{"deep", std::string(10'000, '['), "JSON"},
        BadBody{"role_missing", with("role", ""), "role"}, BadBody{"role_decode", with("role", "\"Decode\""), "role"},
        BadBody{"role_number", with("role", "1"), "role"}, BadBody{"tp_missing", with("tp_size", ""), "tp_size"},
        BadBody{"tp_zero", with("tp_size", "0"), "tp_size"}, BadBody{"tp_negative", with("tp_size", "-8"), "tp_size"},
        BadBody{"tp_text", with("tp_size", "\"8\""), "tp_size"}, BadBody{"tp_real", with("tp_size", "8.0"), "tp_size"},
        BadBody{"tp_true", with("tp_size", "true"), "tp_size"}, BadBody{"tp_null", with("tp_size", "null"), "tp_size"},
        BadBody{"tp_huge", with("tp_size", "18446744073709551616"), "tp_size"},
        BadBody{"tp_large", with("tp_size", "65537"), "tp_size"}, BadBody{"dp_zero", with("dp_size", "0"), "dp_size"},
        BadBody{"not_divisible", with("dp_size", "3"), "multiple of dp_size"},
        BadBody{"rank_beyond", with("engine_rank", "8"), "engine_rank"},
        BadBody{"rank_negative", with("engine_rank", "-1"), "engine_rank"},
        BadBody{"port_zero", with("rank_port", "0"), "rank_port"},
        BadBody{"port_large", with("rank_port", "65536"), "rank_port"},
        BadBody{"port_text", with("rank_port", "\"9000\""), "rank_port"},
        BadBody{"ip_missing", with("rank_ip", ""), "rank_ip"}, BadBody{"ip_number", with("rank_ip", "10"), "rank_ip"},
        BadBody{"ip_empty", with("rank_ip", "\"\""), "rank_ip"},
        BadBody{"ip_with_port", with("rank_ip", "\"10.0.0.1:80\""), "rank_ip"},
        BadBody{"ip_wildcard", with("rank_ip", "\"0.0.0.0\""), "rank_ip"},
        BadBody{"ip_wildcard6", with("rank_ip", "\"::\""), "rank_ip"},
        BadBody{"ip_spaces", with("rank_ip", "\"a b\""), "rank_ip"},
        BadBody{"ip_scope", with("rank_ip", "\"fe80::1%a\\r\\nb\""), "rank_ip"},
        BadBody{"ip_zero_byte", with("rank_ip", "\"10.0.0.1\\u0000\""), "rank_ip"},
        BadBody{"ip_long", with("rank_ip", "\"" + std::string(300, 'a') + "\""), "rank_ip"},
        BadBody{"pp_zero", with("pp_size", "0"), "pp_size"}, BadBody{"pp_rank_beyond", with("pp_rank", "1"), "pp_rank"},
        BadBody{"instance_breaks_header", with("instance", "\"a\\r\\nX: y\""), "instance"},
        BadBody{"instance_empty", with("instance", "\"\""), "instance"},
        BadBody{"instance_long", with("instance", "\"" + std::string(200, 'a') + "\""), "instance"},
        BadBody{"incarnation_short", with("incarnation", "\"abc\""), "incarnation"},
        BadBody{"incarnation_no_hex", with("incarnation", "\"" + std::string(32, 'g') + "\""), "incarnation"},
        BadBody{"incarnation_signed", with("incarnation", "\"-" + std::string(31, '1') + "\""), "incarnation"},
        BadBody{"ttl_zero", with("lease_ttl_ms", "0"), "lease_ttl_ms"},
        BadBody{"ttl_days", with("lease_ttl_ms", "604800001"), "lease_ttl_ms"},
        BadBody{"lease_alone", with("lease", "\"" + std::string(32, '1') + "\""), "lease_ttl_ms"},
        BadBody{"lease_bad", with("lease_ttl_ms", "1000,\"lease\":7"), "lease"}),
    [](const auto& test) { return test.param.name; });

TEST(RegistrationJson, the_rank_of_the_whole_instance_becomes_a_place_in_its_group) {
  const auto registration = parse_registration(with("", ""));
  ASSERT_TRUE(registration) << registration.error().text;
  EXPECT_EQ(registration->parallel, (Parallel{.tp = 4, .dp = 2, .pp = 1}));
  EXPECT_EQ(registration->place, (Place{.dp = 1, .tp = 1, .pp = 0}));
  EXPECT_EQ(registration->address, (Address{"10.0.0.7", 9'000}));
  EXPECT_FALSE(registration->leased);
  EXPECT_TRUE(registration->instance.empty());
}

TEST(RegistrationJson, addresses_of_every_kind_pass) {
  for (const char* host : {"fd00::7", "fe80::1%eth0", "prefill-0.example", "127.0.0.1"}) {
    const auto registration = parse_registration(with("rank_ip", "\"" + std::string(host) + "\""));
    ASSERT_TRUE(registration) << registration.error().text;
    EXPECT_EQ(registration->address.host, host);
  }
}

TEST(RegistrationJson, what_is_written_is_read_back) {
  Registration registration;
  registration.instance = "prefill-a";
  registration.parallel = {.tp = 4, .dp = 2, .pp = 3};
  registration.place = {.dp = 1, .tp = 2, .pp = 1};
  registration.address = {"fd00::1", 4'000};
  registration.incarnation = Incarnation{Bits128{~0ull, 5}};
  registration.lease = Bits128{3, 4};
  registration.leased = true;
  registration.ttl = std::chrono::milliseconds(1'500);
  registration.start_number = ~0ull;
  const auto back = parse_registration(write_registration(registration));
  ASSERT_TRUE(back) << back.error().text;
  EXPECT_EQ(back->instance, registration.instance);
  EXPECT_EQ(back->parallel, registration.parallel);
  EXPECT_EQ(back->place, registration.place);
  EXPECT_EQ(back->address, registration.address);
  EXPECT_EQ(back->incarnation, registration.incarnation);
  EXPECT_EQ(back->lease, registration.lease);
  EXPECT_EQ(back->ttl, registration.ttl);
  EXPECT_EQ(back->start_number, registration.start_number);
}

TEST(RegistrationJson, answers_are_read_back_and_strange_ones_are_protocol_errors) {
  Route route;
  route.address = Address{"10.0.0.1", 5};
  route.instance = "i";
  route.incarnation = Incarnation{Bits128{1, 2}};
  route.generation = 9;
  const auto back = parse_route(write_route(route));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->address, route.address);
  EXPECT_EQ(back->incarnation, route.incarnation);
  EXPECT_EQ(back->generation, 9u);
  EXPECT_TRUE(parse_route("{\"rank_ip\":\"10.0.0.1\",\"rank_port\":5}")) << "what an engine's own server says";
  EXPECT_EQ(parse_route("{\"rank_ip\":\"10.0.0.1\",\"rank_port\":0}").error().code, Code::protocol);
  const auto sizes = parse_sizes("{\"prefill_tp_size\":8,\"prefill_dp_size\":2}");
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->parallel, (Parallel{.tp = 4, .dp = 2, .pp = 1}));
  for (const char* bad :
       {"", "OK", "{}", "{\"prefill_tp_size\":null,\"prefill_dp_size\":null}",
        "{\"prefill_tp_size\":8,\"prefill_dp_size\":3}", "{\"prefill_tp_size\":8,\"prefill_dp_size\":0}"}) {
    const auto refused = parse_sizes(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, Code::protocol);
  }
  EXPECT_EQ(parse_registration_answer("OK").error().code, Code::protocol);
}

TEST(RegistrationJson, queries_name_a_place_or_ask_for_the_sizes) {
  EXPECT_FALSE(parse_route_query("engine_rank=-1&target_dp_group=-1")->place.has_value());
  EXPECT_EQ(parse_route_query("engine_rank=3&target_dp_group=1")->place, (Place{.dp = 1, .tp = 3, .pp = 0}));
  EXPECT_EQ(parse_route_query("pp_rank=2&x=y&target_dp_group=0&engine_rank=3")->place,
            (Place{.dp = 0, .tp = 3, .pp = 2}));
  for (const char* bad :
       {"", "engine_rank=1", "target_dp_group=1", "engine_rank=&target_dp_group=", "engine_rank=-1&target_dp_group=0",
        "engine_rank=0&target_dp_group=-1", "engine_rank=-2&target_dp_group=-2", "engine_rank=a&target_dp_group=0",
        "engine_rank=1e3&target_dp_group=0", "engine_rank=99999999999999999999&target_dp_group=0",
        "engine_rank=1&engine_rank=2&target_dp_group=0", "engine_rank=0&target_dp_group=0&pp_rank=-1",
        "engine_rank=0&target_dp_group=0&pp_rank=x", "&&&", "=&=", "engine_rank=0 &target_dp_group=0"}) {
    const auto query = parse_route_query(bad);
    ASSERT_FALSE(query) << bad;
    EXPECT_EQ(query.error().code, Code::invalid_argument);
  }
}

}  // namespace
}  // namespace kvferry::net
