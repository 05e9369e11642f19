// How the bootstrap servers are that a manager has use for: told to the people who operate them, and to nobody else. A
// server that does not answer fails no room and closes no link.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/address.h"
#include "kvferry/settings.h"

namespace kvferry::net {

// Asks each of them for GET /health by itself, side by side, every settings.health_interval. One thread, the loop's.
class BootstrapWatch {
 public:
  static constexpr int misses_max = 2;  // answers in a row that must stay out before a server counts as down
  static constexpr std::size_t servers_max = 4'096;      // more are not watched
  static constexpr std::chrono::minutes unused_max{10};  // without a room or link, then it is asked no more

  struct Owner {
    std::function<bool(const Address&)> has_link;  // a peer that was found through this server is linked
    std::function<void(std::size_t)> changed;      // one went down or answers again; how many are down now
  };
  // The owner's functions are called on the loop.
  BootstrapWatch(boost::asio::io_context& loop, const Settings& settings, Owner owner);
  ~BootstrapWatch();

  // A room needs this server: it is asked from now on.
  void use(const Address& server);
  std::size_t watched() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the requests that are under way
};

}  // namespace kvferry::net
