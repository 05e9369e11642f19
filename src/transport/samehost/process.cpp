// Processes on this host: how one is found, and proven to be the one that a link speaks of.
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>

#include "base/try.h"
#include "os/fd.h"
#include "transport/samehost/peer_memory.h"

namespace kvferry::transport {
namespace {

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

// Drawn once a process image; a forked child draws its own, so that it is never taken for its parent.
struct OwnNonce {
  Bits128 bits;
  pid_t pid = 0;
};
std::mutex own_nonce_mutex;
OwnNonce own_nonce;  // under own_nonce_mutex

Error not_readable(std::uint64_t pid, int error) {
  const char* why = "";
  if (error == EPERM || error == EACCES) {
    why =
        "; it needs ptrace rights: the same user on both sides, or CAP_SYS_PTRACE, kernel.yama.ptrace_scope 0, and no "
        "seccomp filter against it";
  } else if (error == ENOSYS) {
    why = "; this kernel or a seccomp filter does not offer it";
  } else if (error == EFAULT) {
    why = "; that process is not the peer: it is on another host or in another pid namespace";
  }
  return Error{Code::unsupported,
               fmt::format("process_vm_readv of process {} failed: {}{}", pid, std::strerror(error), why)};
}

}  // namespace

bool process_gone(const os::Fd& pid_fd) {
  pollfd entry{.fd = pid_fd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

protocol::SameHost own_same_host() {
  const std::lock_guard lock(own_nonce_mutex);
  if (own_nonce.pid != ::getpid()) {
    if (::getrandom(&own_nonce.bits, sizeof own_nonce.bits, 0) != static_cast<ssize_t>(sizeof own_nonce.bits)) {
      return {};  // pid 0 is nobody: peers will not find this process
    }
    own_nonce.pid = ::getpid();
  }
  return {static_cast<std::uint64_t>(own_nonce.pid), reinterpret_cast<std::uint64_t>(&own_nonce.bits), own_nonce.bits};
}

Result<os::Fd> verify_process(const protocol::SameHost& peer) {
  if (peer.pid == 0 || peer.pid > INT_MAX) {
    return Error{Code::unsupported, fmt::format("the peer names process {}, which is none", peer.pid)};
  }
  os::Fd pid_fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(peer.pid), 0)));
  if (!pid_fd) {
    const char* why = errno == ESRCH ? "; the peer is on another host or in another pid namespace" : "";
    return Error{Code::unsupported,
                 fmt::format("process {} cannot be opened: {}{}", peer.pid, std::strerror(errno), why)};
  }
  Bits128 found;
  const iovec local{&found, sizeof found};
  const iovec remote{reinterpret_cast<void*>(peer.nonce_address), sizeof found};
  const ssize_t n = ::process_vm_readv(static_cast<pid_t>(peer.pid), &local, 1, &remote, 1, 0);
  if (n < 0) return not_readable(peer.pid, errno);
  if (n != static_cast<ssize_t>(sizeof found) || found != peer.nonce) {
    return Error{Code::unsupported, fmt::format("process {} of this host is not the peer: it is on another host or in "
                                                "another pid namespace",
                                                peer.pid)};
  }
  // The process was there all the while, so the bytes were read from it and from nobody who took over its number.
  if (process_gone(pid_fd)) {
    return Error{Code::unsupported, fmt::format("process {} exited while it was looked at", peer.pid)};
  }
  return pid_fd;
}

}  // namespace kvferry::transport
