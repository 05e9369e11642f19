// What stands in an item of the KV cache during a replay, and the CRC32C it must have: decided by the prefix block, the
// page's place in it and the region alone, so that decode knows what prefill must have sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvferry::tools {

struct ItemId {
  std::uint64_t hash = 0;    // of the prefix block; of an aux record: its room
  std::uint32_t page = 0;    // inside the block
  std::uint32_t region = 0;  // kv region; `aux_region` for an aux record
  static constexpr std::uint32_t aux_region = 0xffffffff;
};

// An item is a slice of a pool of random bytes, and ends with 32 bytes that name it. The slices are few, so their CRCs
// are known beforehand and the expected CRC of any item costs 32 bytes of arithmetic, while every byte is checked.
class ItemContent {
 public:
  static constexpr std::size_t tail_bytes = 32;
  // `item_bytes` is a multiple of 8 above `tail_bytes`.
  explicit ItemContent(std::size_t item_bytes);

  std::size_t item_bytes() const { return item_bytes_; }
  void write(std::byte* item, const ItemId& id) const;
  std::uint32_t expected_crc(const ItemId& id) const;

 private:
  std::size_t body_bytes() const { return item_bytes_ - tail_bytes; }
  std::size_t item_bytes_;
  std::vector<std::byte> pool_;
  std::vector<std::uint32_t> body_crcs_;  // one a slice
};

// Counts items that do not have their expected CRC, three at a time.
class ItemCheck {
 public:
  explicit ItemCheck(const ItemContent& content) : content_(content) {}
  void add(const std::byte* item, const ItemId& id);
  // Checks what is left; the number of wrong items so far.
  std::uint64_t finish();

 private:
  const ItemContent& content_;
  const std::byte* items_[3] = {};
  std::uint32_t expected_[3] = {};
  std::size_t waiting_ = 0;
  std::uint64_t wrong_ = 0;
};

}  // namespace kvferry::tools
