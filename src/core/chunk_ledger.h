// Which parts of a transfer have come: every chunk once, nothing twice, nothing outside, complete or not.
#pragma once

#include <cstdint>
#include <vector>

#include "kvferry/result.h"
#include "protocol/messages.h"

namespace kvferry::core {

class ChunkLedger {
 public:
  ChunkLedger() = default;
  // The granted part: positions [begin, end) of each of `regions` kv regions.
  ChunkLedger(std::uint64_t begin, std::uint64_t end, std::uint32_t regions)
      : begin_(begin), end_(end), regions_(regions) {}

  // Notes a chunk before its bytes move. `out_of_range` outside of the grant, `protocol` for a number or a part that
  // was there already, for a number past the last chunk, or for more than `chunks_max` chunks.
  Result<void> announce(const protocol::ChunkSpan& span, std::size_t chunks_max);
  // Notes that the bytes of an announced chunk are in place. `protocol` for one that was not announced or landed twice.
  Result<void> land(const protocol::ChunkSpan& span);

  bool announced(std::uint32_t number) const;
  // The last chunk has landed and with it every part of the grant.
  bool complete() const { return last_landed_ && landed_ == numbers_ && covered_ == (end_ - begin_) * regions_; }
  bool empty() const { return spans_.empty(); }
  // What is missing, for people: "12 of 40 pages in 4 regions".
  std::string missing() const;

 private:
  struct Entry {
    protocol::ChunkSpan span;
    bool landed = false;
  };
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint32_t regions_ = 0;
  std::vector<Entry> spans_;   // in the order of announcing, which is that of their numbers nearly always
  std::uint64_t covered_ = 0;  // pages x regions that were announced
  std::uint64_t landed_ = 0;   // chunks in place
  std::uint64_t numbers_ = 0;  // chunks there are, known from the last one; 0 before
  bool last_landed_ = false;
};

}  // namespace kvferry::core
