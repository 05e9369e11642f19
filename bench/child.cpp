#include "bench/child.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "bench/system_error.h"

namespace kvferry::bench {

Result<void> Channel::send_bytes(const void* bytes, std::size_t size) const {
  for (;;) {
    const ssize_t sent = ::send(fd_.get(), bytes, size, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(size)) return {};
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return Error{.code = Code::peer_lost, .text = "the other process ended"};
    return system_error("sending to the other process");
  }
}

Result<std::size_t> Channel::receive_bytes(void* bytes, std::size_t capacity) const {
  for (;;) {
    const ssize_t got = ::recv(fd_.get(), bytes, capacity, MSG_TRUNC);
    if (got > 0 && static_cast<std::size_t>(got) <= capacity) return static_cast<std::size_t>(got);
    if (got > 0) return Error{.code = Code::protocol, .text = "a message is longer than expected"};
    if (got == 0 || errno == ECONNRESET) return Error{.code = Code::peer_lost, .text = "the other process ended"};
    if (errno != EINTR) return system_error("receiving from the other process");
  }
}

Result<Child> Child::start(const std::function<int(Channel)>& body) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return system_error("making a socket pair");
  os::Fd ours(ends[0]);
  os::Fd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("forking");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
    ours.reset();
    ::_exit(body(Channel(std::move(theirs))));
  }
  return Child(pid, Channel(std::move(ours)));
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double percentile(std::vector<double>& values, double p) {
  if (values.empty()) return 0;
  const auto rank = std::min(values.size() - 1, static_cast<std::size_t>(p * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
  return values[rank];
}

}  // namespace kvferry::bench
