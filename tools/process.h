// Child processes of the command: started, spoken to over pipes, killed and reaped. None outlives the command.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvferry/result.h"
#include "os/fd.h"

namespace kvferry::tools {

// Splits what comes out of a non-blocking descriptor into lines. The descriptor stays the caller's: poll it, then
// `fill`.
class LineReader {
 public:
  // A line longer than this ends the stream: the other end does not speak in lines.
  static constexpr std::size_t line_bytes_max = std::size_t{16} << 20;

  // Takes what is there, without waiting. False once the other end has closed; lines that were read stay available.
  bool fill(int fd);
  // The next whole line, without its end.
  std::optional<std::string> next();

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
  bool open_ = true;
};

struct ChildOptions {
  std::vector<std::string> arguments;                              // without the program
  std::string program = "/proc/self/exe";                          // this very command by default
  std::vector<std::pair<std::string, std::string>> environment{};  // set on top of ours
  std::string stderr_path{};                                       // appended to; ours when empty
  std::string network_namespace{};                                 // to run in, as a path; ours when empty
};

// A running child, reached over pipes on its stdin and stdout. Killed (SIGKILL) and reaped when the object goes. The
// kernel kills it when the thread that started it ends, so start children from a thread that lives as long as they
// should. All calls from one thread.
class Child {
 public:
  using Millis = std::chrono::milliseconds;

  // `unsupported` with the system's words where the program cannot be run.
  static Result<Child> start(const ChildOptions& options);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  int stdout_fd() const { return stdout_.get(); }  // non-blocking, for poll(2)
  bool ended() const { return status_.has_value(); }
  std::optional<int> status() const { return status_; }  // as waitpid gives it

  // Writes the line and its end. `timeout` where the child does not read, `peer_lost` where its stdin is closed.
  Result<void> write_line(std::string_view line, Millis limit = Millis{5000});
  void close_stdin() { stdin_.reset(); }
  // For a loop around poll(2): takes what is there, answers false at the end of the child's stdout.
  bool fill() { return reader_.fill(stdout_.get()); }
  std::optional<std::string> next_line() { return reader_.next(); }
  // Waits for one line; `timeout`, or `peer_lost` where the child closed its stdout.
  Result<std::string> read_line(Millis limit);

  // Does nothing to a child that was reaped: its number may belong to somebody else.
  void kill(int signal) const;
  // True once the child has ended within the limit; a limit of 0 only looks.
  bool wait(Millis limit);
  // Asks with SIGTERM, then kills; reaped in any case.
  void stop(Millis limit = Millis{2000});

 private:
  Child() = default;
  pid_t pid_ = -1;
  os::Fd pidfd_;  // absent on kernels before 5.3
  os::Fd stdin_;
  os::Fd stdout_;
  LineReader reader_;
  std::optional<int> status_;
};

// "exited with 3", "killed by SIGKILL"
std::string describe_status(int status);

}  // namespace kvferry::tools
