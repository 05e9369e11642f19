// What one session moves of a rank's memory. The two sides of a session have views of one shape: as many regions, in
// one order, with as many moving bytes in a unit of each. Movers know views, not memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvferry/layout.h"
#include "layout/pages.h"

namespace kvferry::layout {

// Bytes of a unit that move: `count` runs of `bytes`, the first at `offset`, `stride` bytes from one to the next.
struct Strip {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stride = 0;
  std::uint64_t count = 1;
  friend bool operator==(const Strip&, const Strip&) = default;
};

// How a region is seen: which one it is, and what moves of each of its items. An item has `units` units, `unit_step`
// bytes from one to the next; page lists and positions of the session count units.
struct RegionCut {
  std::uint32_t region = 0;
  std::uint32_t units = 1;
  std::uint64_t unit_step = 0;
  std::vector<Strip> strips{};  // of one unit, in the order in which they move; never empty
  std::uint64_t unit_bytes() const;
  // Bytes of an item up to the last one that moves.
  std::uint64_t reach() const;
  friend bool operator==(const RegionCut&, const RegionCut&) = default;
};

// All of every region, of which these are the item sizes.
std::vector<RegionCut> whole_cuts(const std::vector<std::uint64_t>& item_bytes);

// A region of memory under its cut.
struct ViewRegion {
  std::byte* base = nullptr;
  std::uint64_t item_bytes = 0;
  std::uint64_t unit_bytes = 0;  // that move
  std::uint64_t unit_count = 0;  // that there are
  std::uint64_t pieces = 1;      // of a unit, where no neighbours merge
  RegionCut cut{};
  bool whole = true;  // items move whole and one after the other: unit i lies at base + i * item_bytes

  static ViewRegion of(const Region& region);
  static ViewRegion of(const Region& region, const RegionCut& cut);
};

struct View {
  std::vector<std::vector<ViewRegion>> components;  // by component number

  // All of the memory, whole.
  static View of(const Memory& memory);
  // The kv regions under these cuts, aux and state whole; of state the components with these numbers, in this order.
  static View of(const Memory& memory, const std::vector<RegionCut>& kv, const std::vector<std::uint32_t>& state);
  std::span<const ViewRegion> regions(std::uint32_t component) const {
    return component < components.size() ? std::span<const ViewRegion>(components[component])
                                         : std::span<const ViewRegion>();
  }
  std::uint32_t component_count() const { return static_cast<std::uint32_t>(components.size()); }
};

// Appends the moving bytes of these units in order, neighbours merged (also with the last piece that is in `out`
// already).
void append_pieces(const ViewRegion& region, std::span<const std::int32_t> units, std::vector<Piece>& out);

// Moving bytes of `units` units in each of the regions, saturating at the largest value.
std::uint64_t bytes_of(std::span<const ViewRegion> regions, std::uint64_t units);

}  // namespace kvferry::layout
