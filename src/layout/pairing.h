// What moves between one prefill and one decode rank, worked out from what the two say of themselves when they link.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/check.h"
#include "layout/ranks.h"
#include "layout/view.h"

namespace kvferry::layout {

struct Pairing {
  // The kv regions that the two share, one a line: the same unit_bytes on both sides. Both empty for a dummy, which is
  // granted so that its room ends, and sends nothing of the cache.
  std::vector<RegionCut> source{};
  std::vector<RegionCut> target{};
  std::uint64_t page_bytes = 0;  // that move of one page, all regions together
  bool fills = false;            // all of the decode rank's page, so that no other rank is needed
  bool beside = false;           // aux and state come over this pair
  std::uint32_t share = 0;       // which share of the pages: context-parallel rank and size of the prefill rank
  std::uint32_t shares = 1;

  bool dummy() const { return source.empty(); }
  // The positions of this pair, of the granted ones.
  Range positions(const Range& granted) const {
    const Range mine = share_of(granted.size(), share, shares);
    return {granted.begin + mine.begin, granted.begin + mine.end};
  }
};

// A rank as its peer sees it.
struct Rank {
  const Shape& shape;
  const Place& place;
};

// `mismatch` naming the first thing that does not fit, with both values.
Result<Pairing> pair_ranks(const Rank& prefill, const Rank& decode);

}  // namespace kvferry::layout
