// One small message there and back between two processes that sleep in epoll_wait: the floor under any hand-off.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>

#include "base/try.h"
#include "bench/child.h"
#include "bench/limits.h"
#include "bench/system_error.h"

namespace kvferry::bench {

namespace {
constexpr std::size_t message_bytes = 64;

Result<os::Fd> watch(int fd) {
  os::Fd poller(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(poller.get(), EPOLL_CTL_ADD, fd, &event) != 0) return system_error("watching a stream");
  return poller;
}

// Waits, then reads one message. False where the other side has closed.
Result<bool> next_message(const os::Fd& poller, int fd, std::array<char, message_bytes>& message) {
  epoll_event event{};
  while (::epoll_wait(poller.get(), &event, 1, -1) != 1) {
    if (errno != EINTR) return system_error("waiting for a message");
  }
  const ssize_t got = ::recv(fd, message.data(), message.size(), 0);
  if (got == 0) return false;
  if (got != static_cast<ssize_t>(message.size())) return system_error("reading a message");
  return true;
}

Result<void> send_message(int fd, const std::array<char, message_bytes>& message) {
  if (::send(fd, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size())) return {};
  return system_error("sending a message");
}
}  // namespace

Result<void> pong(std::uint16_t port) {
  KVF_TRY(stream, connect_to_loopback(port));
  KVF_TRY(poller, watch(stream.get()));
  std::array<char, message_bytes> message{};
  for (;;) {
    KVF_TRY(more, next_message(poller, stream.get(), message));
    if (!more) return {};
    KVF_CHECK(send_message(stream.get(), message));
  }
}

Result<std::vector<double>> ping_us(const os::Fd& stream, unsigned rounds) {
  KVF_TRY(poller, watch(stream.get()));
  std::array<char, message_bytes> message{};
  std::vector<double> times_us;
  times_us.reserve(rounds);
  for (unsigned i = 0; i < rounds; ++i) {
    const double start = now_seconds();
    KVF_CHECK(send_message(stream.get(), message));
    KVF_TRY(more, next_message(poller, stream.get(), message));
    if (!more) return Error{.code = Code::peer_lost, .text = "the other end of the ping-pong closed"};
    times_us.push_back((now_seconds() - start) * 1e6);
  }
  return times_us;
}

}  // namespace kvferry::bench
