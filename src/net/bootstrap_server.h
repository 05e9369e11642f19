// The bootstrap server: HTTP on the given loop. PUT/GET/DELETE /route, GET /health.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>

#include "base/address.h"
#include "kvferry/result.h"
#include "kvferry/settings.h"

namespace kvferry::net {

struct HttpLimits {
  std::size_t body_bytes_max = 64 * 1024;
  std::size_t header_bytes_max = 8 * 1024;
  std::size_t connections_max = 1'024;       // one more is answered 503 and closed
  Settings::Millis request_timeout{10'000};  // for a whole request to arrive; idle keep-alive connections too
};

class HttpBootstrapServer {
 public:
  static Result<std::unique_ptr<HttpBootstrapServer>> open(boost::asio::io_context& loop, const Address& address,
                                                           const Settings& settings, HttpLimits limits = {});
  ~HttpBootstrapServer();
  Address address() const;

 private:
  struct Impl;
  explicit HttpBootstrapServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the connections that are under way
};

}  // namespace kvferry::net
