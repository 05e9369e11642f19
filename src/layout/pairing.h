// What moves between one prefill and one decode rank, worked out from what the two say of themselves when they link.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/check.h"
#include "layout/ranks.h"
#include "layout/view.h"

namespace kvferry::layout {

// Positions count units: pages of the smaller of the two page sizes, so that one side's page is one unit and the
// other's a whole number of them.
struct Pairing {
  // The kv regions that the two share, one a line: the same unit_bytes on both sides. Layer by layer, of each first K,
  // then V. Both empty for a dummy, which is granted so that its room ends, and sends nothing of the cache.
  std::vector<RegionCut> source{};
  std::vector<RegionCut> target{};
  Range layers{};                     // of the model, that both hold
  std::uint32_t regions_a_layer = 1;  // of the lines above
  std::uint32_t source_units = 1;     // of a prefill page
  std::uint32_t target_units = 1;     // of a decode page
  std::uint64_t unit_bytes = 0;       // that move of one unit, all regions together
  bool fills = false;                 // all of the decode rank's page, so that no other rank is needed
  bool beside = false;                // aux and state come over this pair
  StatePairs state{};                 // components that both have; the session numbers them in this order
  std::uint32_t share = 0;            // which share of the pages: context-parallel rank and size of the prefill rank
  std::uint32_t shares = 1;

  bool dummy() const { return source.empty(); }
  // The positions of this pair, of the granted ones. Shares begin and end at pages of both sides.
  Range positions(const Range& granted) const;
  // Positions at the end of these that need not come: decode's last page may be partly filled.
  std::uint64_t slack(const Range& mine, const Range& granted) const {
    return mine.end == granted.end && !mine.empty() ? target_units - 1 : 0;
  }
  // The lines of the layers of the model that are in `of_model`.
  Range regions_of(const Range& of_model) const;
};

// Whether units of that many items can be told apart by an index of 31 bits; `unsupported` otherwise.
Result<void> check_units(std::uint64_t items, std::uint32_t units);

// A rank as its peer sees it.
struct Rank {
  const Shape& shape;
  const Place& place;
};

// `mismatch` naming the first thing that does not fit, with both values.
Result<Pairing> pair_ranks(const Rank& prefill, const Rank& decode);

}  // namespace kvferry::layout
