// From page lists to the pieces of memory that a copy touches. Pure functions; nothing here allocates but into `out`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvferry/layout.h"
#include "kvferry/result.h"
#include "layout/range.h"

namespace kvferry::layout {

// The parts of a room's data. Every chunk carries kv; the last one carries aux and each state list too.
inline constexpr std::uint32_t component_kv = 0;
inline constexpr std::uint32_t component_aux = 1;
inline constexpr std::uint32_t component_state = 2;  // the first of them; list i is component_state + i

// The regions of one component, empty where the rank has none.
const std::vector<Region>& component_regions(const Memory& memory, std::uint32_t component);
// How many components a rank has: kv, aux and its state lists.
std::uint32_t component_count(const Memory& memory);

// Neighbours on both sides merged: `count` items from `source` on go to `target` on.
struct Run {
  std::uint32_t source;
  std::uint32_t target;
  std::uint32_t count;
  friend bool operator==(const Run&, const Run&) = default;
};
// Appends the fewest runs that copy source[i] to target[i] for every i, in order. Both spans have one length.
// This is what SGLang calls group_concurrent_contiguous.
void merge_runs(std::span<const std::int32_t> source, std::span<const std::int32_t> target, std::vector<Run>& out);

// A piece of this process's memory.
struct Piece {
  std::byte* data;
  std::size_t bytes;
  friend bool operator==(const Piece&, const Piece&) = default;
};
// Appends the items of `region` in order, neighbours merged (also with the last piece that is in `out` already).
void append_pieces(const Region& region, std::span<const std::int32_t> items, std::vector<Piece>& out);

// Appends the units of these pages that lie in `range`, counted from the first unit of the first page: page p has the
// units p * units to p * units + units - 1.
void append_units(std::span<const std::int32_t> pages, std::uint32_t units, const Range& range,
                  std::vector<std::int32_t>& out);

// Bytes of `items` items in each of the regions, saturating at the largest value.
std::uint64_t bytes_of(std::span<const Region> regions, std::uint64_t items);

// `out_of_range` naming the first index that is negative or not below `items`; `what` is the word for it ("page").
Result<void> check_items(std::span<const std::int32_t> indices, std::size_t items, const char* what);

}  // namespace kvferry::layout
