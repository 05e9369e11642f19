#include "tools/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/try.h"

namespace kvferry::tools {
namespace {

using Clock = std::chrono::steady_clock;

int millis_left(Clock::time_point deadline) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

Error system_error(std::string_view what, int number) {
  return {Code::unsupported, fmt::format("{}: {}", what, ::strerror(number))};
}

struct Pipe {
  os::Fd read;
  os::Fd write;
};

Result<Pipe> open_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  return Pipe{os::Fd(fds[0]), os::Fd(fds[1])};
}

// Everything that the child needs between fork and exec, made before: it may not allocate there.
struct Plan {
  const char* program;
  std::vector<char*> argv;
  std::vector<char*> envp;
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;   // -1: ours
  int netns_fd;    // -1: ours
  int failure_fd;  // the number of a failed step goes here; closed by exec
  pid_t parent;
};

[[noreturn]] void become(const Plan& plan) {
  auto give_up = [&] {
    int number = errno;
    [[maybe_unused]] auto written = ::write(plan.failure_fd, &number, sizeof number);
    ::_exit(127);
  };
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // it died before the line above
  for (int signal : {SIGPIPE, SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // A group of its own: Ctrl-C reaches the command, which ends its children itself.
  ::setpgid(0, 0);
  if (::dup2(plan.stdin_fd, STDIN_FILENO) < 0) give_up();
  if (::dup2(plan.stdout_fd, STDOUT_FILENO) < 0) give_up();
  if (plan.stderr_fd >= 0 && ::dup2(plan.stderr_fd, STDERR_FILENO) < 0) give_up();
  if (plan.netns_fd >= 0 && ::setns(plan.netns_fd, CLONE_NEWNET) != 0) give_up();
  ::execve(plan.program, plan.argv.data(), plan.envp.data());
  give_up();
  ::_exit(127);
}

std::vector<std::string> child_environment(const ChildOptions& options) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view ours(*entry);
    bool replaced = std::ranges::any_of(options.environment, [&](const auto& set) {
      return ours.starts_with(set.first) && ours.substr(set.first.size()).starts_with('=');
    });
    if (!replaced) out.emplace_back(ours);
  }
  for (const auto& [name, value] : options.environment) out.push_back(name + '=' + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

bool LineReader::fill(int fd) {
  if (begin_ > 0 && begin_ == buffer_.size()) buffer_.clear(), begin_ = 0;
  while (open_) {
    char block[16384];
    ssize_t got = ::read(fd, block, sizeof block);
    if (got > 0) {
      buffer_.append(block, static_cast<std::size_t>(got));
      if (buffer_.size() - begin_ > line_bytes_max && buffer_.find('\n', begin_) == std::string::npos) open_ = false;
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      open_ = false;
    } else if (errno == EAGAIN) {
      break;
    }
  }
  return open_;
}

std::optional<std::string> LineReader::next() {
  std::size_t end = buffer_.find('\n', begin_);
  if (end == std::string::npos) return {};
  std::string line = buffer_.substr(begin_, end - begin_);
  begin_ = end + 1;
  return line;
}

Result<Child> Child::start(const ChildOptions& options) {
  KVF_TRY(to_child, open_pipe());
  KVF_TRY(from_child, open_pipe());
  KVF_TRY(failure, open_pipe());
  os::Fd errors;
  if (!options.stderr_path.empty()) {
    errors.reset(::open(options.stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!errors) return system_error("cannot write " + options.stderr_path, errno);
  }
  os::Fd network;
  if (!options.network_namespace.empty()) {
    network.reset(::open(options.network_namespace.c_str(), O_RDONLY | O_CLOEXEC));
    if (!network) return system_error("cannot open network namespace " + options.network_namespace, errno);
  }
  std::vector<std::string> arguments{options.program == "/proc/self/exe" ? "kvferry" : options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = child_environment(options);
  const Plan plan{.program = options.program.c_str(),
                  .argv = pointers(arguments),
                  .envp = pointers(environment),
                  .stdin_fd = to_child.read.get(),
                  .stdout_fd = from_child.write.get(),
                  .stderr_fd = errors.get(),
                  .netns_fd = network.get(),
                  .failure_fd = failure.write.get(),
                  .parent = ::getpid()};
  Child child;
  child.pid_ = ::fork();
  if (child.pid_ < 0) return system_error("cannot start a process", errno);
  if (child.pid_ == 0) become(plan);

  failure.write.reset();
  int number = 0;
  ssize_t got = 0;
  do got = ::read(failure.read.get(), &number, sizeof number);
  while (got < 0 && errno == EINTR);
  if (got == sizeof number) return system_error("cannot run " + options.program, number);
  child.pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid_, 0)));
  child.stdin_ = std::move(to_child.write);
  child.stdout_ = std::move(from_child.read);
  for (int fd : {child.stdin_.get(), child.stdout_.get()}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return child;
}

Child::Child(Child&& other) noexcept { *this = std::move(other); }

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(stdin_, other.stdin_);
  std::swap(stdout_, other.stdout_);
  std::swap(reader_, other.reader_);
  std::swap(status_, other.status_);
  return *this;
}

Child::~Child() {
  if (pid_ <= 0 || ended()) return;
  kill(SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

Result<void> Child::write_line(std::string_view line, Millis limit) {
  Error closed{Code::peer_lost, fmt::format("process {} does not read its stdin any more", pid_)};
  if (!stdin_) return closed;
  std::string text(line);
  text += '\n';
  Clock::time_point deadline = Clock::now() + limit;
  for (std::size_t at = 0; at < text.size();) {
    ssize_t put = ::write(stdin_.get(), text.data() + at, text.size() - at);
    if (put > 0) {
      at += static_cast<std::size_t>(put);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return closed;
    pollfd room{.fd = stdin_.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&room, 1, millis_left(deadline)) == 0) {
      return Error{Code::timeout, fmt::format("process {} did not read its stdin for {} ms", pid_, limit.count())};
    }
  }
  return {};
}

Result<std::string> Child::read_line(Millis limit) {
  Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    if (auto line = next_line()) return std::move(*line);
    pollfd readable{.fd = stdout_.get(), .events = POLLIN, .revents = 0};
    int left = millis_left(deadline);
    int ready = ::poll(&readable, 1, left);
    if (ready == 0 && Clock::now() >= deadline) {
      return Error{Code::timeout, fmt::format("process {} said nothing for {} ms", pid_, limit.count())};
    }
    if (ready > 0 && !fill()) {
      if (auto line = next_line()) return std::move(*line);
      std::string how = wait(Millis{500}) ? describe_status(*status_) : "closed its stdout";
      return Error{Code::peer_lost, fmt::format("process {} {}", pid_, how)};
    }
  }
}

void Child::kill(int signal) const {
  if (pid_ > 0 && !ended()) ::kill(pid_, signal);
}

bool Child::wait(Millis limit) {
  Clock::time_point deadline = Clock::now() + limit;
  while (!ended()) {
    int status = 0;
    pid_t got = ::waitpid(pid_, &status, WNOHANG);
    if (got == pid_) {
      status_ = status;
    } else if (int left = millis_left(deadline); left == 0) {
      return false;
    } else if (pidfd_) {
      pollfd over{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
      ::poll(&over, 1, left);
    } else {
      std::this_thread::sleep_for(std::min(Millis{left}, Millis{2}));
    }
  }
  return true;
}

void Child::stop(Millis limit) {
  close_stdin();
  kill(SIGTERM);
  if (wait(limit)) return;
  kill(SIGKILL);
  while (!wait(Millis{1000})) {
  }
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with {}", WEXITSTATUS(status));
  if (!WIFSIGNALED(status)) return fmt::format("ended with status {}", status);
  const char* name = ::sigabbrev_np(WTERMSIG(status));
  return fmt::format("was killed by {}{}", name == nullptr ? "signal " : "SIG",
                     name == nullptr ? std::to_string(WTERMSIG(status)) : name);
}

}  // namespace kvferry::tools
