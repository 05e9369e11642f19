// What an engine tells kvferry about its memory and its place among its siblings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvferry {

enum class MemoryKind : std::uint8_t { host, cuda };

// One buffer of items of one size: the K or V cache of one layer (item = one page), an aux table (item = one request's
// record), or a state table. The engine owns the memory and keeps it mapped for as long as the manager lives.
struct Region {
  void* base = nullptr;
  std::size_t length = 0;      // bytes; a whole number of items
  std::size_t item_bytes = 0;  // bytes of one item
  MemoryKind kind = MemoryKind::host;

  std::size_t items() const { return item_bytes == 0 ? 0 : length / item_bytes; }
};

// The memory of one rank. `kv` holds the buffers that page indices address: all K layers, then all V layers (one buffer
// a layer for MLA and where K and V share a buffer). Every `kv` region has the same number of items.
struct Memory {
  std::vector<Region> kv;
  std::vector<Region> aux;
  std::vector<std::vector<Region>> state;  // one list a component (Mamba, sliding window, ...)
  std::uint32_t first_layer = 0;           // the model's layer that `kv` begins with; not 0 in later pipeline stages
};

// The order of what lies in a page of one layer, slowest first. It matters only where ranks hold different heads.
enum class PageOrder : std::uint8_t { token_head_dim, head_token_dim };

// What both sides must agree on; compared when two ranks link, refused there in words.
struct KvFormat {
  std::string dtype = "bfloat16";
  std::uint32_t page_tokens = 16;  // tokens of one page
  std::uint32_t layers = 0;        // of the whole model
  std::uint32_t kv_heads = 0;      // of the whole model, not of the rank
  std::uint32_t head_dim = 0;
  bool mla = false;
  PageOrder order = PageOrder::token_head_dim;
  bool kv_joined = false;  // a region of a layer holds K and V: of each page first all of K, then all of V
  friend bool operator==(const KvFormat&, const KvFormat&) = default;
};

// Parallel sizes of an instance. `tp` counts the ranks of one data-parallel group. A rank holds kv_heads / tp heads of
// the model, or one that tp / kv_heads ranks in a row hold alike.
struct Parallel {
  std::uint32_t tp = 1;
  std::uint32_t dp = 1;
  std::uint32_t pp = 1;  // pipeline stages: each holds a range of the layers
  std::uint32_t cp = 1;  // context parallel (prefill): each holds a contiguous share of a request's pages
  friend bool operator==(const Parallel&, const Parallel&) = default;
};

// Where a rank stands in its instance.
struct Place {
  std::uint32_t dp = 0;
  std::uint32_t tp = 0;
  std::uint32_t pp = 0;
  std::uint32_t cp = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

}  // namespace kvferry
