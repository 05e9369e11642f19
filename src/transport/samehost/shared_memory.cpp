#include "transport/samehost/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>

#include "kvferry/kvferry.h"
#include "layout/pages.h"
#include "os/fd.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvferry {
namespace {

// Process-wide, because an engine allocates before it makes a manager. Bounded by the engine's own allocations.
struct Blocks {
  std::mutex mutex;
  std::vector<transport::SharedBlock> list;  // under mutex
};
Blocks& blocks() {
  static auto* const made = new Blocks;  // never destroyed: memory may be freed after main
  return *made;
}

std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::uint64_t kib = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return UINT64_MAX;
}

Error refused(const char* what, std::size_t bytes, int error) {
  return Error{Code::unsupported,
               fmt::format("shared memory of {} bytes: {} failed: {}", bytes, what, std::strerror(error))};
}

void release(const std::byte* data, std::size_t size) {
  int fd = -1;
  {
    const std::lock_guard lock(blocks().mutex);
    auto& list = blocks().list;
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& block) { return block.base == data; });
    if (found != list.end()) {
      fd = found->fd;
      list.erase(found);
    }
  }
  ::munmap(const_cast<std::byte*>(data), size);
  if (fd >= 0) ::close(fd);
}

}  // namespace

Result<SharedMemory> SharedMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return Error{Code::invalid_argument, "shared memory of 0 bytes; ask for at least one"};
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (const std::uint64_t available = available_bytes(); bytes > available || bytes > SIZE_MAX - page) {
    return Error{Code::unsupported,
                 fmt::format("shared memory of {} bytes: the machine has {} bytes available", bytes, available)};
  }
  const std::size_t size = (bytes + page - 1) / page * page;
  os::Fd fd(::memfd_create("kvferry", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return refused("memfd_create", size, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return refused("ftruncate", size, errno);
  void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return refused("mmap", size, errno);
  // Populated through the mapping first, because only then the kernel takes huge pages. What it does not do for lack of
  // support posix_fallocate does: afterwards no touch, here or at a reader, can find the memory missing.
  ::madvise(data, size, MADV_HUGEPAGE);
  ::madvise(data, size, MADV_POPULATE_WRITE);
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size)); error != 0) {
    ::munmap(data, size);
    return refused("posix_fallocate", size, error);
  }
  // Readers rely on the size; that nobody else maps it writable is welcome where the kernel knows it (5.1).
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    ::munmap(data, size);
    return refused("sealing", size, error);
  }
  const std::lock_guard lock(blocks().mutex);
  blocks().list.push_back({static_cast<std::byte*>(data), size, fd.release()});
  return SharedMemory(static_cast<std::byte*>(data), size);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) release(data_, size_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) release(data_, size_);
}

}  // namespace kvferry

namespace kvferry::transport {

std::optional<SharedBlock> find_shared(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(blocks().mutex);
  for (const SharedBlock& block : blocks().list) {
    const auto base = reinterpret_cast<std::uintptr_t>(block.base);
    if (begin >= base && begin - base <= block.bytes && bytes <= block.bytes - (begin - base)) return block;
  }
  return {};
}

std::vector<SharedBlock> shared_blocks(const Memory& memory) {
  std::vector<SharedBlock> found;
  for (std::uint32_t c = 0; c < layout::component_count(memory); ++c) {
    for (const Region& region : layout::component_regions(memory, c)) {
      const auto block = find_shared(region.base, region.length);
      if (!block) continue;
      const bool known =
          std::any_of(found.begin(), found.end(), [&](const auto& other) { return other.base == block->base; });
      if (!known) found.push_back(*block);
    }
  }
  return found;
}

}  // namespace kvferry::transport
