// An eventfd: readable while somebody has something to fetch. Any thread; close-on-exec, non-blocking.
#pragma once

#include "os/fd.h"

namespace kvferry::os {

class EventFd {
 public:
  EventFd();  // throws std::system_error where the process is out of descriptors
  int get() const { return fd_.get(); }
  void signal() const;
  void clear() const;

 private:
  Fd fd_;
};

}  // namespace kvferry::os
