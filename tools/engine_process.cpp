#include "tools/engine_process.h"

#include <signal.h>

#include <boost/json.hpp>

#include "base/try.h"

namespace kvferry::tools {
namespace {

namespace json = boost::json;

std::string text_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

double number_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

// Ids and counts: whole numbers, zero or more; anything else reads as 0.
std::uint64_t count_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return 0;
  if (value->is_uint64()) return value->as_uint64();
  return value->is_int64() && value->as_int64() > 0 ? static_cast<std::uint64_t>(value->as_int64()) : 0;
}

EngineAnswer::Kind kind_of(std::string_view type) {
  if (type == "ready") return EngineAnswer::Kind::ready;
  if (type == "done") return EngineAnswer::Kind::done;
  if (type == "failed") return EngineAnswer::Kind::failed;
  return EngineAnswer::Kind::other;
}

}  // namespace

std::string request_line(const EngineRequest& request) {
  json::object object{{"type", "request"}, {"id", request.id}, {"room", request.room}};
  if (!request.bootstrap.empty()) object["bootstrap"] = request.bootstrap;
  object["prompt"] = json::array(request.prompt.begin(), request.prompt.end());
  object["max_tokens"] = request.max_tokens;
  return json::serialize(object);
}

EngineAnswer parse_answer(std::string_view line) {
  json::error_code error;
  json::value value = json::parse(json::string_view(line.data(), line.size()), error);
  if (error || !value.is_object()) return {};
  const json::object& object = value.as_object();
  EngineAnswer answer{.kind = kind_of(text_of(object, "type")),
                      .id = count_of(object, "id"),
                      .bytes = count_of(object, "bytes"),
                      .handoff_us = number_of(object, "handoff_us"),
                      .transport = text_of(object, "transport"),
                      .error = text_of(object, "error"),
                      .code = text_of(object, "code")};
  if (const json::value* tokens = object.if_contains("tokens"); tokens != nullptr && tokens->is_array()) {
    for (const json::value& token : tokens->as_array()) {
      answer.tokens.push_back(token.is_int64() ? static_cast<std::int32_t>(token.as_int64()) : -1);
    }
  }
  return answer;
}

Result<void> EngineProcess::start() {
  std::vector<std::string> arguments{"engine"};
  arguments.insert(arguments.end(), arguments_.begin(), arguments_.end());
  KVF_TRY(child, Child::start({.arguments = std::move(arguments), .stderr_path = log_path_}));
  child_.emplace(std::move(child));
  ready_ = false;
  return {};
}

Result<void> EngineProcess::request(const EngineRequest& request) {
  if (!child_) return Error{Code::peer_lost, name_ + " is not running"};
  return child_->write_line(request_line(request));
}

Result<void> EngineProcess::abort(std::uint64_t id) {
  if (!child_) return Error{Code::peer_lost, name_ + " is not running"};
  return child_->write_line(json::serialize(json::object{{"type", "abort"}, {"id", id}}));
}

bool EngineProcess::take(std::vector<EngineAnswer>& answers) {
  if (!child_) return false;
  bool open = child_->fill();
  while (auto line = child_->next_line()) {
    answers.push_back(parse_answer(*line));
    if (answers.back().kind == EngineAnswer::Kind::ready) ready_ = true;
  }
  return open;
}

void EngineProcess::kill() {
  ready_ = false;
  if (child_) child_->kill(SIGKILL);
}

std::string EngineProcess::bury() {
  ready_ = false;
  if (!child_) return "was not running";
  child_->stop();
  std::string how = describe_status(child_->status().value_or(0));
  child_.reset();
  return how;
}

bool EngineProcess::quit(Child::Millis limit) {
  if (!child_) return false;
  bool asked = child_->write_line(R"({"type":"quit"})").has_value();
  bool ended = asked && child_->wait(limit) && child_->status() == 0;
  bury();
  return ended;
}

}  // namespace kvferry::tools
