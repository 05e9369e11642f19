#include "engine/page_allocator.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "engine/arithmetic.h"

namespace kvferry::engine {

PageAllocator::PageAllocator(std::uint32_t pages, std::optional<std::uint64_t> shuffle_seed)
    : free_(pages), users_(pages, 0) {
  std::iota(free_.rbegin(), free_.rend(), 0);
  if (!shuffle_seed) return;
  Random random(*shuffle_seed);
  for (std::size_t left = free_.size(); left > 1; --left) std::swap(free_[left - 1], free_[random.below(left)]);
}

std::optional<std::vector<std::int32_t>> PageAllocator::allocate(std::size_t count) {
  if (count > free_.size()) return std::nullopt;
  std::vector<std::int32_t> pages(free_.rbegin(), free_.rbegin() + static_cast<std::ptrdiff_t>(count));
  free_.resize(free_.size() - count);
  for (const std::int32_t page : pages) users_[static_cast<std::size_t>(page)] = 1;
  return pages;
}

void PageAllocator::retain(std::span<const std::int32_t> pages) {
  for (const std::int32_t page : pages) ++used(page);
}

void PageAllocator::release(std::span<const std::int32_t> pages) {
  for (const std::int32_t page : pages) {
    if (--used(page) == 0) free_.push_back(page);
  }
}

std::uint32_t& PageAllocator::used(std::int32_t page) {
  const auto index = static_cast<std::size_t>(page);
  if (page < 0 || index >= users_.size() || users_[index] == 0) {
    std::fprintf(stderr, "kvferry-engine: page %d is not in use; %zu pages\n", page, users_.size());
    std::abort();
  }
  return users_[index];
}

}  // namespace kvferry::engine
