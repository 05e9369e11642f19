// Cuts a chunk into the parts that move at a time, always in one order: kv, then aux, then each state list, and region
// by region within a component. Senders frame by it, receivers expect it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/orders.h"
#include "kvferry/result.h"
#include "layout/view.h"
#include "transport/mover.h"

namespace kvferry::transport {

// A part of a chunk: items [item_begin, item_end) of one list in every region of [region_begin, region_end).
struct Part {
  std::uint32_t component = 0;
  std::size_t list = 0;  // which of the order's lists
  std::uint32_t region_begin = 0;
  std::uint32_t region_end = 0;
  std::size_t item_begin = 0;
  std::size_t item_end = 0;
  std::uint64_t bytes = 0;
  std::size_t pieces = 0;  // at most
  friend bool operator==(const Part&, const Part&) = default;
};

// Puts the lists into the order in which they move, and refuses an order that this view cannot mean:
// `out_of_range` for a region or component that is not there, `internal` where items and positions differ in number.
Result<void> settle_order(const layout::View& view, ChunkOrder& order);

// A value; `view` and `order` (settled) must stay where they are while it is used.
class ChunkCursor {
 public:
  ChunkCursor(const layout::View& view, const ChunkOrder& order);
  bool done() const { return list_ == order_->lists.size(); }
  // The next part of at most so many bytes and pieces, but at least one item. Call only while not done.
  Part next(std::uint64_t bytes_max, std::size_t pieces_max);
  // Bytes of the whole chunk.
  std::uint64_t bytes() const { return bytes_; }

 private:
  void skip_empty();
  std::uint32_t region_begin(std::size_t list) const;
  std::uint32_t region_end(std::size_t list) const;

  const layout::View* view_;
  const ChunkOrder* order_;
  std::uint64_t bytes_ = 0;
  std::size_t list_ = 0;
  std::uint32_t region_ = 0;
  std::size_t item_ = 0;
};

}  // namespace kvferry::transport
