#include "layout/check.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/try.h"
#include "layout/pages.h"
#include "layout/ranks.h"

namespace kvferry::layout {
namespace {

Error invalid(std::string text) { return Error{Code::invalid_argument, std::move(text)}; }

Result<void> check_region(const Region& region, const std::string& name) {
  if (region.base == nullptr) return invalid(name + " has a null base address; register mapped memory");
  if (region.length == 0) return invalid(name + " is empty (length 0 bytes)");
  if (region.item_bytes == 0) return invalid(name + " has items of 0 bytes; say how large one page or record is");
  if (region.length % region.item_bytes != 0) {
    return invalid(name + " has " + std::to_string(region.length) + " bytes, which is no whole number of items of " +
                   std::to_string(region.item_bytes) + " bytes");
  }
  if (region.length > std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(region.base)) {
    return invalid(name + " of " + std::to_string(region.length) + " bytes reaches past the end of the address space");
  }
  if (region.items() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    return invalid(name + " has " + std::to_string(region.items()) +
                   " items; indices are 32-bit, at most 2147483647 can be addressed");
  }
  if (region.kind != MemoryKind::host) {
    return Error{Code::unsupported, name + " is not host memory; this build moves host memory only"};
  }
  return {};
}

// One index addresses every region of a list, so that all must have the same number of items.
Result<void> check_regions(const std::vector<Region>& regions, const std::string& list) {
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const std::string name = list + " region " + std::to_string(i);
    KVF_CHECK(check_region(regions[i], name));
    if (regions[i].items() != regions[0].items()) {
      return invalid(name + " has " + std::to_string(regions[i].items()) + " items, " + list + " region 0 has " +
                     std::to_string(regions[0].items()) + "; all must have the same number");
    }
  }
  return {};
}

std::vector<std::uint64_t> item_bytes_of(const std::vector<Region>& regions) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(regions.size());
  for (const Region& region : regions) bytes.push_back(region.item_bytes);
  return bytes;
}

template <class T>
Result<void> same(const std::string& field, const T& prefill, const T& decode, const char* advice) {
  if (prefill == decode) return {};
  std::string left;
  std::string right;
  if constexpr (std::is_same_v<T, std::string>) {
    left = '"' + prefill + '"';
    right = '"' + decode + '"';
  } else if constexpr (std::is_same_v<T, bool>) {
    left = prefill ? "true" : "false";
    right = decode ? "true" : "false";
  } else {
    left = std::to_string(prefill);
    right = std::to_string(decode);
  }
  return Error{Code::mismatch, field + ": prefill has " + left + ", decode has " + right + "; " + advice};
}

Result<void> same_items(const std::string& list, const std::vector<std::uint64_t>& prefill,
                        const std::vector<std::uint64_t>& decode) {
  KVF_CHECK(same(list + " regions", prefill.size(), decode.size(), "both sides must register the same buffers"));
  for (std::size_t i = 0; i < prefill.size(); ++i) {
    if (prefill[i] == decode[i]) continue;
    return same("bytes of an item of " + list + " region " + std::to_string(i), prefill[i], decode[i],
                "both sides must register the same buffers in the same order");
  }
  return {};
}

// "state component 1 (draft)"
std::string state_name(std::size_t number, const std::string& name) {
  return "state component " + std::to_string(number) + (name.empty() ? "" : " (" + name + ")");
}

std::string order_name(PageOrder order) {
  return order == PageOrder::token_head_dim ? "token_head_dim" : "head_token_dim";
}

// Pages can be cut or joined on the way where one size is a multiple of the other.
Result<void> check_page_tokens(std::uint32_t prefill, std::uint32_t decode) {
  const auto [less, more] = std::minmax(prefill, decode);
  if (less == more || (less != 0 && more % less == 0)) return {};
  return same("page_tokens", prefill, decode,
              "start both sides with one page size, or with sizes of which one is a multiple of the other");
}

Result<void> check_formats(const KvFormat& prefill, const KvFormat& decode) {
  static constexpr const char* cache = "start both sides with the same KV cache type";
  static constexpr const char* model = "start both sides with the same model";
  static constexpr const char* layout = "start both sides with the same attention backend";
  KVF_CHECK(same("dtype", prefill.dtype, decode.dtype, cache));
  KVF_CHECK(check_page_tokens(prefill.page_tokens, decode.page_tokens));
  KVF_CHECK(same("layers", prefill.layers, decode.layers, model));
  KVF_CHECK(same("kv_heads", prefill.kv_heads, decode.kv_heads, model));
  KVF_CHECK(same("head_dim", prefill.head_dim, decode.head_dim, model));
  KVF_CHECK(same("mla", prefill.mla, decode.mla, model));
  KVF_CHECK(same("order", order_name(prefill.order), order_name(decode.order), layout));
  return same("kv_joined", prefill.kv_joined, decode.kv_joined, layout);
}

// Where ranks hold the same heads and layers in pages of one size, the regions of the two sides are each other's.
Result<void> check_kv_regions(const Shape& prefill, const Shape& decode) {
  const Parallel& there = prefill.parallel;
  const Parallel& here = decode.parallel;
  if (there.tp != here.tp || there.pp != here.pp || prefill.format.page_tokens != decode.format.page_tokens) return {};
  KVF_CHECK(same("first_layer", prefill.first_layer, decode.first_layer, "stages must hold the same layers"));
  return same_items("kv", prefill.kv_item_bytes, decode.kv_item_bytes);
}

}  // namespace

Shape shape_of(const Memory& memory, const KvFormat& format, const Parallel& parallel) {
  Shape shape{.format = format,
              .parallel = parallel,
              .first_layer = memory.first_layer,
              .kv_item_bytes = item_bytes_of(memory.kv),
              .aux_item_bytes = item_bytes_of(memory.aux),
              .state = {}};
  for (const StateComponent& component : memory.state) {
    shape.state.push_back({item_bytes_of(component.regions), component.name, component.optional});
  }
  return shape;
}

std::uint32_t regions_a_layer(const Shape& shape) {
  return shape.format.mla || shape.format.kv_joined || shape.kv_item_bytes.size() % 2 != 0 ? 1 : 2;
}

Range layers_of(const Shape& shape) {
  return {shape.first_layer, shape.first_layer + shape.kv_item_bytes.size() / regions_a_layer(shape)};
}

Result<void> check_memory(const Memory& memory) {
  if (memory.kv.empty() && memory.aux.empty() && memory.state.empty()) {
    return invalid("no memory is registered; give at least one kv, aux or state region");
  }
  if (memory.state.size() > state_components_max) {
    return invalid(std::to_string(memory.state.size()) + " state components are registered; at most " +
                   std::to_string(state_components_max) + " can be");
  }
  KVF_CHECK(check_regions(memory.kv, "kv"));
  KVF_CHECK(check_regions(memory.aux, "aux"));
  for (std::size_t i = 0; i < memory.state.size(); ++i) {
    const StateComponent& component = memory.state[i];
    const std::string name = state_name(i, component.name);
    if (component.regions.empty()) return invalid(name + " has no region; leave the component out");
    KVF_CHECK(check_regions(component.regions, name));
    if (component.name.find(',') != std::string::npos || component.name.size() > state_name_bytes_max) {
      return invalid(name + " needs a shorter name without a comma; at most " + std::to_string(state_name_bytes_max) +
                     " bytes");
    }
    const auto before = memory.state.begin() + static_cast<std::ptrdiff_t>(i);
    if (!component.name.empty() &&
        std::any_of(memory.state.begin(), before, [&](const auto& other) { return other.name == component.name; })) {
      return invalid(name + " has the name of an earlier one; a name says which belong together");
    }
  }
  return {};
}

Result<void> check_pair(const Shape& prefill, const Shape& decode) {
  KVF_CHECK(check_formats(prefill.format, decode.format));
  KVF_CHECK(feeding_ranks(prefill.parallel, decode.parallel, {}, 0));
  KVF_CHECK(check_kv_regions(prefill, decode));
  KVF_CHECK(same_items("aux", prefill.aux_item_bytes, decode.aux_item_bytes));
  KVF_CHECK(pair_states(prefill, decode));
  return {};
}

Result<StatePairs> pair_states(const Shape& prefill, const Shape& decode) {
  StatePairs pairs;
  std::vector<bool> taken(decode.state.size());
  const auto alone = [&](const char* side, std::size_t number, const StateShape& component) {
    return Error{Code::mismatch, state_name(number, component.name) + ": only " + side + " has it (prefill has " +
                                     std::to_string(prefill.state.size()) + " components, decode has " +
                                     std::to_string(decode.state.size()) +
                                     "); register it on both sides, or as optional where it may stay behind"};
  };
  for (std::uint32_t i = 0; i < prefill.state.size(); ++i) {
    const StateShape& component = prefill.state[i];
    std::uint32_t match = 0;
    while (match < decode.state.size() && (taken[match] || decode.state[match].name != component.name)) ++match;
    if (match == decode.state.size()) {
      if (component.optional) continue;
      return alone("prefill", i, component);
    }
    taken[match] = true;
    KVF_CHECK(same_items(state_name(i, component.name), component.item_bytes, decode.state[match].item_bytes));
    pairs.prefill.push_back(i);
    pairs.decode.push_back(match);
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (!taken[i] && !decode.state[i].optional) return alone("decode", i, decode.state[i]);
  }
  return pairs;
}

}  // namespace kvferry::layout
