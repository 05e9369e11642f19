#include "transport/window_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "layout/pages.h"

namespace kvferry::transport {

using layout::component_kv;

namespace {
const char* component_word(std::uint32_t component) {
  if (component == component_kv) return "page";
  return component == layout::component_aux ? "aux slot" : "state slot";
}
}  // namespace

Result<void> WindowTable::open(Window window) {
  for (const ItemList& list : window.lists) {
    if (list.component >= view_->component_count()) {
      return Error{Code::out_of_range, fmt::format("a window names component {}, but there are {}", list.component,
                                                   view_->component_count())};
    }
    for (const layout::ViewRegion& region : view_->regions(list.component)) {
      if (auto fits = layout::check_items(list.items, region.unit_count, component_word(list.component)); !fits) {
        return std::move(fits.error());
      }
      if (list.component == component_kv) break;  // every kv region has the same number of items
    }
  }
  const std::uint64_t key = window.transfer.value;
  Entry entry;
  entry.coverage.resize(window.lists.size());
  entry.window = std::move(window);
  if (!entries_.try_emplace(key, std::move(entry)).second) {
    return Error{Code::already_exists, fmt::format("transfer {:016x} has a window already", key)};
  }
  return {};
}

WindowTable::Closed WindowTable::close(TransferId transfer) {
  const auto found = entries_.find(transfer.value);
  if (found == entries_.end()) return Closed::now;
  if (found->second.copies > 0) {
    found->second.closing = true;
    return Closed::after_copies;
  }
  entries_.erase(found);
  return Closed::now;
}

bool WindowTable::is_open(TransferId transfer) const {
  const auto found = entries_.find(transfer.value);
  return found != entries_.end() && !found->second.closing && !found->second.rejected;
}

WindowTable::Entry* WindowTable::live(TransferId transfer) {
  const auto found = entries_.find(transfer.value);
  if (found == entries_.end() || found->second.closing || found->second.rejected) return nullptr;
  return &found->second;
}

const ItemList* WindowTable::list_of(const Entry& entry, std::uint32_t component) const {
  for (const ItemList& list : entry.window.lists) {
    if (list.component == component) return &list;
  }
  return nullptr;
}

Result<bool> WindowTable::check(const ChunkOrder& order) {
  Entry* entry = live(order.transfer);
  if (entry == nullptr) return false;
  auto inside = check_parts(*entry, order);
  if (!inside) {
    entry->rejected = true;
    return std::move(inside.error());
  }
  return true;
}

Result<void> WindowTable::check_parts(const Entry& entry, const ChunkOrder& order) const {
  for (const ItemList& list : order.lists) {
    const std::uint64_t begin = list.component == component_kv ? order.span.position_begin : 0;
    const std::uint64_t first = list.component == component_kv ? entry.window.first_position : 0;
    const ItemList* granted = list_of(entry, list.component);
    const std::uint64_t there = granted == nullptr ? 0 : granted->items.size();
    if (list.items.empty()) continue;
    if (begin < first || begin - first > there || list.items.size() > there - (begin - first)) {
      return Error{
          Code::out_of_range,
          fmt::format("chunk {} carries {} {}s from position {} on, but the grant has {} from {} on", order.span.number,
                      list.items.size(), component_word(list.component), begin, there, first)};
    }
    if (list.component != component_kv && !order.span.last) {
      return Error{Code::protocol, fmt::format("chunk {} is not the last one but carries {}s", order.span.number,
                                               component_word(list.component))};
    }
  }
  return {};
}

std::span<const std::int32_t> WindowTable::items(TransferId transfer, std::uint32_t component) const {
  const auto found = entries_.find(transfer.value);
  if (found == entries_.end()) return {};
  const ItemList* list = list_of(found->second, component);
  if (list == nullptr) return {};
  return list->items;
}

std::uint64_t WindowTable::first_position(TransferId transfer) const {
  const auto found = entries_.find(transfer.value);
  return found == entries_.end() ? 0 : found->second.window.first_position;
}

void WindowTable::copy_began(TransferId transfer) {
  const auto found = entries_.find(transfer.value);
  KVF_ASSERT(found != entries_.end() && !found->second.closing);
  ++found->second.copies;
}

bool WindowTable::copy_ended(TransferId transfer) {
  const auto found = entries_.find(transfer.value);
  KVF_ASSERT(found != entries_.end() && found->second.copies > 0);
  if (--found->second.copies > 0 || !found->second.closing) return false;
  entries_.erase(found);
  return true;
}

void WindowTable::reject(TransferId transfer) {
  if (const auto found = entries_.find(transfer.value); found != entries_.end()) found->second.rejected = true;
}

std::uint64_t WindowTable::landed(TransferId transfer, std::uint64_t bytes) {
  Entry* entry = live(transfer);
  if (entry == nullptr) return 0;
  entry->chunk_bytes += bytes;
  entry->unreported_bytes += bytes;
  if (entry->unreported_bytes < (1u << 20)) return 0;
  return std::exchange(entry->unreported_bytes, 0);
}

}  // namespace kvferry::transport
