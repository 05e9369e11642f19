#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>

#include "net/link.h"
#include "net/resolver.h"
#include "net/sockets.h"

namespace kvferry::net {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

// One call of dial. Shared by its timer, its look-up and its connection attempt; whichever comes last lets it go.
class Dial : public std::enable_shared_from_this<Dial> {
 public:
  Dial(asio::io_context& loop, const Address& address, Settings::Millis timeout,
       std::function<void(Result<tcp::socket>)> done)
      : loop_(loop),
        address_(address),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        done_(std::move(done)),
        timer_(loop),
        attempt_timer_(loop) {}

  void start() {
    timer_.expires_at(deadline_);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code cancelled) {
      if (!cancelled) self->fail("no answer within " + std::to_string(self->timeout_.count()) + " ms" + self->tried());
    });
    resolve(loop_, address_, [self = shared_from_this()](Result<Endpoints> found) {
      if (!self->done_) return;
      if (!found) return self->fail(found.error().text);
      self->endpoints_ = std::move(*found);
      self->try_next();
    });
  }

  void cancel() {
    done_ = nullptr;
    timer_.cancel();
    attempt_timer_.cancel();
    if (socket_) {
      boost::system::error_code ignored;
      socket_->close(ignored);
    }
  }

 private:
  void try_next() {
    if (next_ == endpoints_.size()) {
      return fail(endpoints_.empty() ? "the name has no address" : "nobody answers" + tried());
    }
    const tcp::endpoint endpoint = endpoints_[next_++];
    Result<tcp::socket> socket = open_socket(loop_, endpoint);
    if (!socket) {
      note(endpoint, socket.error().text);
      return try_next();
    }
    socket_.emplace(std::move(*socket));
    tune(socket_->native_handle());
    // One address that swallows packets must not use up the time of the others.
    const auto left = std::max(deadline_ - Clock::now(), Clock::duration::zero());
    attempt_timer_.expires_after(left / (endpoints_.size() - next_ + 1));
    attempt_timer_.async_wait([self = shared_from_this(), attempt = next_](boost::system::error_code cancelled) {
      if (cancelled || attempt != self->next_ || !self->done_ || !self->socket_) return;
      boost::system::error_code ignored;
      self->timed_out_ = true;
      self->socket_->close(ignored);
    });
    socket_->async_connect(endpoint, [self = shared_from_this(), endpoint](boost::system::error_code error) {
      self->connected(endpoint, error);
    });
  }

  void connected(const tcp::endpoint& endpoint, boost::system::error_code error) {
    attempt_timer_.cancel();
    if (!done_) return;
    boost::system::error_code gone;
    if (!error && socket_->local_endpoint(gone) == socket_->remote_endpoint(gone) && !gone) {
      // A dial to a free port of this host may by chance connect to itself.
      error = asio::error::connection_refused;
    }
    if (error || gone) {
      note(endpoint, timed_out_ ? "no answer" : (error ? error : gone).message());
      timed_out_ = false;
      socket_.reset();
      return try_next();
    }
    timer_.cancel();
    auto done = std::exchange(done_, nullptr);
    tcp::socket socket = std::move(*socket_);
    socket_.reset();
    done(std::move(socket));
  }

  void fail(const std::string& why) {
    if (!done_) return;
    auto done = std::exchange(done_, nullptr);
    cancel();
    done(Error{Code::unreachable, "cannot reach " + address_.text() + ": " + why, {}, address_.text()});
  }

  void note(const tcp::endpoint& endpoint, const std::string& why) {
    tried_ += (tried_.empty() ? " (" : "; ") + address_of(endpoint).text() + ": " + why;
  }
  std::string tried() const { return tried_.empty() ? "" : tried_ + ")"; }

  asio::io_context& loop_;
  const Address address_;
  const Settings::Millis timeout_;
  const Clock::time_point deadline_;
  std::function<void(Result<tcp::socket>)> done_;  // empty once called or cancelled
  asio::steady_timer timer_;
  asio::steady_timer attempt_timer_;
  std::optional<tcp::socket> socket_;
  Endpoints endpoints_;
  std::size_t next_ = 0;
  bool timed_out_ = false;
  std::string tried_;
};

}  // namespace

std::function<void()> dial(asio::io_context& loop, const Address& address, Settings::Millis timeout,
                           std::function<void(Result<tcp::socket>)> done) {
  const auto dialing = std::make_shared<Dial>(loop, address, timeout, std::move(done));
  dialing->start();
  return [weak = std::weak_ptr<Dial>(dialing)] {
    if (const auto alive = weak.lock()) alive->cancel();
  };
}

}  // namespace kvferry::net
