// One HTTP request to a bootstrap server, on the loop, with one deadline for all of it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/address.h"
#include "kvferry/result.h"
#include "kvferry/settings.h"

namespace kvferry::net {

struct HttpCall {
  std::string method;
  std::string target;
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct HttpReply {
  unsigned status = 0;
  std::string body;
  std::string challenge;  // the headers of http_auth.h, empty where the reply has none
  std::string proof;
};

// `done` is called once on the loop: `unreachable` where nobody answers, `timeout` past `timeout`, `protocol` for an
// answer that is not HTTP or too large. Any status is a reply.
void http_request(boost::asio::io_context& loop, const Address& server, HttpCall call, Settings::Millis timeout,
                  std::function<void(Result<HttpReply>)> done);

}  // namespace kvferry::net
