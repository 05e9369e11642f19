// The bodies and queries of the bootstrap server, text <-> values, every field checked. docs/reference/http.md is the
// contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvferry/result.h"
#include "net/bootstrap_table.h"

namespace kvferry::net {

// `invalid_argument` naming the field, its value and what is allowed.
Result<Registration> parse_registration(std::string_view body);
std::string write_registration(const Registration& registration);
// What `Registration::attributes` may hold: nothing, or a JSON object of at most 4 KiB.
Result<void> check_attributes(std::string_view text);

std::string write_registration_answer(const RegistrationAnswer& answer);
Result<RegistrationAnswer> parse_registration_answer(std::string_view body);

std::string write_route(const Route& route);
// `protocol` for a body that is none; an engine's server that knows only rank_ip and rank_port is understood.
Result<Route> parse_route(std::string_view body);

std::string write_sizes(const InstanceSizes& sizes);
Result<InstanceSizes> parse_sizes(std::string_view body);

std::string write_error(const Error& error);
// The "error" of such a body, or its first characters where it is none.
std::string parse_error_text(std::string_view body);

// GET /route?..., in either form; without a place it asks for the sizes (-1 everywhere).
struct RouteQuery {
  std::optional<Place> place;
  bool sglang = false;  // asked in the form of SGLang 0.5, and to be answered so
};
Result<RouteQuery> parse_route_query(std::string_view query);
// DELETE /route?lease=...
Result<Bits128> parse_lease_query(std::string_view query);

// 32 hexadecimal digits.
std::optional<Bits128> parse_hex(std::string_view text);

}  // namespace kvferry::net
