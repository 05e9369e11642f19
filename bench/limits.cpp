#include "bench/limits.h"

#include <sys/uio.h>

#include <array>
#include <cstring>

#include "bench/child.h"
#include "bench/system_error.h"

namespace kvferry::bench {

namespace {
constexpr std::size_t pieces_a_call = 1024;

std::size_t offset(std::int32_t page, const Scatter& scatter) {
  return static_cast<std::size_t>(page) * scatter.page_bytes;
}
}  // namespace

double memcpy_seconds(const std::byte* source, std::byte* target, const Scatter& scatter) {
  const double start = now_seconds();
  for (std::size_t i = 0; i < scatter.from.size(); ++i) {
    std::memcpy(target + offset(scatter.to[i], scatter), source + offset(scatter.from[i], scatter), scatter.page_bytes);
  }
  return now_seconds() - start;
}

Result<double> vm_read_seconds(pid_t process, std::uint64_t source, std::byte* target, const Scatter& scatter) {
  std::array<iovec, pieces_a_call> local;
  std::array<iovec, pieces_a_call> remote;
  const double start = now_seconds();
  for (std::size_t i = 0; i < scatter.from.size();) {
    std::size_t pieces = 0;
    for (; pieces < pieces_a_call && i < scatter.from.size(); ++pieces, ++i) {
      local[pieces] = {target + offset(scatter.to[i], scatter), scatter.page_bytes};
      // An address of the other process, never followed here.
      remote[pieces] = {reinterpret_cast<void*>(source + offset(scatter.from[i], scatter)), scatter.page_bytes};
    }
    const auto wanted = static_cast<ssize_t>(pieces * scatter.page_bytes);
    const ssize_t got = ::process_vm_readv(process, local.data(), pieces, remote.data(), pieces, 0);
    if (got < 0) return system_error("process_vm_readv from process " + std::to_string(process));
    if (got != wanted) return Error{.text = "process_vm_readv copied less than it was asked to"};
  }
  return now_seconds() - start;
}

}  // namespace kvferry::bench
