// The pages of a replay worker: free ones, and those of prefix blocks that may serve a later request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace kvferry::tools {

using PageList = std::vector<std::int32_t>;

// Every page is in exactly one place: free, in a cached block, or with whoever allocated it. One thread.
class BlockCache {
 public:
  // Free pages come in an order that `seed` shuffles, as they do in an engine that has run for a while.
  BlockCache(std::size_t pages, std::uint64_t seed);

  // Pins the longest run of `hashes` from the first on that is cached, and answers its length. Pinned blocks stay.
  std::size_t pin_prefix(std::span<const std::uint64_t> hashes);
  // Gives back one pin of each; they become the most recently used.
  void unpin(std::span<const std::uint64_t> hashes);
  // The pages of a cached block.
  std::span<const std::int32_t> pages_of(std::uint64_t hash) const;

  // Takes `count` pages, the least recently used unpinned blocks giving theirs up; none where that does not suffice.
  std::optional<PageList> allocate(std::size_t count);
  void release(std::span<const std::int32_t> pages);
  // Caches a block under `hash`; pages of one that is cached already are released instead.
  void keep(std::uint64_t hash, std::span<const std::int32_t> pages);

  std::size_t free_pages() const { return free_.size(); }
  std::size_t blocks() const { return blocks_.size(); }

 private:
  struct Block {
    PageList pages;
    std::size_t pins = 0;
    std::list<std::uint64_t>::iterator age;  // in `unpinned_`, where pins is 0
  };
  PageList free_;
  std::unordered_map<std::uint64_t, Block> blocks_;
  std::list<std::uint64_t> unpinned_;  // least recently used first
  std::size_t evictable_pages_ = 0;    // of the blocks in `unpinned_`
};

}  // namespace kvferry::tools
