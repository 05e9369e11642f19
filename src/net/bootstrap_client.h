// Asks and tells a bootstrap server, on the control thread's loop. Never blocks; each call has its own deadline.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/address.h"
#include "kvferry/result.h"
#include "kvferry/settings.h"
#include "net/bootstrap_table.h"

namespace kvferry::net {

// One try each; the caller decides when to try again. `done` is called once on the loop. `unreachable` for no answer
// (also 404), `try_later` for 503, `protocol` for an answer that is none, `timeout` past settings.connect_timeout.
void fetch_sizes(boost::asio::io_context& loop, const Address& server, const Settings& settings,
                 std::function<void(Result<InstanceSizes>)> done);
void fetch_route(boost::asio::io_context& loop, const Address& server, const Settings& settings, const Place& place,
                 std::function<void(Result<Route>)> done);

// Keeps one registration alive: registers with back-off and jitter until it is taken, renews it three times a lease,
// registers anew when the server has forgotten it, and stops and says so when it was replaced. Removed on destruction,
// as far as that goes without waiting.
class RegistrationKeeper {
 public:
  struct Status {
    bool registered = false;
    std::uint64_t generation = 0;
    bool replaced = false;   // another process has this place; the keeper has stopped for good
    std::string last_error;  // empty after a success
  };
  // `on_change` is called on the loop whenever Status changes.
  RegistrationKeeper(boost::asio::io_context& loop, const Address& server, const Settings& settings,
                     Registration registration, std::function<void(const Status&)> on_change);
  ~RegistrationKeeper();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the request that is under way
};

}  // namespace kvferry::net
