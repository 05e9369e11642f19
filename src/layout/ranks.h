// Which prefill ranks feed a decode rank (see docs/concepts.md, "Ranks").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvferry/layout.h"
#include "kvferry/result.h"
#include "layout/range.h"

namespace kvferry::layout {

struct Feeding {
  std::vector<Place> sources;    // prefill ranks that this decode rank grants to; some of them may be dummies
  std::uint32_t grants_awaited;  // decode ranks each of those waits for
};

// `mismatch` with both sizes where they cannot be mapped: tensor-parallel sizes of which neither divides the other, a
// decode pipeline that is neither 1 nor as long as prefill's, context parallelism on decode.
Result<Feeding> feeding_ranks(const Parallel& prefill, const Parallel& decode, const Place& decode_place,
                              std::uint32_t prefill_dp_rank);

// The model's KV heads that a rank holds. With more ranks than heads, neighbours hold one head alike. MLA has one head,
// which every rank holds. `mismatch` where heads and ranks do not divide each other.
Result<Range> heads_of(std::uint32_t kv_heads, bool mla, std::uint32_t tp, std::uint32_t tp_rank);

// The heads that go from a prefill rank to a decode rank that it feeds: those which both hold, less those which a lower
// prefill rank sends. Empty for a dummy.
Result<Range> heads_between(const KvFormat& format, const Parallel& prefill, std::uint32_t prefill_tp_rank,
                            const Parallel& decode, std::uint32_t decode_tp_rank);

// The share of `count` pages that context-parallel rank `rank` of `size` has: contiguous, the first ranks one more.
Range share_of(std::uint64_t count, std::uint32_t rank, std::uint32_t size);

// The dp group of a room: the balancer's choice, else room % dp. `out_of_range` for a group that is not there.
Result<std::uint32_t> dp_group(std::uint64_t room, std::uint32_t dp_size, const std::uint32_t* chosen);

std::string text_of(const Parallel& parallel);  // "tp 4 dp 1 pp 2 cp 1"

}  // namespace kvferry::layout
