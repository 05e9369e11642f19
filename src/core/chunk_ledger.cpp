#include "core/chunk_ledger.h"

#include <algorithm>
#include <string>

namespace kvferry::core {
namespace {

std::string range(std::uint64_t begin, std::uint64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

bool is_empty(const protocol::ChunkSpan& span) {
  return span.position_begin == span.position_end || span.region_begin == span.region_end;
}

bool overlap(const protocol::ChunkSpan& a, const protocol::ChunkSpan& b) {
  return !is_empty(a) && !is_empty(b) && a.position_begin < b.position_end && b.position_begin < a.position_end &&
         a.region_begin < b.region_end && b.region_begin < a.region_end;
}

}  // namespace

Result<void> ChunkLedger::announce(const protocol::ChunkSpan& span, std::size_t chunks_max) {
  if (span.position_begin > span.position_end || span.region_begin > span.region_end || span.position_begin < begin_ ||
      span.position_end > end_ || span.region_end > regions_) {
    return Error{Code::out_of_range, "chunk " + std::to_string(span.number) + " covers pages " +
                                         range(span.position_begin, span.position_end) + " of regions " +
                                         range(span.region_begin, span.region_end) + ", but pages " +
                                         range(begin_, end_) + " of " + std::to_string(regions_) +
                                         " regions were granted"};
  }
  if (spans_.size() >= chunks_max) {
    return Error{Code::protocol, "more than " + std::to_string(chunks_max) + " chunks in one transfer"};
  }
  if (numbers_ != 0 && (span.last || span.number >= numbers_)) {
    return Error{Code::protocol, "chunk " + std::to_string(span.number) + " comes after the last chunk, " +
                                     std::to_string(numbers_ - 1)};
  }
  for (const Entry& entry : spans_) {
    if (entry.span.number == span.number || (span.last && entry.span.number > span.number)) {
      return Error{Code::protocol, "chunk " + std::to_string(span.number) + " was sent twice or after its last one"};
    }
    if (overlap(entry.span, span)) {
      return Error{Code::protocol, "chunk " + std::to_string(span.number) + " covers pages " +
                                       range(span.position_begin, span.position_end) + ", which chunk " +
                                       std::to_string(entry.span.number) + " covers already"};
    }
  }
  spans_.push_back({span, false});
  covered_ += (span.position_end - span.position_begin) * (span.region_end - span.region_begin);
  if (span.last) numbers_ = std::uint64_t{span.number} + 1;
  return {};
}

Result<void> ChunkLedger::land(const protocol::ChunkSpan& span) {
  const auto entry = std::ranges::find_if(spans_, [&](const Entry& e) { return e.span.number == span.number; });
  if (entry == spans_.end() || entry->landed || !(entry->span == span)) {
    return Error{Code::protocol, "chunk " + std::to_string(span.number) + " landed without having been announced so"};
  }
  entry->landed = true;
  ++landed_;
  last_landed_ = last_landed_ || span.last;
  return {};
}

bool ChunkLedger::announced(std::uint32_t number) const {
  return std::ranges::any_of(spans_, [&](const Entry& e) { return e.span.number == number; });
}

std::string ChunkLedger::missing() const {
  return std::to_string((end_ - begin_) * regions_ - covered_) + " of " + std::to_string((end_ - begin_) * regions_) +
         " page copies (" + std::to_string(end_ - begin_) + " pages in " + std::to_string(regions_) + " regions)";
}

}  // namespace kvferry::core
