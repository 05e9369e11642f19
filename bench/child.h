// A second process to measure with, and the channel to it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "kvferry/result.h"
#include "os/fd.h"

namespace kvferry::bench {

// One end of a pair of sockets that keeps messages whole. Not for bytes that are measured.
class Channel {
 public:
  explicit Channel(os::Fd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }
  // `peer_lost` where the other process has ended.
  Result<void> send_bytes(const void* bytes, std::size_t size) const;
  // Waits for the next message; one longer than `capacity` is `protocol`.
  Result<std::size_t> receive_bytes(void* bytes, std::size_t capacity) const;

  template <class T>
  Result<void> send(const T& message) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return send_bytes(&message, sizeof message);
  }
  template <class T>
  Result<T> receive() const {
    static_assert(std::is_trivially_copyable_v<T>);
    T message{};
    auto size = receive_bytes(&message, sizeof message);
    if (!size) return size.error();
    if (*size != sizeof message) {
      return Error{.code = Code::protocol,
                   .text = "a message of " + std::to_string(*size) + " bytes came where one of " +
                           std::to_string(sizeof message) + " was expected"};
    }
    return message;
  }

 private:
  os::Fd fd_;
};

// A forked process that runs one function. It dies with its parent, and is killed and waited for on destruction.
class Child {
 public:
  // `body` runs in the child, which ends with what it returns. To be called before the process has threads.
  static Result<Child> start(const std::function<int(Channel)>& body);
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), channel_(std::move(other.channel_)) {}
  Child& operator=(Child&&) = delete;
  ~Child();
  pid_t pid() const { return pid_; }
  const Channel& channel() const { return channel_; }

 private:
  Child(pid_t pid, Channel channel) : pid_(pid), channel_(std::move(channel)) {}
  pid_t pid_ = -1;
  Channel channel_;
};

// CPU time of this process so far, all threads, user and system.
double cpu_seconds();
// The monotonic clock.
double now_seconds();
// The value below which the share `p` of `values` lies; reorders them. 0 where there are none.
double percentile(std::vector<double>& values, double p);
inline double median(std::vector<double> values) { return percentile(values, 0.5); }

}  // namespace kvferry::bench
