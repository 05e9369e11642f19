// Pages of earlier prompts that decode still holds, found again by the tokens they stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/page_allocator.h"

namespace kvferry::engine {

// A tree of whole pages: a node is one page's tokens after its parent's. The cache is one user of each of its pages.
// Its size is bounded by the allocator's pages; `make_room` gives back what no request uses, least recently used first.
class PrefixCache {
 public:
  // `allocator` outlives the cache.
  PrefixCache(PageAllocator& allocator, std::uint32_t page_tokens) : allocator_(allocator), page_tokens_(page_tokens) {}

  // The pages of the longest known prefix of `prompt`, in order. The caller becomes a user of each.
  std::vector<std::int32_t> acquire(std::span<const std::int32_t> prompt);
  // Remembers the whole pages of `prompt`; `pages` are those of the prompt in order. Known ones keep their old page.
  void insert(std::span<const std::int32_t> prompt, std::span<const std::int32_t> pages);
  // Lets pages go until the allocator has `wanted` free ones, or nothing more can go.
  void make_room(std::size_t wanted);
  std::size_t size() const { return nodes_.size(); }

 private:
  using NodeId = std::uint64_t;  // 0 is the root, which has no page
  using Key = std::pair<NodeId, std::vector<std::int32_t>>;
  struct Node {
    NodeId id = 0;
    std::int32_t page = 0;
    std::uint64_t used_last = 0;
  };

  bool evict_one();

  PageAllocator& allocator_;
  std::uint32_t page_tokens_;
  std::map<Key, Node> nodes_;
  NodeId next_id_ = 1;
  std::uint64_t turn_ = 0;
};

}  // namespace kvferry::engine
