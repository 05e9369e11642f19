#include <algorithm>
#include <boost/asio/steady_timer.hpp>

#include "base/limits.h"
#include "base/try.h"
#include "net/auth.h"
#include "net/bootstrap_call.h"
#include "net/bootstrap_client.h"
#include "net/registration_json.h"
#include "os/log.h"

namespace kvferry::net {

namespace asio = boost::asio;

struct RegistrationKeeper::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& io, const Address& address, const Settings& given, Registration mine,
       std::function<void(const Status&)> changed)
      : loop(io),
        server(address),
        settings(given),
        registration(std::move(mine)),
        on_change(std::move(changed)),
        timer(io) {
    registration.leased = true;
    registration.ttl = settings.lease_ttl;
    registration.lease.reset();
  }

  void put() {
    prove_and_request(loop, server, settings,
                      {.method = "PUT", .target = "/route", .body = write_registration(registration)},
                      [weak = weak_from_this()](Result<std::string> body) {
                        if (const auto alive = weak.lock()) alive->answered(body);
                      });
  }

  void answered(const Result<std::string>& body) {
    if (stopped) return;
    if (!body) return failed(body.error());
    const auto answer = parse_registration_answer(*body);
    if (!answer) {
      return failed({Code::protocol, "bootstrap server " + server.text() +
                                         " answered the registration with what cannot be: " + answer.error().text});
    }
    registration.lease = answer->lease;
    retry = limits.retry_min;
    show({.registered = true, .generation = answer->generation, .last_error = {}});
    if (!stopped) wait(jittered(settings.lease_ttl / 3));
  }

  void failed(const Error& error) {
    const bool replaced = error.code == Code::already_exists;
    if (replaced) {
      // Going on would take the place back from the process that has it now, which would do the same.
      stopped = true;
      registration.lease.reset();
      os::log().error("{}", error.text);
    }
    Status next = status;
    next.registered = false;
    next.replaced = replaced;
    next.last_error = error.text;
    show(std::move(next));
    if (stopped) return;
    wait(jittered(retry));
    retry = std::min(2 * retry, limits.retry_max);
  }

  void show(Status next) {
    const bool same = next.registered == status.registered && next.generation == status.generation &&
                      next.last_error == status.last_error;
    status = std::move(next);
    if (same) return;
    on_change(Status(status));
  }

  void wait(Duration duration) {
    timer.expires_after(duration);
    timer.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
      const auto alive = weak.lock();
      if (!cancelled && alive && !alive->stopped) alive->put();
    });
  }

  // Three quarters to five quarters, so that the ranks of an instance do not come all at once.
  static Duration jittered(Duration duration) {
    const auto share = static_cast<Duration::rep>(random_bits().low % 512);
    return duration * 3 / 4 + duration * share / 1024;
  }

  void stop() {
    stopped = true;
    timer.cancel();
    if (!registration.lease) return;
    prove_and_request(loop, server, settings,
                      {.method = "DELETE", .target = "/route?lease=" + to_hex(*registration.lease)},
                      [](const Result<std::string>&) {});  // a lease that stays runs out by itself
  }

  asio::io_context& loop;
  const Address server;
  const Settings settings;
  const Limits limits{};
  Registration registration;
  std::function<void(const Status&)> on_change;
  asio::steady_timer timer;
  Duration retry = limits.retry_min;
  Status status;
  bool stopped = false;
};

RegistrationKeeper::RegistrationKeeper(asio::io_context& loop, const Address& server, const Settings& settings,
                                       Registration registration, std::function<void(const Status&)> on_change)
    : impl_(std::make_shared<Impl>(loop, server, settings, std::move(registration), std::move(on_change))) {
  impl_->put();
}

RegistrationKeeper::~RegistrationKeeper() { impl_->stop(); }

}  // namespace kvferry::net
