// The windows of one session as its data thread holds them: what may be written, and what of it has come. A pure
// machine: no sockets, no copies. A window is open, then closing while a copy into it is under way, then closed and
// forgotten.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "kvferry/result.h"
#include "layout/view.h"
#include "protocol/data_frame.h"
#include "transport/mover.h"

namespace kvferry::transport {

// What has come of one component of the chunk under way. Frames come in the one order that senders keep, so that a gap,
// an overlap or a repetition shows as a wrong begin.
class Coverage {
 public:
  // False where the frame is not the next one.
  bool accept(std::uint64_t position_begin, std::uint64_t position_end, std::uint32_t region_begin,
              std::uint32_t region_end);
  // Whether exactly these have come.
  bool covers(std::uint64_t position_begin, std::uint64_t position_end, std::uint32_t region_begin,
              std::uint32_t region_end) const;
  bool empty() const { return !started_; }
  std::uint64_t position_end() const { return width_known_ ? position_last_ : position_next_; }
  std::uint64_t position_next() const { return position_next_; }
  std::uint32_t region_next() const { return region_next_; }

 private:
  bool started_ = false;
  bool width_known_ = false;  // where every region ends; known once a whole region has come
  std::uint64_t position_first_ = 0;
  std::uint64_t position_last_ = 0;
  std::uint64_t position_next_ = 0;
  std::uint32_t region_first_ = 0;
  std::uint32_t region_next_ = 0;
};

class WindowTable {
 public:
  // Where the payload of a frame goes: `items` of each region of `regions`, in that order.
  struct Target {
    std::span<const layout::ViewRegion> regions;
    std::span<const std::int32_t> items;
  };
  enum class Closed : std::uint8_t { now, after_copies };

  explicit WindowTable(const layout::View& view) : view_(&view) {}

  // `already_exists` for a transfer that has one, `out_of_range` for items or components that are not there.
  Result<void> open(Window window);
  // Nothing is placed from here on. `after_copies` where one is under way: `copy_ended` says when it was the last.
  Closed close(TransferId transfer);
  bool is_open(TransferId transfer) const;

  // ---- Frames (window_frames.cpp). An error closes the transfer to everything that follows: it is dropped. ----
  // Where a `bytes` frame goes; nothing where it is to be read and dropped.
  Result<std::optional<Target>> on_bytes(const protocol::DataHeader& header);
  // The chunk is complete; nothing where the frame is dropped.
  Result<std::optional<Placed>> on_end(const protocol::DataHeader& header);
  // Payload of a frame that `on_bytes` placed is there. Returns what to report as progress, 0 for nothing yet.
  std::uint64_t landed(TransferId transfer, std::uint64_t bytes);
  std::uint64_t frames_dropped() const { return frames_dropped_; }

  // ---- Pulled chunks. ----
  // Whether the whole chunk lies inside its window; nothing where the transfer is not open.
  Result<bool> check(const ChunkOrder& order);
  // The granted items of a component; empty where there are none. Stays valid while a copy is under way.
  std::span<const std::int32_t> items(TransferId transfer, std::uint32_t component) const;
  std::uint64_t first_position(TransferId transfer) const;
  void copy_began(TransferId transfer);
  // True where the window was closing and this was the last copy into it: it is closed now.
  bool copy_ended(TransferId transfer);
  // What follows for this transfer is dropped.
  void reject(TransferId transfer);

 private:
  struct Entry {
    Window window;
    bool rejected = false;
    bool closing = false;
    std::uint32_t copies = 0;
    bool chunk_open = false;        // frames of chunk `number` have come, its end has not
    bool last_ended = false;        // the last chunk is whole: nothing may follow
    std::uint32_t number = 0;       // of the chunk under way
    std::uint64_t number_next = 0;  // numbers grow; the lowest that may come
    std::uint64_t chunk_bytes = 0;
    std::uint64_t unreported_bytes = 0;
    std::vector<Coverage> coverage;  // one a list of the window
  };
  Entry* live(TransferId transfer);
  const ItemList* list_of(const Entry& entry, std::uint32_t component) const;
  Result<void> enter_chunk(Entry& entry, const protocol::DataHeader& header);
  Result<Target> place(Entry& entry, const protocol::DataHeader& header);
  Result<Placed> conclude(Entry& entry, const protocol::DataHeader& header);
  Result<void> check_parts(const Entry& entry, const ChunkOrder& order) const;

  const layout::View* view_;
  std::uint64_t frames_dropped_ = 0;
  // Transfer ids are random and drawn on this side. Bounded by the rooms that core has open.
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace kvferry::transport
