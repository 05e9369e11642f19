#include "net/sglang_json.h"

#include <array>

#include "base/try.h"
#include "net/registration_json.h"

namespace kvferry::net {
namespace {

namespace json = boost::json;

constexpr std::uint64_t size_max = 65'536;
constexpr std::size_t attributes_bytes_max = 4'096;

// What SGLang's ranks say of their engine, beside sizes and place.
constexpr std::array<const char*, 9> attribute_names{
    "page_size",         "kv_cache_dtype",           "kv_layout",
    "dsv41_spec_layout", "load_balance_method",      "enable_dsa_cache_layer_split",
    "prefill_http_port", "enable_kv_cache_sharding", "decode_allocation_policy"};

Result<std::string> bounded(const json::object& attributes) {
  std::string text = json::serialize(attributes);
  if (text.size() <= attributes_bytes_max) return text;
  return Error{Code::invalid_argument, "the attributes are " + std::to_string(text.size()) + " bytes; at most " +
                                           std::to_string(attributes_bytes_max) + " are kept"};
}

struct SizeAndRank {
  std::uint64_t size = 1;
  std::uint64_t rank = 0;
};
Result<SizeAndRank> size_and_rank(const JsonFields& fields, const std::string& what) {
  KVF_TRY(size, fields.number(what + "_size", 1, size_max));
  KVF_TRY(rank, fields.number(what + "_rank", 0, size - 1));
  return SizeAndRank{size, rank};
}

json::object read_attributes(const std::string& text) {
  if (text.empty()) return {};
  return json::parse(json::string_view(text.data(), text.size())).as_object();
}

bool truth(const json::object& attributes, const char* name) {
  const json::value* value = attributes.if_contains(name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

json::value or_null(const json::object& attributes, const char* name) {
  const json::value* value = attributes.if_contains(name);
  return value == nullptr ? json::value(nullptr) : *value;
}

}  // namespace

bool is_sglang_registration(const JsonFields& fields) { return !fields.has("role") && fields.has("attn_tp_size"); }

Result<void> parse_sglang_place(const JsonFields& fields, Registration& out) {
  KVF_TRY(tp, size_and_rank(fields, "attn_tp"));
  KVF_TRY(cp, size_and_rank(fields, "attn_cp"));
  KVF_TRY(pp, size_and_rank(fields, "pp"));
  KVF_TRY(attention_dp, size_and_rank(fields, "attn_dp"));
  KVF_TRY(system_dp, size_and_rank(fields, "system_dp"));
  const SizeAndRank& dp = system_dp.size == 1 ? attention_dp : system_dp;
  out.parallel = {.tp = static_cast<std::uint32_t>(tp.size),
                  .dp = static_cast<std::uint32_t>(dp.size),
                  .pp = static_cast<std::uint32_t>(pp.size),
                  .cp = static_cast<std::uint32_t>(cp.size)};
  out.place = {.dp = static_cast<std::uint32_t>(dp.rank),
               .tp = static_cast<std::uint32_t>(tp.rank),
               .pp = static_cast<std::uint32_t>(pp.rank),
               .cp = static_cast<std::uint32_t>(cp.rank)};
  json::object attributes;
  for (const char* name : attribute_names) {
    if (const json::value* value = fields.object().if_contains(name)) attributes[name] = *value;
  }
  KVF_TRY(text, bounded(attributes));
  out.attributes = text;
  return {};
}

Result<std::string> parse_attributes(const JsonFields& fields) {
  const json::value* value = fields.object().if_contains("attributes");
  if (value == nullptr) return std::string();
  if (!value->is_object()) return fields.bad("attributes", "an object");
  return bounded(value->get_object());
}

Result<void> check_attributes(std::string_view text) {
  if (text.empty()) return {};
  const auto fields = JsonFields::parse(text, Code::invalid_argument);
  if (!fields) return Error{Code::invalid_argument, "attributes: " + fields.error().text};
  KVF_CHECK(bounded(fields->object()));
  return {};
}

std::string write_sglang_sizes(const InstanceSizes& sizes) {
  const json::object attributes = read_attributes(sizes.attributes);
  const json::value* balance = attributes.if_contains("load_balance_method");
  const json::value* policy = attributes.if_contains("decode_allocation_policy");
  json::object body{{"attn_tp_size", sizes.parallel.tp},
                    {"attn_cp_size", sizes.parallel.cp},
                    {"dp_size", sizes.parallel.dp},
                    {"pp_size", sizes.parallel.pp},
                    {"page_size", or_null(attributes, "page_size")},
                    {"kv_cache_dtype", or_null(attributes, "kv_cache_dtype")},
                    {"follow_bootstrap_room", balance == nullptr || *balance == "follow_bootstrap_room"},
                    {"enable_dsa_cache_layer_split", truth(attributes, "enable_dsa_cache_layer_split")},
                    {"decode_allocation_policy", policy == nullptr ? json::value("early") : *policy},
                    {"enable_kv_cache_sharding", truth(attributes, "enable_kv_cache_sharding")},
                    {"prefill_http_port", or_null(attributes, "prefill_http_port")}};
  // SGLang leaves these out where they are null, and sends these as null, to be filled in by whoever asked.
  for (const char* name : {"kv_layout", "dsv41_spec_layout"}) {
    if (const json::value value = or_null(attributes, name); !value.is_null()) body[name] = value;
  }
  for (const char* name : {"target_tp_rank", "target_tp_ranks", "target_cp_ranks", "target_pp_ranks",
                           "required_dst_info_num", "required_prefill_response_num"}) {
    body[name] = nullptr;
  }
  return json::serialize(body);
}

std::string write_sglang_route(const Route& route) {
  return json::serialize(json::object{{"rank_ip", route.address.host}, {"rank_port", route.address.port}});
}

Result<DpRankRegistration> parse_dp_rank(std::string_view body) {
  KVF_TRY(fields, JsonFields::parse(body, Code::invalid_argument));
  KVF_TRY(room, fields.number("bootstrap_room", 0, UINT64_MAX));
  KVF_TRY(dp, fields.number("dp_rank", 0, size_max - 1));
  return DpRankRegistration{room, static_cast<std::uint32_t>(dp)};
}

Result<std::vector<std::uint64_t>> parse_rooms(std::string_view body) {
  KVF_TRY(fields, JsonFields::parse(body, Code::invalid_argument));
  const json::value* value = fields.object().if_contains("bootstrap_rooms");
  if (value == nullptr || !value->is_array()) return fields.bad("bootstrap_rooms", "a list of room numbers");
  std::vector<std::uint64_t> rooms;
  for (const json::value& room : value->get_array()) {
    json::error_code failed;
    const auto number = room.to_number<std::uint64_t>(failed);
    if (failed) return fields.bad("bootstrap_rooms", "a list of room numbers, whole and not negative");
    rooms.push_back(number);
  }
  return rooms;
}

}  // namespace kvferry::net
