// Fetches a peer's memfds over its memory socket and maps them.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>

#include "os/clock.h"
#include "transport/samehost/memory_socket.h"
#include "transport/samehost/peer_memory.h"

namespace kvferry::transport {
namespace {

// Of one peer. Every page is allocated already; mapping them at once spares the first transfer its faults. Beyond this,
// and once half of the time is gone, it would hold up linking instead.
constexpr std::uint64_t populate_bytes_max = std::uint64_t{2} << 30;

Error failed(const std::string& what) { return Error{Code::unsupported, what}; }

class Client {
 public:
  Client(pid_t peer, std::chrono::milliseconds timeout)
      : peer_(peer), deadline_(os::now() + timeout), half_time_(deadline_ - timeout / 2) {}

  Result<void> connect(const std::string& name) {
    socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) return failed(fmt::format("a Unix socket cannot be made: {}", std::strerror(errno)));
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(name, length);
    while (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      if (errno != EAGAIN || !pause()) {
        return failed(fmt::format("the peer's memory socket cannot be reached: {}", std::strerror(errno)));
      }
    }
    ucred owner{};
    socklen_t size = sizeof owner;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &owner, &size) != 0 || owner.pid != peer_) {
      return failed(fmt::format("the memory socket belongs to process {}, the peer is {}", owner.pid, peer_));
    }
    return {};
  }

  Result<void> present(const Bits128& secret) {
    if (::send(socket_.get(), &secret, sizeof secret, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof secret)) {
      return failed(fmt::format("the peer's memory socket does not listen: {}", std::strerror(errno)));
    }
    return {};
  }

  // Appends the mapped memfds of the next message. Returns how many there are in all.
  Result<std::uint32_t> receive(std::vector<Mapping>& out) {
    if (!wait_readable()) return failed("the peer's memory socket did not answer in time");
    MemoryMessage body;
    iovec data{&body, sizeof body};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * fds_a_message_max)];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (n == 0) return failed("the peer's memory socket refused the secret");
    if (n < 0) return failed(fmt::format("the peer's memory socket failed: {}", std::strerror(errno)));
    std::vector<os::Fd> fds;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, reinterpret_cast<const char*>(header) + at, sizeof fd);
        fds.emplace_back(fd);
      }
    }
    if (n != static_cast<ssize_t>(sizeof body) || (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0 ||
        fds.size() != body.count || fds.empty() || body.total > shared_blocks_max) {
      return failed(fmt::format("the peer's memory socket sent {} descriptors in {} bytes, {} were announced",
                                fds.size(), n, body.count));
    }
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (auto mapped = map(fds[i].get(), body.bytes[i], out); !mapped) return std::move(mapped.error());
    }
    return body.total;
  }

 private:
  // A memfd that could shrink would turn a later read into a signal.
  Result<void> map(int fd, std::uint64_t bytes, std::vector<Mapping>& out) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    struct stat status {};
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return failed("the peer's shared memory is not sealed");
    if (::fstat(fd, &status) != 0 || status.st_size <= 0 || static_cast<std::uint64_t>(status.st_size) != bytes) {
      return failed(fmt::format("the peer's shared memory has {} bytes, {} were announced", status.st_size, bytes));
    }
    const bool populate = bytes <= populate_bytes_left_ && os::now() < half_time_;
    if (populate) populate_bytes_left_ -= bytes;
    void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | (populate ? MAP_POPULATE : 0), fd, 0);
    if (data == MAP_FAILED) {
      return failed(
          fmt::format("{} bytes of the peer's shared memory cannot be mapped: {}", bytes, std::strerror(errno)));
    }
    out.emplace_back();
    out.back().data = static_cast<std::byte*>(data);
    out.back().bytes = bytes;
    return {};
  }

  int left_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - os::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
  }
  // The listener's queue is full: a Unix socket offers no event for that, so look again in a millisecond.
  bool pause() const {
    if (left_ms() == 0) return false;
    ::poll(nullptr, 0, 1);
    return true;
  }
  bool wait_readable() const {
    pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, left_ms()) > 0;
  }

  pid_t peer_;
  Instant deadline_;
  Instant half_time_;
  std::uint64_t populate_bytes_left_ = populate_bytes_max;
  os::Fd socket_;
};

}  // namespace

Result<std::vector<Mapping>> fetch_mappings(pid_t peer, const std::string& memory_socket, const Bits128& secret,
                                            int timeout_ms) {
  Client client(peer, std::chrono::milliseconds(timeout_ms));
  if (auto connected = client.connect(memory_socket); !connected) return std::move(connected.error());
  if (auto presented = client.present(secret); !presented) return std::move(presented.error());
  std::vector<Mapping> mappings;
  std::uint32_t total = 1;
  while (mappings.size() < total) {
    auto announced = client.receive(mappings);
    if (!announced) return std::move(announced.error());
    total = *announced;
  }
  return mappings;
}

}  // namespace kvferry::transport
