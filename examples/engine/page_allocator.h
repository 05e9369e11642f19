// Which items of a table are free, and how many users each of the others has. Used for pages and for aux items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvferry::engine {

class PageAllocator {
 public:
  // With a seed, pages are handed out in an order that scatters a request over the whole memory.
  explicit PageAllocator(std::uint32_t pages, std::optional<std::uint64_t> shuffle_seed = {});

  std::size_t free_pages() const { return free_.size(); }
  std::size_t pages() const { return users_.size(); }
  // `count` pages with one user each, or nothing where there are not so many.
  std::optional<std::vector<std::int32_t>> allocate(std::size_t count);
  // One user more for pages that have one; one user less, and free at none. A page without a user ends the process:
  // going on would hand the page to two requests.
  void retain(std::span<const std::int32_t> pages);
  void release(std::span<const std::int32_t> pages);
  std::uint32_t users(std::int32_t page) const { return users_[static_cast<std::size_t>(page)]; }

 private:
  std::uint32_t& used(std::int32_t page);

  std::vector<std::int32_t> free_;  // handed out from the back
  std::vector<std::uint32_t> users_;
};

}  // namespace kvferry::engine
