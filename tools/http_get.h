// One HTTP GET, for looking at a bootstrap server by hand.
#pragma once

#include <chrono>
#include <string>

#include "base/address.h"
#include "kvferry/result.h"

namespace kvferry::tools {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// Waits for the whole answer, `limit` in all. `unreachable`, `timeout` or `protocol`, in words.
Result<HttpAnswer> http_get(const Address& server, const std::string& target, std::chrono::milliseconds limit);

}  // namespace kvferry::tools
