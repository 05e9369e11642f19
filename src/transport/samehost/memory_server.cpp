#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "layout/pages.h"
#include "os/clock.h"
#include "os/event_fd.h"
#include "os/fork.h"
#include "os/log.h"
#include "os/thread.h"
#include "transport/samehost/memory_socket.h"
#include "transport/samehost/samehost_mover.h"
#include "transport/samehost/shared_memory.h"

namespace kvferry::transport {
namespace {

constexpr std::size_t visitors_max = 32;     // connections that have not said their secret yet
constexpr std::size_t secrets_max = 65'536;  // of sessions that are being linked; the oldest is forgotten
constexpr auto visitor_ttl = std::chrono::seconds(1);

class Server final : public MemoryServer {
 public:
  Server(std::string name, os::Fd listener, std::vector<os::Fd> fds, std::vector<std::uint64_t> bytes)
      : name_(std::move(name)), listener_(std::move(listener)), fds_(std::move(fds)), bytes_(std::move(bytes)) {
    thread_ = os::start_thread("kvf-memory", [this] { run(); });
  }
  ~Server() override {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    wake_.signal();
    thread_.join();
  }

  const std::string& socket_name() const override { return name_; }
  void expect(const Bits128& secret) override {
    const std::lock_guard lock(mutex_);
    if (secrets_.size() == secrets_max) secrets_.erase(secrets_.begin());
    secrets_.push_back(secret);
  }
  void forget(const Bits128& secret) override {
    const std::lock_guard lock(mutex_);
    std::erase(secrets_, secret);
  }

 private:
  struct Visitor {
    os::Fd fd;
    Instant deadline;
  };

  void run() {
    while (!quitting()) {
      std::vector<pollfd> waiting{{wake_.get(), POLLIN, 0}};
      for (const Visitor& visitor : visitors_) waiting.push_back({visitor.fd.get(), POLLIN, 0});
      // With all places taken, further peers wait in the kernel's queue until one is free.
      if (visitors_.size() < visitors_max) waiting.push_back({listener_.get(), POLLIN, 0});
      if (::poll(waiting.data(), waiting.size(), timeout_ms()) < 0) continue;
      const Instant now = os::now();
      std::size_t kept = 0;
      const std::size_t before = visitors_.size();
      for (std::size_t i = 0; i < before; ++i) {
        if (waiting[i + 1].revents != 0) {
          answer(visitors_[i].fd.get());
        } else if (now < visitors_[i].deadline) {
          if (kept != i) visitors_[kept] = std::move(visitors_[i]);
          ++kept;
        }
      }
      visitors_.resize(kept);
      if (waiting.size() == before + 2 && waiting.back().revents != 0) accept(now);
    }
  }

  void accept(Instant now) {
    os::Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) visitors_.push_back({std::move(fd), now + visitor_ttl});
  }

  int timeout_ms() const {
    if (visitors_.empty()) return -1;
    const auto left = visitors_.front().deadline - os::now();  // the first came first
    return static_cast<int>(std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0));
  }

  void answer(int fd) {
    Bits128 secret;
    const ssize_t n = ::recv(fd, &secret, sizeof secret, 0);
    if (n != static_cast<ssize_t>(sizeof secret) || !take(secret)) {
      if (n > 0) os::log().warn("a process that knows no session's secret asked for this one's shared memory");
      return;
    }
    for (std::size_t first = 0; first < fds_.size(); first += fds_a_message_max) {
      if (!hand_over(fd, first, std::min(fds_.size() - first, fds_a_message_max))) return;
    }
  }

  // Compares in constant time, so that answers do not tell how much of a guess was right.
  bool take(const Bits128& secret) {
    const std::lock_guard lock(mutex_);
    for (auto at = secrets_.begin(); at != secrets_.end(); ++at) {
      if (((at->high ^ secret.high) | (at->low ^ secret.low)) != 0) continue;
      secrets_.erase(at);
      return true;
    }
    return false;
  }

  bool hand_over(int fd, std::size_t first, std::size_t count) {
    MemoryMessage body;
    body.total = static_cast<std::uint32_t>(fds_.size());
    body.count = static_cast<std::uint32_t>(count);
    std::array<int, fds_a_message_max> numbers{};
    for (std::size_t i = 0; i < count; ++i) {
      body.bytes[i] = bytes_[first + i];
      numbers[i] = fds_[first + i].get();
    }
    iovec data{&body, sizeof body};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * fds_a_message_max)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(header), numbers.data(), sizeof(int) * count);
    return ::sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof body);
  }

  bool quitting() {
    const std::lock_guard lock(mutex_);
    return quit_;
  }

  const std::string name_;
  const os::Fd listener_;
  const std::vector<os::Fd> fds_;
  const std::vector<std::uint64_t> bytes_;
  os::EventFd wake_;
  std::mutex mutex_;
  std::vector<Bits128> secrets_;   // under mutex_
  bool quit_ = false;              // under mutex_
  std::vector<Visitor> visitors_;  // the thread's own, oldest first
  std::thread thread_;             // last: starts when everything else is there
};

}  // namespace

std::unique_ptr<MemoryServer> MemoryServer::start(const Memory& memory) {
  const auto blocks = shared_blocks(memory);
  if (blocks.empty() || blocks.size() > shared_blocks_max) return nullptr;
  std::vector<os::Fd> fds;
  std::vector<std::uint64_t> bytes;
  for (const SharedBlock& block : blocks) {
    fds.emplace_back(::fcntl(block.fd, F_DUPFD_CLOEXEC, 3));
    bytes.push_back(block.bytes);
    if (!fds.back()) return nullptr;
  }
  Bits128 random;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) return nullptr;
  std::string name = "kvferry-" + to_hex(random);
  os::Fd listener =
      os::not_for_children([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, length);
  if (!listener || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), 128) != 0) {
    os::log().warn("shared memory cannot be handed to peers, they will read it by process_vm_readv: {}",
                   std::strerror(errno));
    return nullptr;
  }
  return std::make_unique<Server>(std::move(name), std::move(listener), std::move(fds), std::move(bytes));
}

std::vector<protocol::RemoteRegion> describe_regions(const Memory& memory) {
  const auto blocks = shared_blocks(memory);
  std::vector<protocol::RemoteRegion> regions;
  for (std::uint32_t c = 0; c < layout::component_count(memory); ++c) {
    for (const Region& region : layout::component_regions(memory, c)) {
      protocol::RemoteRegion described{.component = c,
                                       .base = reinterpret_cast<std::uint64_t>(region.base),
                                       .length = region.length,
                                       .item_bytes = region.item_bytes};
      if (const auto block = find_shared(region.base, region.length); block) {
        const auto same = [&](const SharedBlock& other) { return other.base == block->base; };
        described.shared = static_cast<std::int32_t>(std::find_if(blocks.begin(), blocks.end(), same) - blocks.begin());
        described.shared_offset = described.base - reinterpret_cast<std::uint64_t>(block->base);
      }
      regions.push_back(described);
    }
  }
  return regions;
}

}  // namespace kvferry::transport
