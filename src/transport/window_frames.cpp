// Data frames against their windows.
#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "layout/pages.h"
#include "transport/window_table.h"

namespace kvferry::transport {

using layout::component_kv;
using protocol::DataHeader;

bool Coverage::accept(std::uint64_t position_begin, std::uint64_t position_end, std::uint32_t region_begin,
                      std::uint32_t region_end) {
  if (!started_) {
    started_ = true;
    position_first_ = position_next_ = position_begin;
    region_first_ = region_next_ = region_begin;
  } else if (!width_known_ && position_next_ > position_first_ && region_begin == region_next_ + 1) {
    width_known_ = true;  // the next region begins, so the first one has ended
    position_last_ = position_next_;
    position_next_ = position_first_;
    ++region_next_;
  }
  if (region_begin != region_next_ || position_begin != position_next_) return false;
  if (region_end - region_begin > 1) {  // whole regions only
    if (position_begin != position_first_ || (width_known_ && position_end != position_last_)) return false;
    width_known_ = true;
    position_last_ = position_end;
    region_next_ = region_end;
    return true;
  }
  if (width_known_ && position_end > position_last_) return false;
  position_next_ = position_end;
  if (width_known_ && position_next_ == position_last_) {
    ++region_next_;
    position_next_ = position_first_;
  }
  return true;
}

bool Coverage::covers(std::uint64_t position_begin, std::uint64_t position_end, std::uint32_t region_begin,
                      std::uint32_t region_end) const {
  if (position_begin == position_end || region_begin == region_end) return !started_;
  if (!started_ || position_first_ != position_begin || region_first_ != region_begin) return false;
  if (!width_known_) return position_next_ == position_end && region_next_ + 1 == region_end;
  return position_last_ == position_end && region_next_ == region_end && position_next_ == position_first_;
}

Result<std::optional<WindowTable::Target>> WindowTable::on_bytes(const DataHeader& header) {
  Entry* entry = live(header.transfer);
  if (entry == nullptr) {
    ++frames_dropped_;
    return std::optional<Target>{};
  }
  auto target = place(*entry, header);
  if (target) return std::optional<Target>(*target);
  entry->rejected = true;
  return std::move(target.error());
}

Result<std::optional<Placed>> WindowTable::on_end(const DataHeader& header) {
  Entry* entry = live(header.transfer);
  if (entry == nullptr) {
    ++frames_dropped_;
    return std::optional<Placed>{};
  }
  auto placed = conclude(*entry, header);
  if (placed) return std::optional<Placed>(std::move(*placed));
  entry->rejected = true;
  return std::move(placed.error());
}

Result<void> WindowTable::enter_chunk(Entry& entry, const DataHeader& header) {
  if (entry.chunk_open) {
    if (header.number == entry.number) return {};
    return Error{Code::protocol,
                 fmt::format("a frame of chunk {} came before the end of chunk {}", header.number, entry.number)};
  }
  if (entry.last_ended) {
    return Error{Code::protocol, fmt::format("a frame of chunk {} came after the end of the last chunk, {}",
                                             header.number, entry.number)};
  }
  if (header.number < entry.number_next) {
    return Error{Code::protocol, fmt::format("chunk {} came a second time or out of order, at least {} was expected",
                                             header.number, entry.number_next)};
  }
  entry.chunk_open = true;
  entry.number = header.number;
  entry.chunk_bytes = 0;
  entry.coverage.assign(entry.window.lists.size(), Coverage{});
  return {};
}

Result<WindowTable::Target> WindowTable::place(Entry& entry, const DataHeader& header) {
  if (auto entered = enter_chunk(entry, header); !entered) return std::move(entered.error());
  const ItemList* list = list_of(entry, header.component);
  if (list == nullptr) {
    return Error{Code::out_of_range, fmt::format("a frame carries component {}, which was not granted; {} lists were",
                                                 header.component, entry.window.lists.size())};
  }
  const bool kv = header.component == component_kv;
  if (!kv && !header.last) {
    return Error{Code::protocol, fmt::format("component {} came with chunk {}, which is not the last one",
                                             header.component, header.number)};
  }
  const auto regions = view_->regions(header.component);
  if (header.region_begin >= header.region_end || header.region_end > regions.size()) {
    return Error{Code::out_of_range,
                 fmt::format("a frame names regions {} to {} of component {}, which has {}", header.region_begin,
                             header.region_end, header.component, regions.size())};
  }
  const std::uint64_t first = kv ? entry.window.first_position : 0;
  const std::uint64_t there = list->items.size();
  if (header.position_begin >= header.position_end || header.position_begin < first ||
      header.position_end - first > there) {
    return Error{Code::out_of_range,
                 fmt::format("a frame names positions {} to {} of component {}, {} to {} are granted",
                             header.position_begin, header.position_end, header.component, first, first + there)};
  }
  const std::uint64_t count = header.position_end - header.position_begin;
  const auto part = regions.subspan(header.region_begin, header.region_end - header.region_begin);
  if (const std::uint64_t bytes = layout::bytes_of(part, count); bytes != header.payload_bytes) {
    return Error{Code::out_of_range,
                 fmt::format("a frame says it carries {} bytes, its ranges are {}", header.payload_bytes, bytes)};
  }
  if (header.payload_bytes > protocol::data_payload_bytes_max && (count > 1 || part.size() > 1)) {
    return Error{Code::out_of_range, fmt::format("a frame carries {} bytes, at most {} are allowed for several items",
                                                 header.payload_bytes, protocol::data_payload_bytes_max)};
  }
  Coverage& coverage = entry.coverage[static_cast<std::size_t>(list - entry.window.lists.data())];
  if (!coverage.accept(header.position_begin, header.position_end, header.region_begin, header.region_end)) {
    return Error{
        Code::protocol,
        fmt::format("a frame of chunk {} begins at position {} of region {}, position {} of region {} was next",
                    header.number, header.position_begin, header.region_begin, coverage.position_next(),
                    coverage.region_next())};
  }
  return Target{part, std::span(list->items).subspan(header.position_begin - first, count)};
}

Result<Placed> WindowTable::conclude(Entry& entry, const DataHeader& header) {
  if (auto entered = enter_chunk(entry, header); !entered) return std::move(entered.error());
  Placed placed{entry.window.session, entry.window.transfer, {}, false, {}, entry.chunk_bytes};
  placed.span = {header.number,       header.position_begin, header.position_end,
                 header.region_begin, header.region_end,     header.last};
  placed.state_items.resize(view_->component_count() - layout::component_state, 0);
  bool kv_seen = false;
  for (std::size_t i = 0; i < entry.coverage.size(); ++i) {
    const Coverage& coverage = entry.coverage[i];
    const std::uint32_t component = entry.window.lists[i].component;
    const bool kv = component == component_kv;
    const auto regions = static_cast<std::uint32_t>(view_->regions(component).size());
    kv_seen = kv_seen || (kv && !coverage.empty());
    if (!kv && coverage.empty()) continue;
    const bool whole =
        kv ? coverage.covers(header.position_begin, header.position_end, header.region_begin, header.region_end)
           : coverage.covers(0, coverage.position_end(), 0, regions);
    if (!whole) {
      return Error{Code::protocol,
                   fmt::format("chunk {} ended before all of component {} was there: {} bytes came, of positions {} to "
                               "{} and regions {} to {}",
                               header.number, component, entry.chunk_bytes, header.position_begin, header.position_end,
                               header.region_begin, header.region_end)};
    }
    if (component == layout::component_aux) placed.with_aux = true;
    if (component >= layout::component_state) {
      placed.state_items[component - layout::component_state] = coverage.position_end();
    }
  }
  if (!kv_seen && header.position_begin != header.position_end && header.region_begin != header.region_end) {
    return Error{Code::protocol, fmt::format("chunk {} ended without a byte of its {} positions", header.number,
                                             header.position_end - header.position_begin)};
  }
  entry.chunk_open = false;
  entry.last_ended = header.last;
  entry.number_next = std::uint64_t{header.number} + 1;
  return placed;
}

}  // namespace kvferry::transport
