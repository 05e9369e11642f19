// ChunkLedger against a model that marks every page of every region.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "core/chunk_ledger.h"

namespace {

using kvferry::core::ChunkLedger;
using kvferry::protocol::ChunkSpan;

class Model {
 public:
  Model(std::uint64_t begin, std::uint64_t end, std::uint32_t regions) : begin_(begin), end_(end), regions_(regions) {}

  bool announce(const ChunkSpan& span) {
    if (span.position_begin > span.position_end || span.region_begin > span.region_end) return false;
    if (span.position_begin < begin_ || span.position_end > end_ || span.region_end > regions_) return false;
    for (const auto& [number, other] : chunks_) {
      if (number == span.number) return false;
      if (other.last && (span.last || span.number > number)) return false;
      if (span.last && number > span.number) return false;
    }
    std::set<std::pair<std::uint64_t, std::uint32_t>> parts;
    for (std::uint64_t p = span.position_begin; p < span.position_end; ++p) {
      for (std::uint32_t r = span.region_begin; r < span.region_end; ++r) parts.insert({p, r});
    }
    for (const auto& part : parts) {
      if (covered_.contains(part)) return false;
    }
    covered_.insert(parts.begin(), parts.end());
    chunks_[span.number] = span;
    return true;
  }
  bool land(const ChunkSpan& span) {
    const auto chunk = chunks_.find(span.number);
    if (chunk == chunks_.end() || !(chunk->second == span)) return false;
    return landed_.insert(span.number).second;
  }
  bool complete() const {
    std::uint64_t pages = 0;
    bool last = false;
    for (const std::uint32_t number : landed_) {
      const ChunkSpan& span = chunks_.at(number);
      pages += (span.position_end - span.position_begin) * (span.region_end - span.region_begin);
      last = last || (span.last && landed_.size() == std::size_t{number} + 1);
    }
    return last && pages == (end_ - begin_) * regions_ && landed_.size() == chunks_.size();
  }
  const std::map<std::uint32_t, ChunkSpan>& chunks() const { return chunks_; }

 private:
  std::uint64_t begin_, end_;
  std::uint32_t regions_;
  std::map<std::uint32_t, ChunkSpan> chunks_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> covered_;
  std::set<std::uint32_t> landed_;
};

RC_GTEST_PROP(chunk_ledger, agrees_with_a_model_that_marks_every_page, ()) {
  const auto begin = *rc::gen::inRange<std::uint64_t>(0, 3);
  const auto end = begin + *rc::gen::inRange<std::uint64_t>(0, 6);
  const auto regions = *rc::gen::inRange<std::uint32_t>(1, 4);
  ChunkLedger ledger({begin, end}, regions);
  Model model(begin, end, regions);
  const int steps = *rc::gen::inRange(1, 30);
  for (int i = 0; i < steps; ++i) {
    ChunkSpan span{*rc::gen::inRange<std::uint32_t>(0, 5), *rc::gen::inRange<std::uint64_t>(0, 9),
                   *rc::gen::inRange<std::uint64_t>(0, 9), *rc::gen::inRange<std::uint32_t>(0, 4),
                   *rc::gen::inRange<std::uint32_t>(0, 4), *rc::gen::inRange(0, 4) == 0};
    if (*rc::gen::inRange(0, 2) == 0) {
      RC_ASSERT(ledger.announce(span, 1000).has_value() == model.announce(span));
    } else {
      if (!model.chunks().empty()) {
        auto pick = model.chunks().begin();
        std::advance(pick, *rc::gen::inRange<int>(0, static_cast<int>(model.chunks().size())));
        span = pick->second;
      }
      RC_ASSERT(ledger.land(span).has_value() == model.land(span));
    }
    RC_ASSERT(ledger.complete() == model.complete());
    RC_ASSERT(ledger.empty() == model.chunks().empty());
  }
}

RC_GTEST_PROP(chunk_ledger, is_complete_after_any_cut_into_chunks_in_any_order, ()) {
  const auto begin = *rc::gen::inRange<std::uint64_t>(0, 5);
  const auto cuts = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 4));
  std::vector<ChunkSpan> spans;
  std::uint64_t at = begin;
  for (const std::uint64_t pages : cuts) {
    spans.push_back({static_cast<std::uint32_t>(spans.size()), at, at + pages, 0, 2, false});
    at += pages;
  }
  spans.push_back({static_cast<std::uint32_t>(spans.size()), at, at, 0, 2, true});
  ChunkLedger ledger({begin, at}, 2);
  std::vector<std::size_t> order(spans.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[*rc::gen::inRange<std::size_t>(0, i)]);
  }
  for (const ChunkSpan& span : spans) RC_ASSERT(ledger.announce(span, 1000).has_value());
  for (const std::size_t i : order) {
    RC_ASSERT(!ledger.complete());
    RC_ASSERT(ledger.land(spans[i]).has_value());
  }
  RC_ASSERT(ledger.complete());
}

}  // namespace
