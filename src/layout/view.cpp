#include "layout/view.h"

#include <algorithm>
#include <limits>

#include "base/assert.h"

namespace kvferry::layout {
namespace {

bool is_whole(const RegionCut& cut, std::uint64_t item_bytes) {
  return cut.strips.size() == 1 && cut.strips[0].count == 1 && cut.strips[0].offset == 0 &&
         cut.strips[0].bytes * cut.units == item_bytes && (cut.units == 1 || cut.unit_step == cut.strips[0].bytes);
}

void append(std::byte* data, std::uint64_t bytes, std::vector<Piece>& out) {
  if (!out.empty() && out.back().data + out.back().bytes == data) {
    out.back().bytes += bytes;
  } else {
    out.push_back({data, bytes});
  }
}

}  // namespace

std::uint64_t RegionCut::unit_bytes() const {
  std::uint64_t sum = 0;
  for (const Strip& strip : strips) sum += strip.bytes * strip.count;
  return sum;
}

std::uint64_t RegionCut::reach() const {
  std::uint64_t end = 0;
  for (const Strip& strip : strips) {
    end = std::max(end, (units - 1) * unit_step + strip.offset + (strip.count - 1) * strip.stride + strip.bytes);
  }
  return end;
}

std::vector<RegionCut> whole_cuts(const std::vector<std::uint64_t>& item_bytes) {
  std::vector<RegionCut> cuts;
  for (std::uint32_t i = 0; i < item_bytes.size(); ++i) {
    cuts.push_back({.region = i, .units = 1, .unit_step = item_bytes[i], .strips = {{.bytes = item_bytes[i]}}});
  }
  return cuts;
}

ViewRegion ViewRegion::of(const Region& region) {
  return of(region, {.units = 1, .unit_step = region.item_bytes, .strips = {{.bytes = region.item_bytes}}});
}

ViewRegion ViewRegion::of(const Region& region, const RegionCut& cut) {
  ViewRegion view{.base = static_cast<std::byte*>(region.base),
                  .item_bytes = region.item_bytes,
                  .unit_bytes = cut.unit_bytes(),
                  .unit_count = region.items() * cut.units,
                  .pieces = 0,
                  .cut = cut,
                  .whole = is_whole(cut, region.item_bytes)};
  for (const Strip& strip : cut.strips) view.pieces += strip.count;
  if (view.whole) view.item_bytes /= cut.units;  // units of whole items are items themselves
  return view;
}

View View::of(const Memory& memory) {
  View view;
  for (std::uint32_t component = 0; component < layout::component_count(memory); ++component) {
    auto& regions = view.components.emplace_back();
    for (const Region& region : component_regions(memory, component)) regions.push_back(ViewRegion::of(region));
  }
  return view;
}

View View::of(const Memory& memory, const std::vector<RegionCut>& kv, const std::vector<std::uint32_t>& state) {
  View view;
  auto& regions = view.components.emplace_back();
  for (const RegionCut& cut : kv) {
    KVF_ASSERT(cut.region < memory.kv.size());
    regions.push_back(ViewRegion::of(memory.kv[cut.region], cut));
  }
  const auto add_whole = [&](const std::vector<Region>& component) {
    auto& whole = view.components.emplace_back();
    for (const Region& region : component) whole.push_back(ViewRegion::of(region));
  };
  add_whole(memory.aux);
  for (const std::uint32_t component : state) {
    KVF_ASSERT(component < memory.state.size());
    add_whole(memory.state[component].regions);
  }
  return view;
}

void append_pieces(const ViewRegion& region, std::span<const std::int32_t> units, std::vector<Piece>& out) {
  if (region.whole) {
    return append_pieces(Region{.base = region.base, .length = 0, .item_bytes = region.item_bytes}, units, out);
  }
  out.reserve(out.size() + units.size() * region.pieces);
  for (const std::int32_t index : units) {
    const auto unit = static_cast<std::uint64_t>(index);
    std::byte* const start =
        region.base + unit / region.cut.units * region.item_bytes + unit % region.cut.units * region.cut.unit_step;
    for (const Strip& strip : region.cut.strips) {
      std::byte* at = start + strip.offset;
      for (std::uint64_t i = 0; i < strip.count; ++i, at += strip.stride) append(at, strip.bytes, out);
    }
  }
}

std::uint64_t bytes_of(std::span<const ViewRegion> regions, std::uint64_t units) {
  std::uint64_t total = 0;
  for (const ViewRegion& region : regions) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(region.unit_bytes, units, &bytes) || __builtin_add_overflow(total, bytes, &total)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
  }
  return total;
}

}  // namespace kvferry::layout
