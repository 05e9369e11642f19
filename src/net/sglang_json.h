// The bodies of SGLang 0.5 where they differ from those of 0.4.7: sizes by attention group, and what one engine tells
// the other about itself. docs/reference/http.md is the contract.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvferry/result.h"
#include "net/bootstrap_table.h"
#include "net/json_fields.h"

namespace kvferry::net {

// Whether a PUT /route has the newer form.
bool is_sglang_registration(const JsonFields& fields);
// Sizes, place and attributes; the address is the same in both forms.
Result<void> parse_sglang_place(const JsonFields& fields, Registration& out);

// "attributes" of a PUT of ours, as text. `invalid_argument` where it is no object or too long.
Result<std::string> parse_attributes(const JsonFields& fields);

// What GET /route with four times -1 answers, every field that SGLang's own server gives.
std::string write_sglang_sizes(const InstanceSizes& sizes);
std::string write_sglang_route(const Route& route);

struct DpRankRegistration {
  std::uint64_t room = 0;
  std::uint32_t dp = 0;
};
Result<DpRankRegistration> parse_dp_rank(std::string_view body);
Result<std::vector<std::uint64_t>> parse_rooms(std::string_view body);

}  // namespace kvferry::net
