#include "net/bootstrap_watch.h"

#include <boost/asio/steady_timer.hpp>
#include <map>
#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "net/auth.h"
#include "net/bootstrap_call.h"
#include "os/clock.h"
#include "os/log.h"

namespace kvferry::net {

namespace asio = boost::asio;

struct BootstrapWatch::Impl : std::enable_shared_from_this<Impl> {
  struct Server {
    explicit Server(asio::io_context& loop) : timer(loop) {}
    asio::steady_timer timer;
    Instant used{};
    int misses = 0;
    bool down() const { return misses >= misses_max; }
  };

  Impl(asio::io_context& io, const Settings& given, Owner of) : loop(io), settings(given), owner(std::move(of)) {}

  void use(const Address& address) {
    auto known = servers.find(address);
    if (known == servers.end()) {
      if (servers.size() >= servers_max) return;
      known = servers.try_emplace(address, loop).first;
      wait(address, known->second);
    }
    known->second.used = os::now();
  }

  // Three quarters to five quarters of the interval, so that the ranks of an instance do not ask all at once.
  void wait(const Address& address, Server& server) {
    const Duration interval = settings.health_interval;
    server.timer.expires_after(interval * 3 / 4 +
                               interval * static_cast<Duration::rep>(random_bits().low % 512) / 1024);
    server.timer.async_wait([weak = weak_from_this(), address](boost::system::error_code cancelled) {
      const auto alive = weak.lock();
      if (!cancelled && alive) alive->ask(address);
    });
  }

  void ask(const Address& address) {
    const auto at = servers.find(address);
    if (at == servers.end()) return;
    if (owner.has_link(address)) at->second.used = os::now();
    if (os::now() - at->second.used > unused_max) {
      const bool was_down = at->second.down();
      servers.erase(at);
      if (was_down) owner.changed(down());
      return;
    }
    http_request(loop, address, {.method = "GET", .target = "/health"}, settings.connect_timeout,
                 [weak = weak_from_this(), address](const Result<HttpReply>& reply) {
                   if (const auto alive = weak.lock()) alive->answered(address, body_of(address, reply));
                 });
  }

  void answered(const Address& address, const Result<std::string>& body) {
    const auto at = servers.find(address);
    if (at == servers.end()) return;
    Server& server = at->second;
    const bool was_down = server.down();
    server.misses = body ? 0 : server.misses + 1;
    wait(address, server);
    if (server.down() == was_down) return;
    if (was_down) {
      os::log().info("bootstrap server {} answers again", address.text());
    } else {
      os::log().warn("bootstrap server {} is not well: {}; linked peers go on without it, new ones wait",
                     address.text(), body.error().text);
    }
    owner.changed(down());
  }

  std::size_t down() const {
    std::size_t count = 0;
    for (const auto& [address, server] : servers) count += server.down() ? 1 : 0;
    return count;
  }

  asio::io_context& loop;
  const Settings settings;
  const Owner owner;
  std::map<Address, Server> servers;
};

BootstrapWatch::BootstrapWatch(asio::io_context& loop, const Settings& settings, Owner owner)
    : impl_(std::make_shared<Impl>(loop, settings, std::move(owner))) {}

BootstrapWatch::~BootstrapWatch() { impl_->servers.clear(); }

void BootstrapWatch::use(const Address& server) { impl_->use(server); }
std::size_t BootstrapWatch::watched() const { return impl_->servers.size(); }

}  // namespace kvferry::net
