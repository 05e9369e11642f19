// What the bootstrap server answers, without any socket: a request as a value in, an answer as a value out.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "net/bootstrap_table.h"
#include "net/dp_ranks.h"
#include "net/http_auth.h"

namespace kvferry::net {

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // "/route?engine_rank=0&target_dp_group=0"
  std::string body = {};
  std::string nonce = {};  // the headers of http_auth.h, empty where the request has none
  std::string challenge = {};
  std::string proof = {};
};

struct HttpAnswer {
  unsigned status = 200;
  std::string body = {};
  bool json = true;  // else plain text
  std::vector<std::pair<std::string, std::string>> headers = {};
};

class HttpRoutes {
 public:
  explicit HttpRoutes(std::string token) : token_(std::move(token)) {}
  HttpAnswer answer(const HttpRequest& request, Instant now);

 private:
  HttpAnswer route(const HttpRequest& request, std::string_view query, Instant now);
  // Runs `write` where the request proves the shared token.
  HttpAnswer proven(const HttpRequest& request, Instant now, const std::function<HttpAnswer()>& write);
  HttpAnswer put(const HttpRequest& request, Instant now);
  HttpAnswer get(std::string_view query, Instant now);
  HttpAnswer remove(std::string_view query);
  HttpAnswer put_dp_rank(const std::string& body, Instant now);
  HttpAnswer find_dp_ranks(const std::string& body, Instant now);
  HttpAnswer challenge(const HttpRequest& request, const std::string& why, Instant now);

  std::string token_;
  BootstrapTable table_;
  DpRanks dp_ranks_;
  Challenges challenges_;
};

// 400 for invalid_argument, 401 unauthorized, 404 unreachable, 409 already_exists and mismatch, 503 try_later.
HttpAnswer answer_of(const Error& error);

}  // namespace kvferry::net
