// What an engine registers, and whether two ranks fit each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvferry/layout.h"
#include "kvferry/result.h"
#include "layout/range.h"

namespace kvferry::layout {

struct StateShape {
  std::vector<std::uint64_t> item_bytes{};  // a region each
  std::string name{};
  bool optional = false;
  friend bool operator==(const StateShape&, const StateShape&) = default;
};

// What a rank tells its peers about its memory: sizes, never addresses.
struct Shape {
  KvFormat format{};
  Parallel parallel{};
  std::uint32_t first_layer = 0;                // of the model, that the kv regions begin with
  std::vector<std::uint64_t> kv_item_bytes{};   // a region each
  std::vector<std::uint64_t> aux_item_bytes{};  // a region each
  std::vector<StateShape> state{};              // a component each
  friend bool operator==(const Shape&, const Shape&) = default;
};
Shape shape_of(const Memory& memory, const KvFormat& format, const Parallel& parallel);

// K and V apart, or one: MLA, joined, or an odd number of regions, each of which then counts as a layer.
std::uint32_t regions_a_layer(const Shape& shape);
// The model's layers that the kv regions hold.
Range layers_of(const Shape& shape);

inline constexpr std::size_t state_components_max = 1'024;
inline constexpr std::size_t state_name_bytes_max = 63;

// What a manager can be built on: no null or empty region, whole items, one item count in all regions of a list, sizes
// that do not overflow, indices that fit int32. `invalid_argument` with the region's number, `unsupported` for its
// kind. Whether the memory is mapped is the runtime's to ask.
Result<void> check_memory(const Memory& memory);

// Whether ranks of these two instances can meet at all: `mismatch` naming the first field that differs, with both
// values. What moves between two of them is pairing.h's.
Result<void> check_pair(const Shape& prefill, const Shape& decode);

// The state components that both have, by their numbers on each side and in prefill's order; `mismatch` for one that
// only one side has and that is not optional, or that differs.
struct StatePairs {
  std::vector<std::uint32_t> prefill{};
  std::vector<std::uint32_t> decode{};
  friend bool operator==(const StatePairs&, const StatePairs&) = default;
};
Result<StatePairs> pair_states(const Shape& prefill, const Shape& decode);

}  // namespace kvferry::layout
