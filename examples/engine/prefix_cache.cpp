#include "engine/prefix_cache.h"

namespace kvferry::engine {

std::vector<std::int32_t> PrefixCache::acquire(std::span<const std::int32_t> prompt) {
  ++turn_;
  std::vector<std::int32_t> pages;
  NodeId parent = 0;
  for (std::size_t start = 0; start + page_tokens_ <= prompt.size(); start += page_tokens_) {
    const auto tokens = prompt.subspan(start, page_tokens_);
    const auto found = nodes_.find({parent, {tokens.begin(), tokens.end()}});
    if (found == nodes_.end()) break;
    found->second.used_last = turn_;
    parent = found->second.id;
    pages.push_back(found->second.page);
  }
  allocator_.retain(pages);
  return pages;
}

void PrefixCache::insert(std::span<const std::int32_t> prompt, std::span<const std::int32_t> pages) {
  ++turn_;
  NodeId parent = 0;
  for (std::size_t i = 0; (i + 1) * page_tokens_ <= prompt.size() && i < pages.size(); ++i) {
    const auto tokens = prompt.subspan(i * page_tokens_, page_tokens_);
    const auto [node, fresh] = nodes_.try_emplace({parent, {tokens.begin(), tokens.end()}});
    if (fresh) {
      node->second.id = next_id_++;
      node->second.page = pages[i];
      allocator_.retain(pages.subspan(i, 1));
    }
    node->second.used_last = turn_;
    parent = node->second.id;
  }
}

void PrefixCache::make_room(std::size_t wanted) {
  while (allocator_.free_pages() < wanted && evict_one()) {
  }
}

// A leaf goes before its parent, else the rest of the branch could not be found any more.
bool PrefixCache::evict_one() {
  auto oldest = nodes_.end();
  for (auto node = nodes_.begin(); node != nodes_.end(); ++node) {
    if (allocator_.users(node->second.page) != 1) continue;
    const auto child = nodes_.lower_bound({node->second.id, {}});
    const bool leaf = child == nodes_.end() || child->first.first != node->second.id;
    if (leaf && (oldest == nodes_.end() || node->second.used_last < oldest->second.used_last)) oldest = node;
  }
  if (oldest == nodes_.end()) return false;
  allocator_.release({&oldest->second.page, 1});
  nodes_.erase(oldest);
  return true;
}

}  // namespace kvferry::engine
