#include "layout/pairing.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/try.h"

namespace kvferry::layout {
namespace {

Error mismatch(std::string text) { return Error{Code::mismatch, std::move(text)}; }

// How one side's pages are built: its heads, its layers, and where they lie.
struct Side {
  const char* name;
  const Rank& rank;
  Range heads{};
  Range layers{};
  std::uint32_t regions_a_layer = 1;
  std::uint64_t head_bytes = 0;   // of one head of one token
  std::uint32_t unit_tokens = 0;  // of a unit

  const std::vector<std::uint64_t>& items() const { return rank.shape.kv_item_bytes; }
  std::uint64_t local_layers() const { return items().size() / regions_a_layer; }
  // The region of K (half 0) or V (half 1) of a layer of the model.
  std::uint32_t region(std::uint64_t layer, std::uint32_t half) const {
    return static_cast<std::uint32_t>(half * local_layers() + layer - layers.begin);
  }
};

Result<void> describe_layers(Side& side) {
  const Shape& shape = side.rank.shape;
  side.regions_a_layer = shape.format.mla || shape.format.kv_joined ? 1 : 2;
  if (side.items().empty() || side.items().size() % side.regions_a_layer != 0) {
    return mismatch(std::string(side.name) + " has " + std::to_string(side.items().size()) +
                    " kv regions, which is no whole number of layers with " + std::to_string(side.regions_a_layer) +
                    " each");
  }
  side.layers = {shape.first_layer, shape.first_layer + side.local_layers()};
  if (side.layers.end > shape.format.layers) {
    return mismatch(std::string(side.name) + " has layers " + std::to_string(side.layers.begin) + " to " +
                    std::to_string(side.layers.end - 1) + ", the model has " + std::to_string(shape.format.layers));
  }
  return {};
}

// Page sizes must follow from heads and tokens; what one head of one token takes comes out.
Result<void> describe_pages(Side& side) {
  const KvFormat& format = side.rank.shape.format;
  KVF_TRY(heads, heads_of(format.kv_heads, format.mla, side.rank.shape.parallel.tp, side.rank.place.tp));
  side.heads = heads;
  const std::uint64_t halves = format.kv_joined && !format.mla ? 2 : 1;
  const std::uint64_t slots = halves * format.page_tokens * heads.size();
  const std::uint64_t item_bytes = side.items().front();
  if (std::ranges::any_of(side.items(), [&](std::uint64_t bytes) { return bytes != item_bytes; })) {
    return mismatch(std::string(side.name) + " has kv pages of different sizes; layers of one size can be split");
  }
  if (slots == 0 || item_bytes % slots != 0) {
    return mismatch(std::string(side.name) + " has kv pages of " + std::to_string(item_bytes) +
                    " bytes, which is no whole number for " + std::to_string(format.page_tokens) + " tokens of " +
                    std::to_string(heads.size()) + " heads" + (halves == 2 ? ", K and V" : ""));
  }
  side.head_bytes = item_bytes / slots;
  return {};
}

// The bytes of these heads in one half (K or V) of the first unit of a page.
Strip strip_of(const Side& side, const Range& heads, std::uint64_t half) {
  const KvFormat& format = side.rank.shape.format;
  const std::uint64_t offset = half * format.page_tokens * side.heads.size() * side.head_bytes;
  const std::uint64_t first = heads.begin - side.heads.begin;
  if (format.order == PageOrder::head_token_dim) {
    const std::uint64_t head = format.page_tokens * side.head_bytes;
    const std::uint64_t unit = side.unit_tokens * side.head_bytes;
    if (unit == head) return {.offset = offset + first * head, .bytes = heads.size() * head, .stride = 0, .count = 1};
    return {.offset = offset + first * head, .bytes = unit, .stride = head, .count = heads.size()};
  }
  const std::uint64_t token = side.heads.size() * side.head_bytes;
  if (heads == side.heads) return {.offset = offset, .bytes = side.unit_tokens * token, .stride = 0, .count = 1};
  return {.offset = offset + first * side.head_bytes,
          .bytes = heads.size() * side.head_bytes,
          .stride = token,
          .count = side.unit_tokens};
}

RegionCut cut_of(const Side& side, const Range& heads, std::uint64_t layer, std::uint32_t region_half) {
  const KvFormat& format = side.rank.shape.format;
  RegionCut cut{.region = side.region(layer, region_half), .units = format.page_tokens / side.unit_tokens};
  const std::uint64_t heads_a_step = format.order == PageOrder::head_token_dim ? 1 : side.heads.size();
  cut.unit_step = cut.units == 1 ? side.items()[cut.region] : side.unit_tokens * heads_a_step * side.head_bytes;
  cut.strips = {strip_of(side, heads, 0)};
  if (format.kv_joined && !format.mla) {
    const Strip v = strip_of(side, heads, 1);
    Strip& k = cut.strips.front();
    if (k.count == 1 && k.offset + k.bytes == v.offset) {
      k.bytes += v.bytes;
    } else {
      cut.strips.push_back(v);
    }
  }
  return cut;
}

// Where nothing is cut, pages of any build fit; only the order of the regions is to be known.
void pair_whole(const Shape& shape, Pairing& pairing) {
  const std::vector<RegionCut> cuts = whole_cuts(shape.kv_item_bytes);
  pairing.regions_a_layer = regions_a_layer(shape);
  const std::size_t layers = cuts.size() / pairing.regions_a_layer;
  pairing.layers = {shape.first_layer, shape.first_layer + layers};
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t half = 0; half < pairing.regions_a_layer; ++half) {
      pairing.target.push_back(cuts[half * layers + layer]);
      pairing.unit_bytes += pairing.target.back().unit_bytes();
    }
  }
  pairing.source = pairing.target;
  pairing.fills = true;
}

// Aux and state come once: from the last stage and share, where the engine finishes the prompt, and there from the
// first rank that feeds this one.
bool beside(const Rank& prefill, const Rank& decode) {
  const Parallel& there = prefill.shape.parallel;
  const std::uint32_t narrower = std::max<std::uint32_t>(there.tp / decode.shape.parallel.tp, 1);
  const bool last_stage = decode.shape.parallel.pp == there.pp || prefill.place.pp + 1 == there.pp;
  return last_stage && prefill.place.cp + 1 == there.cp && prefill.place.tp % narrower == 0;
}

}  // namespace

Result<Pairing> pair_ranks(const Rank& prefill, const Rank& decode) {
  KVF_CHECK(check_pair(prefill.shape, decode.shape));
  const Parallel& there = prefill.shape.parallel;
  const Parallel& here = decode.shape.parallel;
  Pairing pairing{.beside = beside(prefill, decode), .share = prefill.place.cp, .shares = there.cp};
  KVF_TRY(state, pair_states(prefill.shape, decode.shape));
  pairing.state = std::move(state);
  const std::uint32_t source_tokens = prefill.shape.format.page_tokens;
  const std::uint32_t target_tokens = decode.shape.format.page_tokens;
  if (there.tp == here.tp && there.pp == here.pp && source_tokens == target_tokens) {
    pair_whole(decode.shape, pairing);
    return pairing;
  }
  const std::uint32_t unit_tokens = std::min(source_tokens, target_tokens);
  Side source{.name = "prefill", .rank = prefill, .unit_tokens = unit_tokens};
  Side target{.name = "decode", .rank = decode, .unit_tokens = unit_tokens};
  for (Side* side : {&source, &target}) {
    KVF_CHECK(describe_layers(*side));
    KVF_CHECK(describe_pages(*side));
  }
  if (source.head_bytes != target.head_bytes) {
    return mismatch("one head of one token takes " + std::to_string(source.head_bytes) + " bytes on prefill and " +
                    std::to_string(target.head_bytes) + " on decode; start both sides with the same KV cache type");
  }
  pairing.source_units = source_tokens / unit_tokens;
  pairing.target_units = target_tokens / unit_tokens;
  pairing.layers = intersection(source.layers, target.layers);
  pairing.regions_a_layer = source.regions_a_layer;
  KVF_TRY(heads, heads_between(prefill.shape.format, there, prefill.place.tp, here, decode.place.tp));
  if (heads.empty()) return pairing;
  for (std::uint64_t layer = pairing.layers.begin; layer < pairing.layers.end; ++layer) {
    for (std::uint32_t half = 0; half < source.regions_a_layer; ++half) {
      pairing.source.push_back(cut_of(source, heads, layer, half));
      pairing.target.push_back(cut_of(target, heads, layer, half));
      pairing.unit_bytes += pairing.target.back().unit_bytes();
    }
  }
  return pairing;
}

Result<void> check_units(std::uint64_t items, std::uint32_t units) {
  constexpr std::uint64_t units_max = INT32_MAX;
  if (items <= units_max / units) return {};
  return Error{Code::unsupported, std::to_string(items) + " pages of " + std::to_string(units) +
                                      " pages of the peer's size are more than " + std::to_string(units_max) +
                                      ": start the two sides with page sizes that are closer"};
}

Range Pairing::positions(const Range& granted) const {
  if (shares == 1) return granted;
  const std::uint64_t step = std::max(source_units, target_units);
  const std::uint64_t first = granted.begin / step;
  const Range mine = share_of((granted.end + step - 1) / step - first, share, shares);
  return intersection(granted, {(first + mine.begin) * step, (first + mine.end) * step});
}

Range Pairing::regions_of(const Range& of_model) const {
  if (dummy()) return {};
  const Range both = intersection(of_model, layers);
  if (both.empty()) return {};
  return {(both.begin - layers.begin) * regions_a_layer, (both.end - layers.begin) * regions_a_layer};
}

}  // namespace kvferry::layout
