#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>

#include "os/fd.h"
#include "tools/probes.h"
#include "tools/read_file.h"

namespace kvferry::tools {
namespace {

using State = Finding::State;
constexpr int answer_ms_max = 2000;

// Runs `body` in a child of ours; answers what it returned, or -1. Only system calls are allowed in there.
int in_child(const std::function<int()>& body) {
  pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(body());
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// 0, or the number of the error. Bytes go through a real connection, both ways.
int try_loopback(int family) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = family == AF_INET6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t length = family == AF_INET6 ? sizeof v6 : sizeof v4;
  os::Fd listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener || ::bind(listener.get(), address, length) != 0 || ::listen(listener.get(), 1) != 0) return errno;
  if (::getsockname(listener.get(), address, &length) != 0) return errno;
  os::Fd dialer(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  timeval limit{.tv_sec = answer_ms_max / 1000, .tv_usec = 0};
  ::setsockopt(dialer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(dialer.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (!dialer || ::connect(dialer.get(), address, length) != 0) return errno;
  os::Fd taken(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!taken) return errno;
  for (auto [from, to] : {std::pair{taken.get(), dialer.get()}, std::pair{dialer.get(), taken.get()}}) {
    char byte = 'k';
    if (::send(from, &byte, 1, MSG_NOSIGNAL) != 1 || ::recv(to, &byte, 1, 0) != 1) return errno;
  }
  return 0;
}

// A child reads its parent: no ancestor reads its descendant, which is how two engines stand to each other.
int try_read_other_process() {
  static std::array<unsigned char, 4096> page;
  for (std::size_t i = 0; i < page.size(); ++i) page[i] = static_cast<unsigned char>(i * 7 + 1);
  const pid_t source = ::getpid();
  return in_child([source] {
    static std::array<unsigned char, 4096> copy;
    iovec local{.iov_base = copy.data(), .iov_len = copy.size()};
    iovec remote{.iov_base = page.data(), .iov_len = page.size()};
    errno = EIO;  // a short read is an error too
    if (::process_vm_readv(source, &local, 1, &remote, 1, 0) != std::ssize(copy)) return errno;
    return ::memcmp(copy.data(), page.data(), copy.size()) == 0 ? 0 : EIO;
  });
}

int try_memfd() {
  constexpr off_t bytes = off_t{1} << 20;
  os::Fd memory(::memfd_create("kvferry-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return errno;
  if (int number = ::posix_fallocate(memory.get(), 0, bytes); number != 0) return number;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return errno;
  static_cast<char*>(mapped)[bytes - 1] = 'k';
  ::munmap(mapped, bytes);
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return errno;
  return ::ftruncate(memory.get(), 0) == 0 ? EPROTO : 0;  // the seal must hold
}

// A descriptor on a child turns readable when the child ends, and not before.
int try_pidfd() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  os::Fd read_end(ends[0]);
  os::Fd write_end(ends[1]);
  pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    ::close(ends[1]);
    char byte;
    [[maybe_unused]] auto got = ::read(ends[0], &byte, 1);
    ::_exit(0);
  }
  os::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  int number = pidfd ? 0 : errno;
  pollfd over{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  if (pidfd && ::poll(&over, 1, 0) != 0) number = EPROTO;
  write_end.reset();
  if (pidfd && number == 0 && ::poll(&over, 1, answer_ms_max) != 1) number = ETIMEDOUT;
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return number;
}

std::string words(int number) { return number < 0 ? "the probe was killed" : ::strerror(number); }

// Why the kernel forbids it is not in the error number: look at who could have said no.
std::string why_no_ptrace(const std::string& root) {
  std::string yama = read_file(root + "proc/sys/kernel/yama/ptrace_scope").value_or("0");
  std::string seccomp = field_of(read_file(root + "proc/self/status").value_or(""), "Seccomp");
  if (yama != "0") {
    return fmt::format(
        "kernel.yama.ptrace_scope is {}: set it to 0 (sysctl -w kernel.yama.ptrace_scope=0), give the engines "
        "CAP_SYS_PTRACE, or allocate the KV cache with kvferry::SharedMemory",
        yama);
  }
  if (seccomp == "2") {
    return "a seccomp filter is in force: run the container with --cap-add SYS_PTRACE or a profile that allows "
           "process_vm_readv, or allocate the KV cache with kvferry::SharedMemory";
  }
  return "engines must run as one user with the same rights and be dumpable; or allocate the KV cache with "
         "kvferry::SharedMemory";
}

}  // namespace

Ways probe_transports(const std::string& root, Findings& out) {
  Ways ways;
  auto tell = [&](std::string name, int number, std::string good, State bad, std::string advice) {
    bool works = number == 0;
    out.push_back({.area = "transport",
                   .name = std::move(name),
                   .state = works ? State::good : bad,
                   .found = works ? std::move(good) : words(number),
                   .advice = works ? "" : std::move(advice)});
    return works;
  };
  ways.tcp = tell("tcp, IPv4 loopback", try_loopback(AF_INET), "a connection carried bytes both ways", State::problem,
                  "bring the loopback interface up (ip link set lo up)");
  tell("tcp, IPv6 loopback", try_loopback(AF_INET6), "a connection carried bytes both ways", State::info, "");
  ways.process_vm_readv = tell("process_vm_readv", try_read_other_process(), "one process read another's memory",
                               State::warning, why_no_ptrace(root));
  ways.memfd =
      tell("memfd", try_memfd(), "allocated, mapped and sealed", State::warning,
           "shared regions need memfd_create and file seals: a newer kernel, or a seccomp profile that allows them");
  ways.pidfd = tell("pidfd", try_pidfd(), "told of a process's end at once", State::warning,
                    "same-host transfers need pidfd_open (Linux 5.3): without it pairs on one host use tcp");
  return ways;
}

}  // namespace kvferry::tools
