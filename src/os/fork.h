// What a fork leaves behind in the child: threads that are not there, and sockets that it must not keep.
#pragma once

#include "os/fd.h"

namespace kvferry::os {

// How often this process was forked off another. What was made under another number belongs to the parent: its threads
// are not here, so it is given up and not destroyed.
unsigned fork_generation();

// A child closes these sockets: while it holds a copy, the peer does not see that this process has ended.
// No fork comes between the making of a socket and its being known; held for one system call that does not block.
class ForkBarrier {
 public:
  ForkBarrier();
  ~ForkBarrier();
  ForkBarrier(const ForkBarrier&) = delete;
  ForkBarrier& operator=(const ForkBarrier&) = delete;
  // Children close it. It need not be taken back: a descriptor that stands for another file by then is left alone.
  void close_in_children(int fd);
};

// `make` answers a new descriptor, or -1 with errno.
template <class Make>
Fd not_for_children(Make make) {
  ForkBarrier barrier;
  Fd fd(make());
  if (fd) barrier.close_in_children(fd.get());
  return fd;
}

}  // namespace kvferry::os
