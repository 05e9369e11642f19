#include "sim/memory.h"

#include <cstring>

#include "base/assert.h"

namespace kvferry::sim {

std::uint64_t content(RequestId request, std::uint32_t component, std::uint64_t position, std::size_t region) {
  return (request << 32) | (std::uint64_t{component} << 24) | (static_cast<std::uint64_t>(region) << 16) |
         (position & 0xffff);
}

PageMemory::PageMemory() {
  const auto add = [&](std::size_t items) {
    words_.emplace_back(items, 0);
    return Region{words_.back().data(), items * sizeof(std::uint64_t), sizeof(std::uint64_t), MemoryKind::host};
  };
  words_.reserve(kv_regions + 2);
  for (std::size_t i = 0; i < kv_regions; ++i) memory_.kv.push_back(add(kv_pages));
  memory_.aux.push_back(add(aux_items));
  memory_.state.push_back({.regions = {add(state_items)}});
  owners_ = {std::vector<RequestId>(kv_pages), std::vector<RequestId>(aux_items), std::vector<RequestId>(state_items)};
}

std::optional<std::vector<std::int32_t>> PageMemory::take(std::uint32_t component, std::size_t count, RequestId owner,
                                                          Prng& prng) {
  std::vector<RequestId>& owners = owners_[component];
  std::vector<std::int32_t> free;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] == 0) free.push_back(static_cast<std::int32_t>(i));
  }
  if (free.size() < count) return std::nullopt;
  std::vector<std::int32_t> taken;
  while (taken.size() < count) {
    // Runs of neighbours and single pages.
    std::size_t at = prng.below(free.size());
    const std::size_t run = prng.between(1, 4);
    for (std::size_t i = 0; i < run && taken.size() < count && at < free.size(); ++i) {
      taken.push_back(free[at]);
      owners[static_cast<std::size_t>(free[at])] = owner;
      free.erase(free.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return taken;
}

void PageMemory::give_back(std::uint32_t component, const std::vector<std::int32_t>& items, Prng& prng) {
  const auto& regions = layout::component_regions(memory_, component);
  std::vector<std::uint64_t> noise(items.size() * regions.size());
  for (std::uint64_t& word : noise) word = prng.next();
  write(component, items, noise);
  for (const std::int32_t item : items) owners_[component][static_cast<std::size_t>(item)] = 0;
}

RequestId PageMemory::owner(std::uint32_t component, std::int32_t item) const {
  return owners_[component][static_cast<std::size_t>(item)];
}

std::vector<std::uint64_t> PageMemory::read(std::uint32_t component, const std::vector<std::int32_t>& items) const {
  std::vector<layout::Piece> pieces;
  for (const Region& region : layout::component_regions(memory_, component)) {
    layout::append_pieces(region, items, pieces);
  }
  std::vector<std::uint64_t> values;
  for (const layout::Piece& piece : pieces) {
    const std::size_t at = values.size();
    values.resize(at + piece.bytes / sizeof(std::uint64_t));
    std::memcpy(values.data() + at, piece.data, piece.bytes);
  }
  return values;
}

void PageMemory::write(std::uint32_t component, const std::vector<std::int32_t>& items,
                       const std::vector<std::uint64_t>& values) {
  std::vector<layout::Piece> pieces;
  for (const Region& region : layout::component_regions(memory_, component)) {
    layout::append_pieces(region, items, pieces);
  }
  std::size_t at = 0;
  for (const layout::Piece& piece : pieces) {
    KVF_ASSERT(at + piece.bytes / sizeof(std::uint64_t) <= values.size());
    std::memcpy(piece.data, values.data() + at, piece.bytes);
    at += piece.bytes / sizeof(std::uint64_t);
  }
}

void PageMemory::copy(std::uint32_t component, const PageMemory& from, const std::vector<layout::Run>& runs) {
  const auto& targets = layout::component_regions(memory_, component);
  const auto& sources = layout::component_regions(from.memory_, component);
  for (std::size_t region = 0; region < targets.size(); ++region) {
    for (const layout::Run& run : runs) {
      std::memcpy(static_cast<std::uint64_t*>(targets[region].base) + run.target,
                  static_cast<const std::uint64_t*>(sources[region].base) + run.source,
                  run.count * sizeof(std::uint64_t));
    }
  }
}

void PageMemory::fill(std::uint32_t component, const std::vector<std::int32_t>& items, RequestId request,
                      std::uint64_t first) {
  std::vector<std::uint64_t> values;
  const std::size_t regions = layout::component_regions(memory_, component).size();
  for (std::size_t region = 0; region < regions; ++region) {
    for (std::size_t i = 0; i < items.size(); ++i) values.push_back(content(request, component, first + i, region));
  }
  write(component, items, values);
}

std::optional<std::uint64_t> PageMemory::first_wrong(std::uint32_t component, const std::vector<std::int32_t>& items,
                                                     RequestId request, std::uint64_t first) const {
  const std::vector<std::uint64_t> values = read(component, items);
  for (std::size_t at = 0; at < values.size(); ++at) {
    const std::size_t i = at % items.size();
    if (values[at] != content(request, component, first + i, at / items.size())) return first + i;
  }
  return std::nullopt;
}

}  // namespace kvferry::sim
