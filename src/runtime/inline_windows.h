// Small rooms: their bytes come with the control message, and the control thread itself puts them in place.
#pragma once

#include <map>
#include <span>
#include <utility>

#include "core/orders.h"
#include "kvferry/layout.h"
#include "layout/pages.h"

namespace kvferry::runtime {

class InlineWindows {
 public:
  explicit InlineWindows(const Memory& memory) : memory_(memory) {}

  void open(core::Window window);
  void close(SessionId session, TransferId transfer);
  // Places an Inline message's payload: Placed, or Rejected where it does not fit its window, or nothing where the
  // window is closed (the room has ended meanwhile).
  std::optional<core::MoverEvent> place(SessionId session, const protocol::Inline& message,
                                        std::span<const std::byte> payload);
  std::size_t size() const { return windows_.size(); }

 private:
  Result<std::uint64_t> scatter(const core::Window& window, const protocol::ChunkSpan& span,
                                std::span<const std::byte> payload);
  const Memory& memory_;
  std::map<std::pair<SessionId, TransferId>, core::Window> windows_;
  std::vector<layout::Piece> pieces_;  // kept for its memory
};

// The pieces of the sender's memory that make an Inline message's payload, in the payload's order.
void gather_inline(const Memory& memory, const core::ChunkOrder& order, std::vector<layout::Piece>& pieces);

}  // namespace kvferry::runtime
