#include "tools/replay_trace.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string_view>

#include "base/try.h"

namespace kvferry::tools {

namespace {

namespace json = boost::json;

Error bad(std::string text) { return {.code = Code::invalid_argument, .text = std::move(text)}; }

Result<std::uint64_t> as_count(const json::value& value, std::string_view what) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
  return bad(fmt::format("{} must be a whole number from 0 on, not {}", what, json::serialize(value)));
}

Result<std::uint64_t> count_field(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return bad(fmt::format("\"{}\" is missing", name));
  return as_count(*value, fmt::format("\"{}\"", name));
}

Result<std::vector<std::uint64_t>> hash_field(const json::object& object, std::uint64_t input_tokens) {
  const json::value* value = object.if_contains("hash_ids");
  if (value == nullptr || !value->is_array()) return bad("\"hash_ids\" is missing or no list");
  const json::array& ids = value->get_array();
  const std::uint64_t expected = (input_tokens + trace_block_tokens - 1) / trace_block_tokens;
  if (ids.size() != expected) {
    return bad(fmt::format("\"hash_ids\" has {} entries, but {} input tokens are {} blocks of {}", ids.size(),
                           input_tokens, expected, trace_block_tokens));
  }
  std::vector<std::uint64_t> hashes;
  hashes.reserve(ids.size());
  for (const json::value& id : ids) {
    KVF_TRY(hash, as_count(id, "an entry of \"hash_ids\""));
    hashes.push_back(hash);
  }
  return hashes;
}

Result<TraceRequest> parse_line(const std::string& text) {
  boost::system::error_code problem;
  const json::value value = json::parse(text, problem);
  if (problem) return bad("no JSON: " + problem.message());
  if (!value.is_object()) return bad("no JSON object");
  const json::object& object = value.get_object();
  TraceRequest request;
  KVF_TRY(timestamp, count_field(object, "timestamp"));
  KVF_TRY(input, count_field(object, "input_length"));
  KVF_TRY(output, count_field(object, "output_length"));
  if (input == 0 || input > trace_input_tokens_max) {
    return bad(fmt::format("\"input_length\" is {}, expected 1 to {}", input, trace_input_tokens_max));
  }
  KVF_TRY(hashes, hash_field(object, input));
  return TraceRequest{
      .timestamp_ms = timestamp, .input_tokens = input, .output_tokens = output, .hash_ids = std::move(hashes)};
}

}  // namespace

Result<std::vector<TraceRequest>> read_trace(std::istream& in, const std::string& name, std::size_t limit) {
  std::vector<TraceRequest> requests;
  std::string text;
  for (std::size_t line = 1; requests.size() < limit && std::getline(in, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto request = parse_line(text);
    if (!request) return bad(fmt::format("{}, line {}: {}", name, line, request.error().text));
    if (!requests.empty() && request->timestamp_ms < requests.back().timestamp_ms) {
      return bad(fmt::format("{}, line {}: \"timestamp\" {} is earlier than {} of the request before", name, line,
                             request->timestamp_ms, requests.back().timestamp_ms));
    }
    request->line = line;
    requests.push_back(std::move(*request));
  }
  if (in.bad()) return bad(name + ": reading failed");
  if (requests.empty()) return bad(name + ": holds no request");
  return requests;
}

}  // namespace kvferry::tools
