// An engine as a child process: `kvferry engine ...`, spoken to in lines of JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvferry/result.h"
#include "tools/process.h"

namespace kvferry::tools {

struct EngineRequest {
  std::uint64_t id = 0;
  std::uint64_t room = 0;
  std::string bootstrap;  // of the prefill engine; empty where one engine does both
  std::vector<std::int32_t> prompt;
  std::uint32_t max_tokens = 0;
};

struct EngineAnswer {
  enum class Kind { ready, done, failed, other };
  Kind kind = Kind::other;
  std::uint64_t id = 0;
  std::vector<std::int32_t> tokens{};
  std::uint64_t bytes = 0;
  double handoff_us = 0;
  std::string transport{};
  std::string error{};
  std::string code{};
};

std::string request_line(const EngineRequest& request);
// Lines that are no JSON, and answers that nobody knows, are `other`.
EngineAnswer parse_answer(std::string_view line);

// One engine, which may be killed and started again under the same name. All calls from one thread.
class EngineProcess {
 public:
  // `arguments` follow "engine"; what it says on stderr is appended to `log_path`.
  EngineProcess(std::string name, std::string bootstrap, std::vector<std::string> arguments, std::string log_path)
      : name_(std::move(name)),
        bootstrap_(std::move(bootstrap)),
        arguments_(std::move(arguments)),
        log_path_(std::move(log_path)) {}

  const std::string& name() const { return name_; }
  const std::string& bootstrap() const { return bootstrap_; }
  const std::string& log_path() const { return log_path_; }
  pid_t pid() const { return child_ ? child_->pid() : -1; }
  int fd() const { return child_ ? child_->stdout_fd() : -1; }
  bool running() const { return child_.has_value(); }
  bool ready() const { return ready_; }

  Result<void> start();
  Result<void> request(const EngineRequest& request);
  Result<void> abort(std::uint64_t id);
  // The answers that are there. False once the process is gone; what it said before is still handed out.
  bool take(std::vector<EngineAnswer>& answers);
  // SIGKILL, and nothing else: its end is seen as any other end is.
  void kill();
  // After `take` answered false: reaps it and says how it ended.
  std::string bury();
  // {"type":"quit"}, then waits a moment; killed where it does not go. True where it went by itself with exit code 0.
  bool quit(Child::Millis limit);

 private:
  std::string name_;
  std::string bootstrap_;
  std::vector<std::string> arguments_;
  std::string log_path_;
  std::optional<Child> child_;
  bool ready_ = false;
};

}  // namespace kvferry::tools
