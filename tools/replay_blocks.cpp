#include "tools/replay_blocks.h"

#include <numeric>
#include <random>
#include <utility>

namespace kvferry::tools {

BlockCache::BlockCache(std::size_t pages, std::uint64_t seed) : free_(pages) {
  std::iota(free_.begin(), free_.end(), 0);
  std::mt19937_64 random(seed);
  for (std::size_t i = pages; i > 1; --i) std::swap(free_[i - 1], free_[random() % i]);
}

std::size_t BlockCache::pin_prefix(std::span<const std::uint64_t> hashes) {
  std::size_t length = 0;
  for (std::uint64_t hash : hashes) {
    const auto at = blocks_.find(hash);
    if (at == blocks_.end()) break;
    Block& block = at->second;
    if (block.pins++ == 0) {
      unpinned_.erase(block.age);
      evictable_pages_ -= block.pages.size();
    }
    ++length;
  }
  return length;
}

void BlockCache::unpin(std::span<const std::uint64_t> hashes) {
  // The last block first: a prefix is of use without its end, never the other way round.
  for (std::size_t i = hashes.size(); i > 0; --i) {
    const auto at = blocks_.find(hashes[i - 1]);
    if (at == blocks_.end() || at->second.pins == 0) continue;
    Block& block = at->second;
    if (--block.pins > 0) continue;
    block.age = unpinned_.insert(unpinned_.end(), at->first);
    evictable_pages_ += block.pages.size();
  }
}

std::span<const std::int32_t> BlockCache::pages_of(std::uint64_t hash) const {
  const auto at = blocks_.find(hash);
  if (at == blocks_.end()) return {};
  return at->second.pages;
}

std::optional<PageList> BlockCache::allocate(std::size_t count) {
  if (count > free_.size() + evictable_pages_) return {};
  while (free_.size() < count) {
    const auto oldest = blocks_.find(unpinned_.front());
    free_.insert(free_.end(), oldest->second.pages.begin(), oldest->second.pages.end());
    evictable_pages_ -= oldest->second.pages.size();
    blocks_.erase(oldest);
    unpinned_.pop_front();
  }
  const auto first = free_.end() - static_cast<std::ptrdiff_t>(count);
  PageList pages(first, free_.end());
  free_.erase(first, free_.end());
  return pages;
}

void BlockCache::release(std::span<const std::int32_t> pages) { free_.insert(free_.end(), pages.begin(), pages.end()); }

void BlockCache::keep(std::uint64_t hash, std::span<const std::int32_t> pages) {
  const auto [at, fresh] = blocks_.try_emplace(hash);
  if (!fresh) return release(pages);
  at->second.pages.assign(pages.begin(), pages.end());
  at->second.age = unpinned_.insert(unpinned_.end(), hash);
  evictable_pages_ += pages.size();
}

}  // namespace kvferry::tools
