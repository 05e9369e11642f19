// Memory that the kernel does not serve: whoever touches it waits. For peers that hang in the worst way.
#pragma once

#include <cstddef>
#include <span>

#include "kvferry/result.h"
#include "os/fd.h"

namespace kvferry::bench {

// A resource: while it lives, pages of `memory` (whole pages, private and anonymous) are gone, and every access to one,
// of this process or by process_vm_readv, waits. Then they are there again, as zeros.
class UnservedMemory {
 public:
  // `unsupported` where userfaultfd is not permitted: it needs root or vm.unprivileged_userfaultfd=1.
  static Result<UnservedMemory> make(std::span<std::byte> memory);
  // Readable once somebody waits.
  int fd() const { return fd_.get(); }

 private:
  explicit UnservedMemory(os::Fd fd) : fd_(std::move(fd)) {}
  os::Fd fd_;  // its closing wakes everybody who waits
};

}  // namespace kvferry::bench
