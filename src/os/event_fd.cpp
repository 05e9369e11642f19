#include "os/event_fd.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace kvferry::os {

EventFd::EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void EventFd::signal() const {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, which means that it is readable already.
  [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
}

void EventFd::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace kvferry::os
