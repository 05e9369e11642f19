#include "net/acceptor.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/try.h"
#include "net/sockets.h"
#include "os/fork.h"
#include "os/log.h"

namespace kvferry::net {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

constexpr int accepts_a_turn_max = 64;  // then the loop's other work has its turn
constexpr std::chrono::milliseconds pause_after_exhaustion{100};
constexpr std::chrono::seconds log_interval{10};

}  // namespace

Result<std::shared_ptr<Acceptor>> Acceptor::open(asio::io_context& loop, const Address& address,
                                                 const Settings& settings, Accept accept) {
  KVF_TRY(listening, open_acceptor(loop, address, settings));
  auto acceptor = std::make_shared<Acceptor>(loop, std::move(listening), private_only(settings), std::move(accept));
  acceptor->wait();
  return acceptor;
}

Acceptor::Acceptor(asio::io_context& loop, tcp::acceptor acceptor, bool private_peers_only, Accept accept)
    : acceptor_(std::move(acceptor)),
      timer_(loop),
      private_peers_only_(private_peers_only),
      accept_(std::move(accept)) {}

void Acceptor::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  timer_.cancel();
}

Address Acceptor::address() const {
  boost::system::error_code failed;
  return address_of(acceptor_.local_endpoint(failed));
}

void Acceptor::wait() {
  acceptor_.async_wait(tcp::acceptor::wait_read, [self = shared_from_this()](boost::system::error_code failed) {
    if (!failed) self->accept_ready();
  });
}

void Acceptor::accept_ready() {
  for (int accepted = 0; accepted < accepts_a_turn_max && acceptor_.is_open(); ++accepted) {
    if (!accept_one()) return;
    if (!more_) break;
  }
  if (acceptor_.is_open()) wait();
}

bool Acceptor::accept_one() {
  tcp::endpoint peer;
  auto length = static_cast<socklen_t>(peer.capacity());
  os::Fd fd = os::not_for_children(
      [&] { return ::accept4(acceptor_.native_handle(), peer.data(), &length, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  const int error = errno;
  more_ = true;
  if (!fd) {
    if (error == EAGAIN || error == EWOULDBLOCK) {
      more_ = false;
      return true;
    }
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      pause(error);
      return false;
    }
    return true;  // a connection that ended while it waited, or a network error that belongs to it: the next one
  }
  peer.resize(length);
  tcp::socket socket(acceptor_.get_executor());
  boost::system::error_code failed;
  socket.assign(peer.protocol(), fd.get(), failed);
  if (failed) return true;
  fd.release();
  if (!refused(socket)) accept_(std::move(socket));
  return true;
}

// The connections stay in the kernel's queue meanwhile.
void Acceptor::pause(int error) {
  const auto now = std::chrono::steady_clock::now();
  if (now - exhaustion_logged_ >= log_interval) {
    exhaustion_logged_ = now;
    os::log().error("cannot accept connections on {}: {}; trying again, raise the limit of open files (ulimit -n)",
                    address().text(), std::strerror(error));
  }
  timer_.expires_after(pause_after_exhaustion);
  timer_.async_wait([self = shared_from_this()](boost::system::error_code cancelled) {
    if (!cancelled && self->acceptor_.is_open()) self->accept_ready();
  });
}

bool Acceptor::refused(const tcp::socket& socket) {
  if (!private_peers_only_) return false;
  boost::system::error_code gone;
  const Address local = address_of(socket.local_endpoint(gone));
  const Address remote = address_of(socket.remote_endpoint(gone));
  if (gone) return true;
  if (is_private_or_loopback(local.host) && is_private_or_loopback(remote.host)) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - refusal_logged_ >= log_interval) {
    refusal_logged_ = now;
    os::log().warn(
        "refused a connection from {} to {}: without a token only private and loopback addresses may connect; set "
        "KVFERRY_TOKEN on every process, or KVFERRY_ALLOW_PUBLIC=1",
        remote.text(), local.text());
  }
  return true;
}

}  // namespace kvferry::net
