// Small rooms: their bytes come with the control message, and the control thread itself puts them in place.
#pragma once

#include <map>
#include <span>
#include <utility>

#include "core/orders.h"
#include "layout/view.h"

namespace kvferry::runtime {

class InlineWindows {
 public:
  void open(core::Window window);
  void close(SessionId session, TransferId transfer);
  // Places an Inline message's payload: Placed, or Rejected where it does not fit its window, or nothing where the
  // window is closed (the room has ended meanwhile). Nothing may follow the last chunk. `view` is the session's.
  std::optional<core::MoverEvent> place(SessionId session, const layout::View& view, const protocol::Inline& message,
                                        std::span<const std::byte> payload);
  std::size_t size() const { return windows_.size(); }

 private:
  Result<std::uint64_t> scatter(const layout::View& view, const core::Window& window, const protocol::ChunkSpan& span,
                                std::span<const std::byte> payload);
  struct Entry {
    core::Window window;
    bool last_placed = false;
  };
  std::map<std::pair<SessionId, TransferId>, Entry> windows_;
  std::vector<layout::Piece> pieces_;  // kept for its memory
};

// The pieces of the sender's memory that make an Inline message's payload, in the payload's order.
void gather_inline(const layout::View& view, const core::ChunkOrder& order, std::vector<layout::Piece>& pieces);

}  // namespace kvferry::runtime
