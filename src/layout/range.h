#pragma once

#include <algorithm>
#include <cstdint>

namespace kvferry::layout {

// A half-open range.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  friend bool operator==(const Range&, const Range&) = default;
};
inline constexpr Range every_layer{0, UINT64_MAX};
// Empty where they do not meet.
inline Range intersection(const Range& a, const Range& b) {
  const std::uint64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace kvferry::layout
