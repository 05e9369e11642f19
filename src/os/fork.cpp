#include "os/fork.h"

#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <unordered_map>

namespace kvferry::os {
namespace {

std::atomic<unsigned> generation{0};

struct Known {
  std::mutex mutex;
  std::unordered_map<int, ino_t> sockets;  // under mutex; at most one entry a descriptor number
};

Known& known() {
  // Never destroyed: a process may fork while it ends.
  static Known* const one = [] {
    auto* made = new Known;
    pthread_atfork([] { known().mutex.lock(); }, [] { known().mutex.unlock(); },
                   [] {
                     // Only what may be called between fork and exec: fstat, close, and the mutex that this thread
                     // holds.
                     for (const auto& [fd, inode] : known().sockets) {
                       struct stat file {};
                       if (::fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) && file.st_ino == inode) ::close(fd);
                     }
                     generation.fetch_add(1);
                     known().mutex.unlock();
                   });
    return made;
  }();
  return *one;
}

}  // namespace

unsigned fork_generation() {
  known();
  return generation.load(std::memory_order_relaxed);
}

ForkBarrier::ForkBarrier() { known().mutex.lock(); }
ForkBarrier::~ForkBarrier() { known().mutex.unlock(); }

void ForkBarrier::close_in_children(int fd) {
  const int error = errno;
  struct stat file {};
  if (::fstat(fd, &file) == 0) known().sockets.insert_or_assign(fd, file.st_ino);
  errno = error;
}

}  // namespace kvferry::os
