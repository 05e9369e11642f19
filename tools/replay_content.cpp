#include "tools/replay_content.h"

#include <array>
#include <cstring>

#include "base/crc32c.h"

namespace kvferry::tools {

namespace {

constexpr std::size_t slices = 1024;  // a power of two
constexpr std::size_t slice_step_bytes = 512;

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

std::uint64_t mix(const ItemId& id) {
  return mix(mix(id.hash + 0x9E3779B97F4A7C15) + (std::uint64_t{id.page} << 32) + id.region);
}

std::array<std::byte, ItemContent::tail_bytes> tail_of(const ItemId& id) {
  const std::array<std::uint64_t, 4> words{id.hash, id.page, id.region, mix(id)};
  std::array<std::byte, ItemContent::tail_bytes> tail{};
  static_assert(sizeof words == sizeof tail);
  std::memcpy(tail.data(), words.data(), sizeof words);
  return tail;
}

std::size_t slice_of(const ItemId& id) { return mix(id) % slices; }

}  // namespace

ItemContent::ItemContent(std::size_t item_bytes) : item_bytes_(item_bytes) {
  pool_.resize(slices * slice_step_bytes + item_bytes);
  for (std::size_t at = 0; at + 8 <= pool_.size(); at += 8) {
    const std::uint64_t word = mix(at + 1);
    std::memcpy(pool_.data() + at, &word, sizeof word);
  }
  body_crcs_.reserve(slices);
  for (std::size_t slice = 0; slice < slices; ++slice) {
    body_crcs_.push_back(crc32c({pool_.data() + slice * slice_step_bytes, body_bytes()}));
  }
}

void ItemContent::write(std::byte* item, const ItemId& id) const {
  std::memcpy(item, pool_.data() + slice_of(id) * slice_step_bytes, body_bytes());
  const auto tail = tail_of(id);
  std::memcpy(item + body_bytes(), tail.data(), tail.size());
}

std::uint32_t ItemContent::expected_crc(const ItemId& id) const {
  return crc32c(tail_of(id), body_crcs_[slice_of(id)]);
}

void ItemCheck::add(const std::byte* item, const ItemId& id) {
  items_[waiting_] = item;
  expected_[waiting_] = content_.expected_crc(id);
  if (++waiting_ < 3) return;
  const auto found = crc32c_of_three({items_[0], items_[1], items_[2]}, content_.item_bytes());
  for (std::size_t i = 0; i < 3; ++i) wrong_ += found[i] != expected_[i] ? 1 : 0;
  waiting_ = 0;
}

std::uint64_t ItemCheck::finish() {
  for (std::size_t i = 0; i < waiting_; ++i) {
    wrong_ += crc32c({items_[i], content_.item_bytes()}) != expected_[i] ? 1 : 0;
  }
  waiting_ = 0;
  return wrong_;
}

}  // namespace kvferry::tools
