#include "bench/unserved.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/system_error.h"

namespace kvferry::bench {

Result<UnservedMemory> UnservedMemory::make(std::span<std::byte> memory) {
  os::Fd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (!fd) {
    Error error = system_error("userfaultfd is not permitted (root, or sysctl vm.unprivileged_userfaultfd=1)");
    error.code = Code::unsupported;
    return error;
  }
  uffdio_api api{};
  api.api = UFFD_API;
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0) return system_error("userfaultfd has no API that is known here");
  uffdio_register range{};
  range.range.start = reinterpret_cast<std::uintptr_t>(memory.data());
  range.range.len = memory.size();
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (::ioctl(fd.get(), UFFDIO_REGISTER, &range) != 0) return system_error("userfaultfd does not take the memory");
  if (::madvise(memory.data(), memory.size(), MADV_DONTNEED) != 0) return system_error("madvise");
  return UnservedMemory(std::move(fd));
}

}  // namespace kvferry::bench
