// The paged KV cache of one rank: where a token's keys and values lie, and the regions that kvferry moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "kvferry/layout.h"

namespace kvferry::engine {

// One item of the aux table: what decode must know of a request beside its pages. Travels with the last chunk.
struct AuxRecord {
  std::uint64_t request_id = 0;
  std::uint64_t room = 0;
  std::uint64_t logits_checksum = 0;  // of the logits that the first token was picked from
  std::uint32_t prompt_tokens = 0;
  std::int32_t first_token = 0;
  std::int64_t computed_ns = 0;  // monotonic clock when the prompt was computed; for latencies within one host
  std::uint8_t reserved[24] = {};
};
static_assert(sizeof(AuxRecord) == 64 && std::is_trivially_copyable_v<AuxRecord>);

// What one rank holds: some layers, some heads, all pages.
struct CacheShape {
  std::uint32_t first_layer = 0;
  std::uint32_t layers = 0;
  std::uint32_t page_tokens = 0;
  std::uint32_t first_kv_head = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t first_query_head = 0;  // the query heads that this rank computes; they look at its kv heads
  std::uint32_t query_heads = 0;
  std::uint32_t head_dim = 0;
  bool mla = false;  // keys and values are one and the same
  std::uint32_t pages = 0;
  std::uint32_t aux_items = 0;

  bool has_layer(std::uint32_t layer) const { return layer >= first_layer && layer < first_layer + layers; }
  std::uint32_t regions() const { return layers * (mla ? 1 : 2); }
  std::size_t token_floats() const { return std::size_t{kv_heads} * head_dim; }
  std::size_t page_floats() const { return page_tokens * token_floats(); }
  std::size_t page_bytes() const { return page_floats() * sizeof(float); }  // one item of one region
  std::size_t layer_floats() const { return pages * page_floats(); }
  // Bytes of one page across all regions, and of the whole cache with its aux table.
  std::size_t page_bytes_everywhere() const { return page_bytes() * regions(); }
  std::size_t total_bytes() const { return page_bytes_everywhere() * pages + aux_items * sizeof(AuxRecord); }
};

// Zeroed memory that starts on a page boundary of the machine.
class PrivateMemory {
 public:
  explicit PrivateMemory(std::size_t bytes);
  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_;
};

// A view of memory that somebody else owns: all K layers, then all V layers (MLA has none), then the aux table. Within
// a page the floats are [token][kv head][head_dim]. Layers are numbered as the model's.
class KvCache {
 public:
  // `storage` has at least total_bytes() and outlives the cache.
  KvCache(const CacheShape& shape, std::span<std::byte> storage);

  const CacheShape& shape() const { return shape_; }
  float* k(std::uint32_t layer, std::int32_t page) const { return page_at(layer - shape_.first_layer, page); }
  float* v(std::uint32_t layer, std::int32_t page) const {
    return page_at(layer - shape_.first_layer + (shape_.mla ? 0 : shape_.layers), page);
  }
  AuxRecord& aux(std::int32_t index) const { return aux_[index]; }
  // The regions as kvferry registers them.
  Memory regions() const;

 private:
  float* page_at(std::uint32_t region, std::int32_t page) const {
    return floats_ + region * shape_.layer_floats() + static_cast<std::size_t>(page) * shape_.page_floats();
  }

  CacheShape shape_;
  float* floats_;
  AuxRecord* aux_;
};

}  // namespace kvferry::engine
