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

// What a request has beside its pages and with indices of its own: Mamba states, sliding windows, the layers of a draft
// model. Every region has the same number of items.
struct StateComponent {
  std::vector<Region> regions;
  std::string name = {};  // the two sides' components of one name belong together; those without, in their order
  // The other side may lack it: nothing of it moves then. Without this a component that only one side has is refused
  // when two ranks link.
  bool optional = false;
};

// The memory of one rank. `kv` holds the buffers that page indices address: all K layers, then all V layers (one buffer
// a layer for MLA and where K and V share a buffer). Every `kv` region has the same number of items.
struct Memory {
  std::vector<Region> kv;
  std::vector<Region> aux;
  std::vector<StateComponent> state;
  std::uint32_t first_layer = 0;  // the model's layer that `kv` begins with; not 0 in later pipeline stages
};

// The order of what lies in a page of one layer, slowest first. It matters only where ranks hold different heads.
enum class PageOrder : std::uint8_t { token_head_dim, head_token_dim };

// What both sides must agree on; compared when two ranks link, refused there in words. Only `page_tokens` may differ,
// where one is a multiple of the other: pages are cut or joined on the way.
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

// Layers of the model, a half-open range.
struct LayerRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
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
