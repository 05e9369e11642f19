#include "transport/chunk_cursor.h"

#include <fmt/format.h>

#include <algorithm>

#include "layout/pages.h"

namespace kvferry::transport {

using layout::component_kv;

Result<void> settle_order(const layout::View& view, ChunkOrder& order) {
  std::sort(order.lists.begin(), order.lists.end(),
            [](const ItemList& a, const ItemList& b) { return a.component < b.component; });
  const auto& span = order.span;
  if (span.region_begin > span.region_end || span.region_end > view.regions(component_kv).size()) {
    return Error{Code::out_of_range,
                 fmt::format("chunk {} names kv regions {} to {}, but there are {}", span.number, span.region_begin,
                             span.region_end, view.regions(component_kv).size())};
  }
  if (span.position_begin > span.position_end) {
    return Error{Code::internal, fmt::format("chunk {} has positions {} to {}, which run backwards", span.number,
                                             span.position_begin, span.position_end)};
  }
  std::uint64_t kv_items = 0;
  for (std::size_t i = 0; i < order.lists.size(); ++i) {
    const ItemList& list = order.lists[i];
    if (i > 0 && order.lists[i - 1].component == list.component) {
      return Error{Code::internal, fmt::format("chunk {} names component {} twice", span.number, list.component)};
    }
    if (list.component >= view.component_count()) {
      return Error{Code::out_of_range, fmt::format("chunk {} carries component {}, but there are {}", span.number,
                                                   list.component, view.component_count())};
    }
    if (list.component == component_kv) kv_items = list.items.size();
  }
  const std::uint64_t positions = span.position_end - span.position_begin;
  if (kv_items != positions) {
    return Error{Code::internal,
                 fmt::format("chunk {} has {} pages for {} positions", span.number, kv_items, positions)};
  }
  return {};
}

ChunkCursor::ChunkCursor(const layout::View& view, const ChunkOrder& order) : view_(&view), order_(&order) {
  for (std::size_t i = 0; i < order.lists.size(); ++i) {
    const auto regions = view.regions(order.lists[i].component);
    bytes_ += layout::bytes_of(regions.subspan(region_begin(i), region_end(i) - region_begin(i)),
                               order.lists[i].items.size());
  }
  if (!done()) region_ = region_begin(0);
  skip_empty();
}

std::uint32_t ChunkCursor::region_begin(std::size_t list) const {
  return order_->lists[list].component == component_kv ? order_->span.region_begin : 0;
}

std::uint32_t ChunkCursor::region_end(std::size_t list) const {
  if (order_->lists[list].component == component_kv) return order_->span.region_end;
  return static_cast<std::uint32_t>(view_->regions(order_->lists[list].component).size());
}

void ChunkCursor::skip_empty() {
  while (!done() && (order_->lists[list_].items.empty() || region_ == region_end(list_))) {
    ++list_;
    item_ = 0;
    if (!done()) region_ = region_begin(list_);
  }
}

Part ChunkCursor::next(std::uint64_t bytes_max, std::size_t pieces_max) {
  const ItemList& list = order_->lists[list_];
  const auto regions = view_->regions(list.component);
  const std::size_t width = list.items.size();
  Part part{.component = list.component,
            .list = list_,
            .region_begin = region_,
            .region_end = region_,
            .item_begin = item_,
            .item_end = width};
  if (item_ == 0) {  // as many whole regions as fit
    for (; part.region_end < region_end(list_); ++part.region_end) {
      const layout::ViewRegion& region = regions[part.region_end];
      const std::size_t pieces = width * region.pieces;
      if (part.pieces + pieces > pieces_max || part.bytes + width * region.unit_bytes > bytes_max) break;
      part.bytes += width * region.unit_bytes;
      part.pieces += pieces;
    }
  }
  if (part.region_end == region_) {  // a stretch of one region
    const layout::ViewRegion& region = regions[region_];
    const std::uint64_t fit = std::min<std::uint64_t>(bytes_max / region.unit_bytes, pieces_max / region.pieces);
    const std::size_t count = std::min<std::size_t>(width - item_, std::max<std::uint64_t>(fit, 1));
    part.region_end = region_ + 1;
    part.item_end = item_ + count;
    part.bytes = count * region.unit_bytes;
    part.pieces = count * region.pieces;
  }
  item_ = part.item_end == width ? 0 : part.item_end;
  if (item_ == 0) region_ = part.region_end;
  skip_empty();
  return part;
}

}  // namespace kvferry::transport
