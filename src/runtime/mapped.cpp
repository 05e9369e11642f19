#include "runtime/mapped.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/pages.h"

namespace kvferry::runtime {
namespace {

bool is_mapped(const Region& region) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(region.base) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(region.base) + region.length;
  // In steps, so that the answer of the kernel stays small.
  std::vector<unsigned char> resident(65'536);
  for (std::uintptr_t at = begin; at < end; at += resident.size() * page) {
    const std::size_t bytes = std::min<std::size_t>(end - at, resident.size() * page);
    if (::mincore(reinterpret_cast<void*>(at), bytes, resident.data()) != 0 && errno == ENOMEM) return false;
  }
  return true;
}

}  // namespace

Result<void> check_mapped(const Memory& memory) {
  static constexpr const char* names[] = {"kv", "aux", "state"};
  for (std::uint32_t c = 0; c < layout::component_count(memory); ++c) {
    const auto& regions = layout::component_regions(memory, c);
    for (std::size_t i = 0; i < regions.size(); ++i) {
      if (is_mapped(regions[i])) continue;
      return Error{Code::invalid_argument, std::string(names[std::min<std::uint32_t>(c, 2)]) + " region " +
                                               std::to_string(i) + " (" + std::to_string(regions[i].length) +
                                               " bytes) is not mapped memory of this process"};
    }
  }
  return {};
}

}  // namespace kvferry::runtime
