#include "runtime/inline_windows.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace kvferry::runtime {
namespace {

// Payload order: for each list (kv, aux, state), region by region, its items.
void append_list(const layout::View& view, std::uint32_t component, std::span<const std::int32_t> items,
                 std::uint32_t region_begin, std::uint32_t region_end, std::vector<layout::Piece>& pieces) {
  const auto regions = view.regions(component);
  for (std::uint32_t r = region_begin; r < region_end; ++r) layout::append_pieces(regions[r], items, pieces);
}

std::uint32_t region_count(const layout::View& view, std::uint32_t component) {
  return static_cast<std::uint32_t>(view.regions(component).size());
}

}  // namespace

void gather_inline(const layout::View& view, const core::ChunkOrder& order, std::vector<layout::Piece>& pieces) {
  for (const core::ItemList& list : order.lists) {
    const bool kv = list.component == layout::component_kv;
    append_list(view, list.component, list.items, kv ? order.span.region_begin : 0,
                kv ? order.span.region_end : region_count(view, list.component), pieces);
  }
}

void InlineWindows::open(core::Window window) {
  const std::pair key{window.session, window.transfer};
  windows_.insert_or_assign(key, Entry{std::move(window)});
}

void InlineWindows::close(SessionId session, TransferId transfer) { windows_.erase({session, transfer}); }

std::optional<core::MoverEvent> InlineWindows::place(SessionId session, const layout::View& view,
                                                     const protocol::Inline& message,
                                                     std::span<const std::byte> payload) {
  const auto entry = windows_.find({session, message.transfer});
  if (entry == windows_.end()) return std::nullopt;
  if (entry->second.last_placed) {
    return core::Rejected{
        session, message.transfer,
        Error{Code::protocol, "chunk " + std::to_string(message.span.number) + " came after the last one"}};
  }
  const core::Window& window = entry->second.window;
  const auto placed = scatter(view, window, message.span, payload);
  if (!placed) return core::Rejected{session, message.transfer, placed.error()};
  entry->second.last_placed = message.span.last;
  core::Placed event{session, message.transfer, message.span, false, {}, *placed};
  for (const core::ItemList& list : window.lists) {
    if (!message.span.last || list.component == layout::component_kv) continue;
    if (list.component == layout::component_aux) {
      event.with_aux = true;
      continue;
    }
    const std::size_t number = list.component - layout::component_state;
    event.state_items.resize(std::max(event.state_items.size(), number + 1));
    event.state_items[number] = list.items.size();
  }
  return event;
}

Result<std::uint64_t> InlineWindows::scatter(const layout::View& view, const core::Window& window,
                                             const protocol::ChunkSpan& span, std::span<const std::byte> payload) {
  pieces_.clear();
  for (const core::ItemList& list : window.lists) {
    if (list.component != layout::component_kv) {
      if (span.last) append_list(view, list.component, list.items, 0, region_count(view, list.component), pieces_);
      continue;
    }
    const std::uint64_t end = window.first_position + list.items.size();
    if (span.position_begin < window.first_position || span.position_end > end ||
        span.position_begin > span.position_end || span.region_begin > span.region_end ||
        span.region_end > region_count(view, list.component)) {
      return Error{Code::out_of_range, "a chunk covers pages [" + std::to_string(span.position_begin) + ", " +
                                           std::to_string(span.position_end) + "), granted are [" +
                                           std::to_string(window.first_position) + ", " + std::to_string(end) + ")"};
    }
    append_list(view, list.component,
                std::span(list.items)
                    .subspan(span.position_begin - window.first_position, span.position_end - span.position_begin),
                span.region_begin, span.region_end, pieces_);
  }
  std::uint64_t bytes = 0;
  for (const layout::Piece& piece : pieces_) bytes += piece.bytes;
  if (bytes != payload.size()) {
    return Error{Code::out_of_range, "a chunk came with " + std::to_string(payload.size()) + " bytes, its pages take " +
                                         std::to_string(bytes)};
  }
  const std::byte* from = payload.data();
  for (const layout::Piece& piece : pieces_) {
    std::memcpy(piece.data, from, piece.bytes);
    from += piece.bytes;
  }
  return bytes;
}

}  // namespace kvferry::runtime
