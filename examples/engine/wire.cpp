#include "engine/wire.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

namespace kvferry::engine {
namespace {

namespace json = boost::json;

Error bad(const char* why) { return Error{Code::invalid_argument, std::string("an order that cannot be: ") + why}; }

std::optional<std::uint64_t> number(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_uint64()) return value->as_uint64();
  if (value->is_int64() && value->as_int64() >= 0) return static_cast<std::uint64_t>(value->as_int64());
  return std::nullopt;
}

Result<Order> parse_request(const json::object& object) {
  Request request;
  const auto id = number(object, "id");
  const auto room = number(object, "room");
  const auto max_tokens = number(object, "max_tokens");
  if (!id || !room) return bad("a request needs the numbers \"id\" and \"room\"");
  if (!max_tokens || *max_tokens == 0 || *max_tokens > 65'536) return bad("\"max_tokens\" is 1 to 65536");
  request.id = *id;
  request.room = *room;
  request.max_tokens = static_cast<std::uint32_t>(*max_tokens);
  if (const json::value* bootstrap = object.if_contains("bootstrap")) {
    if (!bootstrap->is_string()) return bad("\"bootstrap\" is a text");
    request.bootstrap = std::string(bootstrap->as_string());
  }
  const json::value* prompt = object.if_contains("prompt");
  if (prompt == nullptr || !prompt->is_array()) return bad("\"prompt\" is a list of tokens");
  for (const json::value& token : prompt->as_array()) {
    if (!token.is_int64() || token.as_int64() < 0 || token.as_int64() > std::numeric_limits<std::int32_t>::max()) {
      return bad("a token is a whole number from 0 on");
    }
    request.prompt.push_back(static_cast<std::int32_t>(token.as_int64()));
  }
  return Order(std::move(request));
}

}  // namespace

Result<Order> parse_order(std::string_view line) {
  json::error_code failed;
  const json::value value = json::parse(json::string_view(line.data(), line.size()), failed);
  if (failed || !value.is_object()) return bad("not a JSON object");
  const json::object& object = value.as_object();
  const json::value* type = object.if_contains("type");
  if (type == nullptr || !type->is_string()) return bad("\"type\" is missing");
  if (type->as_string() == "quit") return Order(Quit{});
  if (type->as_string() == "request") return parse_request(object);
  if (type->as_string() != "abort") return bad("\"type\" is request, abort or quit");
  const auto id = number(object, "id");
  if (!id) return bad("an abort needs the number \"id\"");
  return Order(AbortRequest{*id});
}

std::string ready_line(int pid, const std::string& address) {
  return json::serialize(json::object{{"type", "ready"}, {"pid", pid}, {"address", address}});
}

std::string done_line(const Done& done) {
  return json::serialize(json::object{{"type", "done"},
                                      {"id", done.id},
                                      {"tokens", json::array(done.tokens.begin(), done.tokens.end())},
                                      {"bytes", done.bytes},
                                      {"handoff_us", done.handoff_us},
                                      {"transport", done.transport}});
}

std::string failed_line(std::uint64_t id, const Error& error) { return failed_line(id, error.code, error.message()); }

std::string failed_line(std::uint64_t id, Code code, const std::string& text) {
  return json::serialize(json::object{{"type", "failed"}, {"id", id}, {"error", text}, {"code", code_name(code)}});
}

bool LineReader::fill() {
  char buffer[65'536];
  const ssize_t got = ::read(fd_, buffer, sizeof buffer);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  text_.append(buffer, static_cast<std::size_t>(got));
  return got > 0;
}

std::optional<std::string> LineReader::next() {
  const auto end = text_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void say(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody listens any more
    at += static_cast<std::size_t>(written);
  }
}

}  // namespace kvferry::engine
