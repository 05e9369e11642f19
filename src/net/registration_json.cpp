#include "net/registration_json.h"

#include <algorithm>
#include <charconv>

#include "base/try.h"
#include "net/json_fields.h"
#include "net/sglang_json.h"

namespace kvferry::net {
namespace {

namespace json = boost::json;

constexpr std::uint64_t size_max = 65'536;               // of one parallel dimension
constexpr std::uint64_t lease_ttl_ms_max = 604'800'000;  // a week, as long as settings go
constexpr std::size_t instance_bytes_max = 128;
constexpr std::size_t host_bytes_max = 253;

Result<Address> parse_rank_address(const JsonFields& fields) {
  KVF_TRY(host, fields.text("rank_ip", host_bytes_max));
  KVF_TRY(port, fields.number("rank_port", 1, 65'535));
  const auto scope = host.find('%');
  const bool scope_good =
      scope == std::string::npos || std::ranges::all_of(host.substr(scope + 1), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
      });
  const auto parsed = Address::parse(Address{host, static_cast<std::uint16_t>(port)}.text());
  const bool wildcard = host == "0.0.0.0" || host == "::";
  if (!parsed || !scope_good || wildcard) {
    return fields.bad("rank_ip", "an address or name under which decode ranks reach this rank");
  }
  return *parsed;
}

Result<void> parse_place(const JsonFields& fields, Registration& out) {
  KVF_TRY(tp_size, fields.number("tp_size", 1, size_max));
  KVF_TRY(dp_size, fields.number("dp_size", 1, size_max));
  if (tp_size % dp_size != 0) {
    return fields.bad("tp_size", "a multiple of dp_size, which is " + std::to_string(dp_size) +
                                     " (tp_size counts the ranks of the whole instance)");
  }
  KVF_TRY(engine_rank, fields.number("engine_rank", 0, tp_size - 1));
  KVF_TRY(pp_size, fields.number_or("pp_size", 1, size_max, 1));
  KVF_TRY(pp_rank, fields.number_or("pp_rank", 0, pp_size - 1, 0));
  KVF_TRY(cp_size, fields.number_or("cp_size", 1, size_max, 1));
  KVF_TRY(cp_rank, fields.number_or("cp_rank", 0, cp_size - 1, 0));
  const std::uint64_t group = tp_size / dp_size;
  out.parallel = {.tp = static_cast<std::uint32_t>(group),
                  .dp = static_cast<std::uint32_t>(dp_size),
                  .pp = static_cast<std::uint32_t>(pp_size),
                  .cp = static_cast<std::uint32_t>(cp_size)};
  out.place = {.dp = static_cast<std::uint32_t>(engine_rank / group),
               .tp = static_cast<std::uint32_t>(engine_rank % group),
               .pp = static_cast<std::uint32_t>(pp_rank),
               .cp = static_cast<std::uint32_t>(cp_rank)};
  return {};
}

Result<void> parse_lease(const JsonFields& fields, Registration& out) {
  if (fields.has("instance")) {
    KVF_TRY(instance, fields.text("instance", instance_bytes_max));
    // It is copied into a header of every answer.
    if (!std::ranges::all_of(instance, [](char c) { return c > ' ' && c < '\x7f'; })) {
      return fields.bad("instance", "visible ASCII characters without spaces");
    }
    out.instance = instance;
  }
  if (fields.has("incarnation")) {
    KVF_TRY(incarnation, fields.bits("incarnation"));
    out.incarnation = Incarnation{incarnation};
  }
  KVF_TRY(start_number, fields.number_or("start_number", 0, UINT64_MAX, 0));
  out.start_number = start_number;
  if (fields.has("lease_ttl_ms")) {
    KVF_TRY(ttl_ms, fields.number("lease_ttl_ms", 1, lease_ttl_ms_max));
    out.leased = true;
    out.ttl = std::chrono::milliseconds(ttl_ms);
  }
  if (fields.has("lease")) {
    if (!out.leased) return fields.bad("lease_ttl_ms", "the length of the lease that is renewed, in milliseconds");
    KVF_TRY(lease, fields.bits("lease"));
    out.lease = lease;
  }
  return {};
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The value of `name`; unknown names are skipped, a name that comes twice is refused by both its values.
Result<std::optional<std::string_view>> query_value(std::string_view query, std::string_view name) {
  std::optional<std::string_view> found;
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    const auto equals = item.find('=');
    if (item.substr(0, equals) != name || equals == std::string_view::npos) continue;
    if (found) return Error{Code::invalid_argument, "the query names \"" + std::string(name) + "\" twice"};
    found = item.substr(equals + 1);
  }
  return found;
}

Result<std::optional<std::int64_t>> query_integer(std::string_view query, std::string_view name) {
  KVF_TRY(value, query_value(query, name));
  if (!value) return std::optional<std::int64_t>{};
  const auto number = parse_integer(*value);
  if (!number || *number < -1 || *number > static_cast<std::int64_t>(size_max)) {
    return Error{Code::invalid_argument, "query \"" + std::string(name) + "\" is \"" +
                                             std::string(value->substr(0, 64)) + "\"; expected a rank, or -1"};
  }
  return number;
}

std::string hex_or_empty(const Bits128& bits) { return bits == Bits128{} ? std::string() : to_hex(bits); }

}  // namespace

std::optional<Bits128> parse_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Bits128 bits;
  for (int half = 0; half < 2; ++half) {
    const std::string_view digits = text.substr(16 * half, 16);
    std::uint64_t& word = half == 0 ? bits.high : bits.low;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), word, 16);
    if (failed != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  }
  return bits;
}

Result<Registration> parse_registration(std::string_view body) {
  KVF_TRY(fields, JsonFields::parse(body, Code::invalid_argument));
  Registration registration;
  if (is_sglang_registration(fields)) {
    KVF_CHECK(parse_sglang_place(fields, registration));
  } else {
    KVF_TRY(role, fields.text("role", 16));
    if (role != "Prefill" && role != "prefill") return fields.bad("role", "\"Prefill\": only prefill ranks register");
    KVF_CHECK(parse_place(fields, registration));
    KVF_TRY(attributes, parse_attributes(fields));
    registration.attributes = attributes;
  }
  KVF_TRY(address, parse_rank_address(fields));
  registration.address = address;
  KVF_CHECK(parse_lease(fields, registration));
  return registration;
}

std::string write_registration(const Registration& registration) {
  const Parallel& parallel = registration.parallel;
  const Place& place = registration.place;
  json::object body{{"role", "Prefill"},
                    {"tp_size", std::uint64_t{parallel.tp} * parallel.dp},
                    {"dp_size", parallel.dp},
                    {"rank_ip", registration.address.host},
                    {"rank_port", registration.address.port},
                    {"engine_rank", std::uint64_t{place.dp} * parallel.tp + place.tp},
                    {"pp_size", parallel.pp},
                    {"pp_rank", place.pp},
                    {"cp_size", parallel.cp},
                    {"cp_rank", place.cp}};
  if (!registration.instance.empty()) body["instance"] = registration.instance;
  if (registration.incarnation != Incarnation{}) body["incarnation"] = to_hex(registration.incarnation);
  if (registration.start_number != 0) body["start_number"] = registration.start_number;
  if (registration.leased) {
    body["lease_ttl_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(registration.ttl).count();
  }
  if (registration.lease) body["lease"] = to_hex(*registration.lease);
  if (!registration.attributes.empty()) body["attributes"] = json::parse(registration.attributes);
  return json::serialize(body);
}

std::string write_registration_answer(const RegistrationAnswer& answer) {
  return json::serialize(json::object{{"lease", to_hex(answer.lease)}, {"generation", answer.generation}});
}

Result<RegistrationAnswer> parse_registration_answer(std::string_view body) {
  KVF_TRY(fields, JsonFields::parse(body, Code::protocol));
  KVF_TRY(lease, fields.bits("lease"));
  KVF_TRY(generation, fields.number("generation", 1, UINT64_MAX));
  return RegistrationAnswer{lease, generation};
}

std::string write_route(const Route& route) {
  return json::serialize(json::object{{"rank_ip", route.address.host},
                                      {"rank_port", route.address.port},
                                      {"instance", route.instance},
                                      {"incarnation", hex_or_empty(route.incarnation)},
                                      {"generation", route.generation}});
}

Result<Route> parse_route(std::string_view body) {
  KVF_TRY(fields, JsonFields::parse(body, Code::protocol));
  Route route;
  KVF_TRY(address, parse_rank_address(fields));
  route.address = address;
  KVF_TRY(generation, fields.number_or("generation", 0, UINT64_MAX, 0));
  route.generation = generation;
  if (const auto instance = fields.text("instance", instance_bytes_max)) route.instance = *instance;
  if (const auto incarnation = fields.bits("incarnation")) route.incarnation = Incarnation{*incarnation};
  return route;
}

std::string write_sizes(const InstanceSizes& sizes) {
  return json::serialize(json::object{{"prefill_tp_size", std::uint64_t{sizes.parallel.tp} * sizes.parallel.dp},
                                      {"prefill_dp_size", sizes.parallel.dp},
                                      {"pp_size", sizes.parallel.pp},
                                      {"cp_size", sizes.parallel.cp},
                                      {"instance", sizes.instance}});
}

Result<InstanceSizes> parse_sizes(std::string_view body) {
  KVF_TRY(fields, JsonFields::parse(body, Code::protocol));
  KVF_TRY(tp_size, fields.number("prefill_tp_size", 1, size_max));
  KVF_TRY(dp_size, fields.number("prefill_dp_size", 1, size_max));
  KVF_TRY(pp_size, fields.number_or("pp_size", 1, size_max, 1));
  KVF_TRY(cp_size, fields.number_or("cp_size", 1, size_max, 1));
  if (tp_size % dp_size != 0) {
    return fields.bad("prefill_tp_size", "a multiple of prefill_dp_size, which is " + std::to_string(dp_size));
  }
  InstanceSizes sizes{.parallel = {.tp = static_cast<std::uint32_t>(tp_size / dp_size),
                                   .dp = static_cast<std::uint32_t>(dp_size),
                                   .pp = static_cast<std::uint32_t>(pp_size),
                                   .cp = static_cast<std::uint32_t>(cp_size)},
                      .instance = {},
                      .attributes = {}};
  if (const auto instance = fields.text("instance", instance_bytes_max)) sizes.instance = *instance;
  return sizes;
}

std::string write_error(const Error& error) {
  return json::serialize(json::object{{"error", error.text}, {"code", code_name(error.code)}});
}

std::string parse_error_text(std::string_view body) {
  if (const auto fields = JsonFields::parse(body, Code::protocol)) {
    if (const auto text = fields->text("error", 4'096)) return *text;
  }
  return std::string(body.substr(0, 200));
}

namespace {

// The form of SGLang 0.5; none of its names there: nothing.
Result<std::optional<RouteQuery>> parse_sglang_query(std::string_view query) {
  KVF_TRY(dp, query_integer(query, "prefill_dp_rank"));
  KVF_TRY(cp, query_integer(query, "prefill_cp_rank"));
  KVF_TRY(tp, query_integer(query, "target_tp_rank"));
  KVF_TRY(pp, query_integer(query, "target_pp_rank"));
  if (!dp && !cp && !tp && !pp) return std::optional<RouteQuery>{};
  const bool whole = dp && cp && tp && pp;
  if (whole && *dp == -1 && *cp == -1 && *tp == -1 && *pp == -1)
    return std::optional(RouteQuery{.place = {}, .sglang = true});
  if (!whole || *dp < 0 || *cp < 0 || *tp < 0 || *pp < 0) {
    return Error{Code::invalid_argument,
                 "the query needs prefill_dp_rank, prefill_cp_rank, target_tp_rank and target_pp_rank: the numbers of "
                 "a rank, or all -1 for the sizes"};
  }
  return std::optional(RouteQuery{.place = Place{.dp = static_cast<std::uint32_t>(*dp),
                                                 .tp = static_cast<std::uint32_t>(*tp),
                                                 .pp = static_cast<std::uint32_t>(*pp),
                                                 .cp = static_cast<std::uint32_t>(*cp)},
                                  .sglang = true});
}

}  // namespace

Result<RouteQuery> parse_route_query(std::string_view query) {
  KVF_TRY(sglang, parse_sglang_query(query));
  if (sglang) return *sglang;
  KVF_TRY(rank, query_integer(query, "engine_rank"));
  KVF_TRY(group, query_integer(query, "target_dp_group"));
  KVF_TRY(pp_rank, query_integer(query, "pp_rank"));
  KVF_TRY(cp_rank, query_integer(query, "cp_rank"));
  if (!rank || !group) {
    return Error{
        Code::invalid_argument,
        "the query needs engine_rank and target_dp_group: both the numbers of a rank, or both -1 for the sizes"};
  }
  if (*rank == -1 && *group == -1) return RouteQuery{};
  if (*rank < 0 || *group < 0 || pp_rank.value_or(0) < 0 || cp_rank.value_or(0) < 0) {
    return Error{Code::invalid_argument, "engine_rank and target_dp_group are both -1, or both the numbers of a rank"};
  }
  return RouteQuery{.place = Place{.dp = static_cast<std::uint32_t>(*group),
                                   .tp = static_cast<std::uint32_t>(*rank),
                                   .pp = static_cast<std::uint32_t>(pp_rank.value_or(0)),
                                   .cp = static_cast<std::uint32_t>(cp_rank.value_or(0))}};
}

Result<Bits128> parse_lease_query(std::string_view query) {
  KVF_TRY(text, query_value(query, "lease"));
  const auto lease = text ? parse_hex(*text) : std::nullopt;
  if (!lease) return Error{Code::invalid_argument, "the query needs lease, 32 hexadecimal digits"};
  return *lease;
}

}  // namespace kvferry::net
