// The raw TCP limit: writev on one side, reads straight into scattered pages on the other.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

#include "base/try.h"
#include "bench/child.h"
#include "bench/limits.h"
#include "bench/system_error.h"

namespace kvferry::bench {

namespace {
constexpr std::size_t pages_a_write = 64;

struct Share {
  std::size_t begin = 0;
  std::size_t end = 0;
};
Share share_of(unsigned stream, unsigned streams, std::size_t pages) {
  return {pages * stream / streams, pages * (stream + 1) / streams};
}

// Runs `work(stream)` for every stream, on threads of its own where there are several. The first error wins.
template <class Work>
Result<void> on_each_stream(unsigned streams, Work work) {
  if (streams == 1) return work(0u);
  std::vector<Result<void>> results(streams);
  std::vector<std::thread> threads;
  for (unsigned s = 0; s < streams; ++s) threads.emplace_back([&, s] { results[s] = work(s); });
  for (auto& thread : threads) thread.join();
  for (auto& result : results) KVF_CHECK(result);
  return {};
}

Result<void> write_all(int fd, std::span<iovec> pieces) {
  while (!pieces.empty()) {
    ssize_t sent = ::writev(fd, pieces.data(), static_cast<int>(pieces.size()));
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return system_error("writing to a loopback stream");
    while (sent > 0) {
      const auto step = std::min(static_cast<std::size_t>(sent), pieces.front().iov_len);
      pieces.front().iov_base = static_cast<char*>(pieces.front().iov_base) + step;
      pieces.front().iov_len -= step;
      sent -= static_cast<ssize_t>(step);
      if (pieces.front().iov_len == 0) pieces = pieces.subspan(1);
    }
  }
  return {};
}

Result<void> write_share(int fd, Share share, const std::byte* source, const Scatter& scatter) {
  char go;
  if (::recv(fd, &go, 1, 0) != 1) return system_error("waiting for the reader");
  std::array<iovec, pages_a_write> pieces;
  for (std::size_t i = share.begin; i < share.end;) {
    std::size_t count = 0;
    for (; count < pages_a_write && i < share.end; ++count, ++i) {
      auto* page = const_cast<std::byte*>(source) + static_cast<std::size_t>(scatter.from[i]) * scatter.page_bytes;
      pieces[count] = {page, scatter.page_bytes};
    }
    KVF_CHECK(write_all(fd, std::span(pieces).first(count)));
  }
  return {};
}

Result<void> read_share(int fd, Share share, std::byte* target, const Scatter& scatter) {
  for (std::size_t i = share.begin; i < share.end; ++i) {
    std::byte* page = target + static_cast<std::size_t>(scatter.to[i]) * scatter.page_bytes;
    for (std::size_t got = 0; got < scatter.page_bytes;) {
      const ssize_t step = ::read(fd, page + got, scatter.page_bytes - got);
      if (step < 0 && errno == EINTR) continue;
      if (step <= 0) return system_error("reading from a loopback stream");
      got += static_cast<std::size_t>(step);
    }
  }
  return {};
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
}  // namespace

Result<Listener> listen_on_loopback() {
  Listener listener{.fd = os::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.fd.get(), raw, size) != 0 || ::listen(listener.fd.get(), 16) != 0 ||
      ::getsockname(listener.fd.get(), raw, &size) != 0) {
    return system_error("listening on loopback");
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

Result<os::Fd> accept_stream(const Listener& listener) {
  os::Fd stream(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!stream) return system_error("accepting a loopback stream");
  const int on = 1;
  ::setsockopt(stream.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return stream;
}

Result<os::Fd> connect_to_loopback(std::uint16_t port) {
  os::Fd stream(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  if (::connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("connecting to loopback port " + std::to_string(port));
  }
  const int on = 1;
  ::setsockopt(stream.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return stream;
}

Result<void> tcp_write(std::uint16_t port, unsigned streams, const std::byte* source, const Scatter& scatter) {
  std::vector<os::Fd> fds;
  for (unsigned s = 0; s < streams; ++s) {
    KVF_TRY(stream, connect_to_loopback(port));
    // The reader tells streams apart by their number, because they may be accepted in any order.
    const auto number = static_cast<unsigned char>(s);
    if (::send(stream.get(), &number, 1, MSG_NOSIGNAL) != 1) return system_error("naming a loopback stream");
    fds.push_back(std::move(stream));
  }
  return on_each_stream(streams, [&](unsigned s) {
    return write_share(fds[s].get(), share_of(s, streams, scatter.from.size()), source, scatter);
  });
}

Result<double> tcp_read_seconds(const Listener& listener, unsigned streams, std::byte* target, const Scatter& scatter) {
  std::vector<os::Fd> fds(streams);
  for (unsigned s = 0; s < streams; ++s) {
    KVF_TRY(stream, accept_stream(listener));
    unsigned char number = 0;
    if (::recv(stream.get(), &number, 1, 0) != 1 || number >= streams) return system_error("naming a loopback stream");
    fds[number] = std::move(stream);
  }
  const double start = now_seconds();
  for (const os::Fd& fd : fds) {
    if (::send(fd.get(), "g", 1, MSG_NOSIGNAL) != 1) return system_error("starting the writer");
  }
  KVF_CHECK(on_each_stream(streams, [&](unsigned s) {
    return read_share(fds[s].get(), share_of(s, streams, scatter.to.size()), target, scatter);
  }));
  return now_seconds() - start;
}

}  // namespace kvferry::bench
