// Which prefill ranks feed a decode rank (see docs/concepts.md, "Ranks").
#pragma once

#include <cstdint>
#include <vector>

#include "kvferry/layout.h"
#include "kvferry/result.h"

namespace kvferry::layout {

struct Feeding {
  std::vector<Place> sources;    // prefill ranks that this decode rank grants to
  std::uint32_t grants_awaited;  // decode ranks each of those waits for
};

// `mismatch` with both sizes where they cannot be mapped; today tensor-parallel sizes must be equal and pp 1.
Result<Feeding> feeding_ranks(const Parallel& prefill, const Parallel& decode, const Place& decode_place,
                              std::uint32_t prefill_dp_rank);

// The dp group of a room: the balancer's choice, else room % dp. `out_of_range` for a group that is not there.
Result<std::uint32_t> dp_group(std::uint64_t room, std::uint32_t dp_size, const std::uint32_t* chosen);

}  // namespace kvferry::layout
