// Memory to measure with, and orders to walk it in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvferry/result.h"

namespace kvferry::bench {

// Private anonymous memory whose every page was written once. A resource: move-only, unmapped on destruction.
class Buffer {
 public:
  static Result<Buffer> allocate(std::size_t bytes);
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Buffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The numbers below `count` in an order that the seed decides, the same in every process.
std::vector<std::int32_t> shuffled(std::size_t count, std::uint64_t seed);

// Pages to move: page `from[i]` of the source becomes page `to[i]` of the target.
struct Scatter {
  std::span<const std::int32_t> from;
  std::span<const std::int32_t> to;
  std::size_t page_bytes = 0;
  std::size_t bytes() const { return from.size() * page_bytes; }
};

// Writes words that tell their own place, so that a page in the wrong place is seen.
void fill_pattern(std::span<std::byte> memory);
// Spoils one word of every 4 KiB, so that bytes of an earlier round cannot pass for those of the next.
void spoil(std::span<std::byte> memory);
// Pages of `target` that do not hold the page of the pattern that `scatter` names.
std::size_t wrong_pages(const std::byte* target, const Scatter& scatter);

}  // namespace kvferry::bench
