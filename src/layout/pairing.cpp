#include "layout/pairing.h"

#include <algorithm>
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
  std::uint64_t head_bytes = 0;  // of one head of one token

  const std::vector<std::uint64_t>& items() const { return rank.shape.kv_item_bytes; }
  std::uint64_t local_layers() const { return items().size() / regions_a_layer; }
  // The region of K (half 0) or V (half 1) of a layer of the model.
  std::uint32_t region(std::uint64_t layer, std::uint32_t half) const {
    return static_cast<std::uint32_t>(half * local_layers() + layer - layers.begin);
  }
};

Result<void> describe_layers(Side& side) {
  const Shape& shape = side.rank.shape;
  const bool one_region = shape.format.mla || shape.format.kv_joined;
  side.regions_a_layer = one_region ? 1 : 2;
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

// The bytes of these heads in one half (K or V) of a page.
Strip strip_of(const Side& side, const Range& heads, std::uint64_t half) {
  const KvFormat& format = side.rank.shape.format;
  const std::uint64_t half_bytes = format.page_tokens * side.heads.size() * side.head_bytes;
  const std::uint64_t first = heads.begin - side.heads.begin;
  if (heads == side.heads) return {.offset = half * half_bytes, .bytes = half_bytes, .stride = 0, .count = 1};
  if (format.order == PageOrder::head_token_dim) {
    const std::uint64_t head = format.page_tokens * side.head_bytes;
    return {.offset = half * half_bytes + first * head, .bytes = heads.size() * head, .stride = 0, .count = 1};
  }
  return {.offset = half * half_bytes + first * side.head_bytes,
          .bytes = heads.size() * side.head_bytes,
          .stride = side.heads.size() * side.head_bytes,
          .count = format.page_tokens};
}

RegionCut cut_of(const Side& side, const Range& heads, std::uint64_t layer, std::uint32_t region_half) {
  const bool joined = side.rank.shape.format.kv_joined && !side.rank.shape.format.mla;
  RegionCut cut{.region = side.region(layer, region_half)};
  cut.unit_step = side.items()[cut.region];
  if (!joined || heads == side.heads) {
    cut.strips = {strip_of(side, heads, 0)};
    if (joined) cut.strips[0].bytes *= 2;
  } else {
    cut.strips = {strip_of(side, heads, 0), strip_of(side, heads, 1)};
  }
  return cut;
}

std::uint64_t sum(const std::vector<std::uint64_t>& values) {
  std::uint64_t total = 0;
  for (const std::uint64_t value : values) total += value;
  return total;
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
  if (there.tp == here.tp && there.pp == here.pp) {
    pairing.source = pairing.target = whole_cuts(decode.shape.kv_item_bytes);
    pairing.page_bytes = sum(decode.shape.kv_item_bytes);
    pairing.fills = true;
    return pairing;
  }
  Side source{.name = "prefill", .rank = prefill};
  Side target{.name = "decode", .rank = decode};
  for (Side* side : {&source, &target}) {
    KVF_CHECK(describe_layers(*side));
    KVF_CHECK(describe_pages(*side));
  }
  if (source.head_bytes != target.head_bytes) {
    return mismatch("one head of one token takes " + std::to_string(source.head_bytes) + " bytes on prefill and " +
                    std::to_string(target.head_bytes) + " on decode; start both sides with the same KV cache type");
  }
  KVF_TRY(heads, heads_between(prefill.shape.format, there, prefill.place.tp, here, decode.place.tp));
  if (heads.empty()) return pairing;
  const Range layers = intersection(source.layers, target.layers);
  for (std::uint32_t half = 0; half < source.regions_a_layer; ++half) {
    for (std::uint64_t layer = layers.begin; layer < layers.end; ++layer) {
      pairing.source.push_back(cut_of(source, heads, layer, half));
      pairing.target.push_back(cut_of(target, heads, layer, half));
      pairing.page_bytes += pairing.target.back().unit_bytes();
    }
  }
  return pairing;
}

}  // namespace kvferry::layout
