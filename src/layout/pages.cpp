#include "layout/pages.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/assert.h"
#include "layout/joins.h"

namespace kvferry::layout {
namespace {

// Appends to a vector by pointer: room is made a block of runs at a time, and the vector keeps growing geometrically.
template <class T>
class Appender {
 public:
  explicit Appender(std::vector<T>& out) : out_(out), at_(out.data() + out.size()), end_(at_) {}
  ~Appender() { out_.resize(used()); }
  Appender(const Appender&) = delete;
  Appender& operator=(const Appender&) = delete;
  void expect(std::size_t count) {
    if (static_cast<std::size_t>(end_ - at_) >= count) return;
    const std::size_t before = used();
    out_.resize(before + count);
    at_ = out_.data() + before;
    end_ = at_ + count;
  }
  void add(const T& value) { *at_++ = value; }

 private:
  std::size_t used() const { return static_cast<std::size_t>(at_ - out_.data()); }
  std::vector<T>& out_;
  T* at_;
  T* end_;
};

}  // namespace

const std::vector<Region>& component_regions(const Memory& memory, std::uint32_t component) {
  static const std::vector<Region> none;
  if (component == component_kv) return memory.kv;
  if (component == component_aux) return memory.aux;
  const std::size_t list = component - component_state;
  return list < memory.state.size() ? memory.state[list].regions : none;
}

std::uint32_t component_count(const Memory& memory) {
  return component_state + static_cast<std::uint32_t>(memory.state.size());
}

void merge_runs(std::span<const std::int32_t> source, std::span<const std::int32_t> target, std::vector<Run>& out) {
  KVF_ASSERT(source.size() == target.size());
  Appender<Run> runs(out);
  for_each_run(
      source.data(), target.data(), source.size(), find_joins(), [&](std::size_t count) { runs.expect(count); },
      [&](std::size_t begin, std::size_t count) {
        runs.add({static_cast<std::uint32_t>(source[begin]), static_cast<std::uint32_t>(target[begin]),
                  static_cast<std::uint32_t>(count)});
      });
}

void append_pieces(const Region& region, std::span<const std::int32_t> items, std::vector<Piece>& out) {
  if (items.empty()) return;
  const std::size_t seam = out.size();
  {
    auto* const base = static_cast<std::byte*>(region.base);
    Appender<Piece> pieces(out);
    for_each_run(
        items.data(), items.data(), items.size(), find_joins(), [&](std::size_t count) { pieces.expect(count); },
        [&](std::size_t begin, std::size_t count) {
          pieces.add({base + static_cast<std::size_t>(items[begin]) * region.item_bytes, count * region.item_bytes});
        });
  }
  if (seam == 0) return;
  Piece& before = out[seam - 1];
  if (before.data + before.bytes != out[seam].data) return;
  before.bytes += out[seam].bytes;
  out.erase(out.begin() + static_cast<std::ptrdiff_t>(seam));
}

void append_units(std::span<const std::int32_t> pages, std::uint32_t units, const Range& range,
                  std::vector<std::int32_t>& out) {
  KVF_ASSERT(range.end <= pages.size() * units);
  if (units == 1) {
    out.insert(out.end(), pages.begin() + static_cast<std::ptrdiff_t>(range.begin),
               pages.begin() + static_cast<std::ptrdiff_t>(range.end));
    return;
  }
  out.reserve(out.size() + range.size());
  for (std::uint64_t i = range.begin; i < range.end; ++i) {
    out.push_back(pages[i / units] * static_cast<std::int32_t>(units) + static_cast<std::int32_t>(i % units));
  }
}

std::uint64_t bytes_of(std::span<const Region> regions, std::uint64_t items) {
  std::uint64_t total = 0;
  for (const Region& region : regions) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(std::uint64_t{region.item_bytes}, items, &bytes) ||
        __builtin_add_overflow(total, bytes, &total)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
  }
  return total;
}

Result<void> check_items(std::span<const std::int32_t> indices, std::size_t items, const char* what) {
  constexpr std::size_t indices_max = std::size_t{1} << 31;
  // The sign bit of (last - index) is set where index > last, that of index where it is negative: one pass of plain
  // arithmetic that the compiler turns into vectors. Without items `last` wraps, and every index is outside.
  const auto last = static_cast<std::uint32_t>(std::min(items, indices_max)) - 1;
  std::uint32_t outside = 0;
  for (const std::int32_t index : indices) {
    const auto bits = static_cast<std::uint32_t>(index);
    outside |= bits | (last - bits);
  }
  if ((outside >> 31) == 0) return {};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && static_cast<std::size_t>(indices[i]) < items) continue;
    return Error{Code::out_of_range, std::string(what) + " " + std::to_string(indices[i]) + " (entry " +
                                         std::to_string(i) + " of " + std::to_string(indices.size()) +
                                         ") does not exist; there are " + std::to_string(items) +
                                         (items == 0 ? "" : " (0 to " + std::to_string(items - 1) + ")")};
  }
  return {};
}

}  // namespace kvferry::layout
