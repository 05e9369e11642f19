// Which parts of a transfer have come: every chunk once, nothing twice, nothing outside, complete or not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvferry/result.h"
#include "layout/covered.h"
#include "protocol/messages.h"

namespace kvferry::core {

class ChunkLedger {
 public:
  ChunkLedger() = default;
  // The granted part: these positions of each of `regions` kv regions. The last `slack` positions may stay away, in all
  // regions alike.
  ChunkLedger(const layout::Range& granted, std::uint32_t regions, std::uint64_t slack = 0);

  // Notes a chunk before its bytes move. `out_of_range` outside of the grant, `protocol` for a number or a part that
  // was there already, for a number past the last chunk, or for more than `chunks_max` chunks.
  Result<void> announce(const protocol::ChunkSpan& span, std::size_t chunks_max);
  // Notes that the bytes of an announced chunk are in place. `protocol` for one that was not announced or landed twice.
  Result<void> land(const protocol::ChunkSpan& span);

  bool announced(std::uint32_t number) const { return number < seen_.size() && seen_[number]; }
  // The last chunk has landed and with it every part of the grant.
  bool complete() const;
  bool empty() const { return seen_.empty(); }
  // Positions from the first granted one to the furthest that was announced.
  std::uint64_t positions() const { return end() - granted_.begin; }
  // Regions from the first on, all positions of which have landed.
  std::uint32_t leading_regions() const { return leading_; }
  // What is missing, for people: "12 of 40 page copies (10 pages in 4 regions)".
  std::string missing() const;

 private:
  std::uint64_t end() const;
  layout::Range granted_{};
  std::uint32_t regions_ = 0;
  std::uint64_t slack_ = 0;
  layout::Covered covered_;                        // what was announced
  std::vector<bool> seen_;                         // numbers that were announced
  std::vector<protocol::ChunkSpan> on_their_way_;  // announced, not landed
  std::vector<std::uint64_t> positions_landed_;    // of each region
  std::uint32_t leading_ = 0;
  std::uint64_t landed_ = 0;   // chunks in place
  std::uint64_t numbers_ = 0;  // chunks there are, known from the last one; 0 before
  bool last_landed_ = false;
};

}  // namespace kvferry::core
