#include "core/chunk_ledger.h"

#include <algorithm>
#include <string>

namespace kvferry::core {
namespace {

std::string range(std::uint64_t begin, std::uint64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

}  // namespace

ChunkLedger::ChunkLedger(const layout::Range& granted, std::uint32_t regions, std::uint64_t slack)
    : granted_(granted), regions_(regions), slack_(std::min(slack, granted.size())), positions_landed_(regions) {
  if (granted_.empty()) leading_ = regions_;
}

Result<void> ChunkLedger::announce(const protocol::ChunkSpan& span, std::size_t chunks_max) {
  if (span.position_begin > span.position_end || span.region_begin > span.region_end ||
      span.position_begin < granted_.begin || span.position_end > granted_.end || span.region_end > regions_) {
    return Error{Code::out_of_range, "chunk " + std::to_string(span.number) + " covers pages " +
                                         range(span.position_begin, span.position_end) + " of regions " +
                                         range(span.region_begin, span.region_end) + ", but pages " +
                                         range(granted_.begin, granted_.end) + " of " + std::to_string(regions_) +
                                         " regions were granted"};
  }
  if (span.number >= chunks_max) {
    return Error{Code::protocol, "more than " + std::to_string(chunks_max) + " chunks in one transfer"};
  }
  if (numbers_ != 0 && (span.last || span.number >= numbers_)) {
    return Error{Code::protocol, "chunk " + std::to_string(span.number) + " comes after the last chunk, " +
                                     std::to_string(numbers_ - 1)};
  }
  if (announced(span.number) || (span.last && seen_.size() > span.number)) {
    return Error{Code::protocol, "chunk " + std::to_string(span.number) + " was sent twice or after its last one"};
  }
  const layout::Range positions{span.position_begin, span.position_end};
  const layout::Range regions{span.region_begin, span.region_end};
  if (covered_.meets(positions, regions)) {
    return Error{Code::protocol, "chunk " + std::to_string(span.number) + " covers pages " +
                                     range(span.position_begin, span.position_end) + " of regions " +
                                     range(span.region_begin, span.region_end) +
                                     ", some of which an earlier one covers already"};
  }
  covered_.add(positions, regions);
  seen_.resize(std::max<std::size_t>(seen_.size(), std::size_t{span.number} + 1));
  seen_[span.number] = true;
  on_their_way_.push_back(span);
  if (span.last) numbers_ = std::uint64_t{span.number} + 1;
  return {};
}

Result<void> ChunkLedger::land(const protocol::ChunkSpan& span) {
  const auto entry = std::ranges::find(on_their_way_, span);
  if (entry == on_their_way_.end()) {
    return Error{Code::protocol, "chunk " + std::to_string(span.number) + " landed without having been announced so"};
  }
  on_their_way_.erase(entry);
  ++landed_;
  last_landed_ = last_landed_ || span.last;
  for (std::uint32_t region = span.region_begin; region < span.region_end; ++region) {
    positions_landed_[region] += span.position_end - span.position_begin;
  }
  while (leading_ < regions_ && positions_landed_[leading_] == granted_.size()) ++leading_;
  if (complete()) leading_ = regions_;
  return {};
}

bool ChunkLedger::complete() const {
  return last_landed_ && landed_ == numbers_ && end() + slack_ >= granted_.end &&
         covered_.area() == (end() - granted_.begin) * regions_;
}

std::uint64_t ChunkLedger::end() const { return std::max(granted_.begin, covered_.end_of({0, regions_})); }

std::string ChunkLedger::missing() const {
  const std::uint64_t all = granted_.size() * regions_;
  return std::to_string(all - covered_.area()) + " of " + std::to_string(all) + " page copies (" +
         std::to_string(granted_.size()) + " pages in " + std::to_string(regions_) + " regions)";
}

}  // namespace kvferry::core
