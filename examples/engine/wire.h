// What an engine is told and what it says: lines of JSON on stdin and stdout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kvferry/result.h"

namespace kvferry::engine {

struct Request {
  std::uint64_t id = 0;
  std::uint64_t room = 0;
  std::string bootstrap = {};  // decode: of the prefill instance
  std::vector<std::int32_t> prompt = {};
  std::uint32_t max_tokens = 1;
};
struct AbortRequest {
  std::uint64_t id = 0;
};
struct Quit {};
using Order = std::variant<Request, AbortRequest, Quit>;

// `invalid_argument` with what is wrong in the line.
Result<Order> parse_order(std::string_view line);

struct Done {
  std::uint64_t id = 0;
  std::vector<std::int32_t> tokens = {};
  std::uint64_t bytes = 0;  // moved for it
  double handoff_us = 0;    // decode: from init to success
  std::string transport = {};
};
std::string ready_line(int pid, const std::string& address);
std::string done_line(const Done& done);
std::string failed_line(std::uint64_t id, const Error& error);
std::string failed_line(std::uint64_t id, Code code, const std::string& text);

// Lines from a descriptor that is read as it fills.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  // Reads what is there. False once the writer has closed it.
  bool fill();
  std::optional<std::string> next();

 private:
  int fd_;
  std::string text_ = {};
};
// The monotonic clock, which all processes of one host share.
std::int64_t monotonic_ns();

// Writes the line and a line feed to stdout, whole.
void say(const std::string& line);

}  // namespace kvferry::engine
