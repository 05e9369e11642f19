// Every way two instances can be split, against what each rank must hold: bytes are moved as movers would, and looked
// at.
#include "layout/pairing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <tuple>

#include "base/try.h"

namespace kvferry::layout {
namespace {

constexpr std::uint32_t small_page = 2;
constexpr std::uint64_t request_tokens = 21;  // fills no page size that is tried here

struct Split {
  KvFormat format;  // but for its page size
  std::uint32_t prefill_page = small_page;
  std::uint32_t decode_page = small_page;
  Parallel prefill;
  Parallel decode;
};

std::string text(const Split& split) {
  return text_of(split.prefill) + " -> " + text_of(split.decode) + ", " + std::to_string(split.format.kv_heads) +
         " heads" + (split.format.mla ? ", MLA" : "") + (split.format.kv_joined ? ", joined" : "") +
         (split.format.order == PageOrder::head_token_dim ? ", head first" : "") + ", pages of " +
         std::to_string(split.prefill_page) + " -> " + std::to_string(split.decode_page);
}

std::uint64_t pages_of(std::uint64_t tokens, std::uint64_t page) { return (tokens + page - 1) / page; }

// What one head of one token is: 4 bytes that say which.
std::uint32_t content(std::uint64_t layer, std::uint64_t half, std::uint64_t head, std::uint64_t token) {
  return static_cast<std::uint32_t>(((layer * 2 + half) * 64 + head) * 4096 + token + 1);
}

// The memory of one rank: its layers, its heads.
struct Engine {
  Engine(const KvFormat& the_format, std::uint32_t page, const Parallel& the_parallel, const Place& the_place)
      : format(the_format), parallel(the_parallel), place(the_place) {
    format.page_tokens = page;
    heads = heads_of(format.kv_heads, format.mla, parallel.tp, place.tp).value();
    const std::uint64_t each = format.layers / parallel.pp;
    first_layer = place.pp * each;
    layers = place.pp + 1 == parallel.pp ? format.layers - first_layer : each;  // the last stage has what is left
    halves = format.mla ? 1 : 2;
    regions_a_layer = halves == 2 && !format.kv_joined ? 2 : 1;
    words.assign(layers * regions_a_layer, std::vector<std::uint32_t>(pages_of(request_tokens, page) * item_words()));
    for (auto& region : words) {
      memory.kv.push_back({region.data(), region.size() * 4, item_words() * 4, MemoryKind::host});
    }
    memory.first_layer = static_cast<std::uint32_t>(first_layer);
    shape = shape_of(memory, format, parallel);
  }
  std::size_t item_words() const { return format.page_tokens * heads.size() * (halves / regions_a_layer); }

  // Calls visit(word, layer, half, head, token) for all it holds of these tokens.
  template <class Visit>
  void each(const Range& tokens, Visit visit) {
    const std::uint64_t page_tokens = format.page_tokens;
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      for (std::uint64_t half = 0; half < halves; ++half) {
        auto& region = words[regions_a_layer == 2 ? half * layers + layer : layer];
        for (std::uint64_t token = tokens.begin; token < tokens.end; ++token) {
          const std::uint64_t t = token % page_tokens;
          for (std::uint64_t h = 0; h < heads.size(); ++h) {
            std::size_t at = token / page_tokens * item_words();
            if (regions_a_layer == 1) at += half * page_tokens * heads.size();
            at += format.order == PageOrder::token_head_dim ? t * heads.size() + h : h * page_tokens + t;
            visit(region[at], first_layer + layer, half, heads.begin + h, token);
          }
        }
      }
    }
  }

  KvFormat format;
  Parallel parallel;
  Place place;
  Range heads;
  std::uint64_t first_layer = 0;
  std::uint64_t layers = 0;
  std::uint64_t halves = 2;
  std::uint64_t regions_a_layer = 2;
  std::vector<std::vector<std::uint32_t>> words;
  Memory memory;
  Shape shape;
};

std::vector<std::int32_t> items(const Range& range) {
  std::vector<std::int32_t> list;
  for (std::uint64_t i = range.begin; i < range.end; ++i) list.push_back(static_cast<std::int32_t>(i));
  return list;
}

// Copies what goes from one to the other, piece by piece; nothing may arrive twice.
::testing::AssertionResult move_pair(Engine& source, Engine& target, const Pairing& pairing) {
  const View from = View::of(source.memory, pairing.source, {});
  const View to = View::of(target.memory, pairing.target, {});
  const std::uint64_t units = pages_of(request_tokens, std::min(source.format.page_tokens, target.format.page_tokens));
  const Range granted{0, pages_of(request_tokens, target.format.page_tokens) * pairing.target_units};
  const Range mine = pairing.positions(granted);
  const Range filled = intersection(mine, {0, units});  // the rest of decode's last page stays as it is
  if (mine.end - filled.end > pairing.slack(mine, granted)) return ::testing::AssertionFailure() << "too little slack";
  const auto positions = items(filled);
  std::uint64_t unit_bytes = 0;
  for (std::size_t r = 0; r < pairing.source.size(); ++r) {
    const ViewRegion& a = from.regions(component_kv)[r];
    const ViewRegion& b = to.regions(component_kv)[r];
    if (a.unit_bytes != b.unit_bytes) return ::testing::AssertionFailure() << "region " << r << " differs in size";
    unit_bytes += a.unit_bytes;
    std::vector<Piece> left;
    std::vector<Piece> right;
    append_pieces(a, positions, left);
    append_pieces(b, positions, right);
    std::vector<std::byte> wire;
    for (const Piece& piece : left) wire.insert(wire.end(), piece.data, piece.data + piece.bytes);
    std::size_t at = 0;
    for (const Piece& piece : right) {
      for (std::size_t i = 0; i < piece.bytes; i += 4) {
        std::uint32_t old = 0;
        std::memcpy(&old, piece.data + i, 4);
        if (old != 0) return ::testing::AssertionFailure() << "written twice";
      }
      std::memcpy(piece.data, &wire.at(at), piece.bytes);
      at += piece.bytes;
    }
    if (at != wire.size()) return ::testing::AssertionFailure() << "sent and placed differ";
  }
  if (unit_bytes != pairing.unit_bytes) return ::testing::AssertionFailure() << "unit_bytes is wrong";
  return ::testing::AssertionSuccess();
}

std::vector<Place> places(const Parallel& parallel, std::uint32_t dp) {
  std::vector<Place> all;
  for (std::uint32_t pp = 0; pp < parallel.pp; ++pp) {
    for (std::uint32_t cp = 0; cp < parallel.cp; ++cp) {
      for (std::uint32_t tp = 0; tp < parallel.tp; ++tp) all.push_back({.dp = dp, .tp = tp, .pp = pp, .cp = cp});
    }
  }
  return all;
}

void check(const Split& split) {
  SCOPED_TRACE(text(split));
  const std::uint32_t dp = split.prefill.dp - 1;
  std::map<Place, Engine> prefill;
  for (const Place& place : places(split.prefill, dp)) {
    Engine engine(split.format, split.prefill_page, split.prefill, place);
    const std::uint64_t page = std::max(split.prefill_page, split.decode_page);
    const Range pages = share_of(pages_of(request_tokens, page), place.cp, split.prefill.cp);
    const Range mine = intersection({pages.begin * page, pages.end * page}, {0, request_tokens});
    engine.each(mine, [](std::uint32_t& word, auto... where) { word = content(where...); });
    prefill.emplace(place, std::move(engine));
  }
  std::map<Place, std::uint32_t> granted;
  std::uint32_t awaited = 0;
  for (const Place& place : places(split.decode, 0)) {
    Engine decode(split.format, split.decode_page, split.decode, place);
    const auto feeding = feeding_ranks(split.prefill, split.decode, place, dp);
    ASSERT_TRUE(feeding) << feeding.error().text;
    awaited = feeding->grants_awaited;
    std::uint64_t bytes = 0;
    std::uint32_t beside = 0;
    for (const Place& source : feeding->sources) {
      ++granted[source];
      Engine& engine = prefill.at(source);
      const auto pairing = pair_ranks({engine.shape, source}, {decode.shape, place});
      ASSERT_TRUE(pairing) << pairing.error().text;
      EXPECT_FALSE(pairing->dummy() && pairing->beside);
      beside += pairing->beside ? 1 : 0;
      if (pairing->share == 0) bytes += pairing->unit_bytes * pairing->target_units;
      ASSERT_TRUE(move_pair(engine, decode, *pairing));
    }
    EXPECT_EQ(beside, 1u) << "aux comes once";
    EXPECT_EQ(bytes, decode.item_words() * 4 * decode.words.size());
    std::size_t wrong = 0;
    decode.each({0, request_tokens},
                [&](std::uint32_t word, auto... where) { wrong += word == content(where...) ? 0 : 1; });
    ASSERT_EQ(wrong, 0u) << "decode tp " << place.tp << " pp " << place.pp;
  }
  for (const auto& [place, engine] : prefill) {
    ASSERT_EQ(granted[place], awaited) << "prefill tp " << place.tp << " pp " << place.pp << " cp " << place.cp;
  }
}

TEST(pairing, every_rank_gets_each_of_its_heads_layers_and_pages_once_however_both_sides_are_split) {
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> pages{{2, 2}, {2, 4}, {4, 2}, {1, 8}, {6, 2}};
  std::size_t combinations = 0;
  for (const std::uint32_t prefill_tp : {1, 2, 3, 4, 6, 8, 16}) {
    for (const std::uint32_t decode_tp : {1, 2, 3, 4, 6, 8, 16}) {
      if (std::max(prefill_tp, decode_tp) % std::min(prefill_tp, decode_tp) != 0) continue;
      for (const std::uint32_t heads : {1, 2, 4, 6, 8, 12, 16}) {
        if (!heads_of(heads, false, prefill_tp, 0) || !heads_of(heads, false, decode_tp, 0)) continue;
        for (const auto& [pp, decode_pp, cp] :
             std::vector<std::tuple<int, int, int>>{{1, 1, 1}, {2, 1, 1}, {3, 3, 1}, {3, 1, 2}, {1, 1, 3}, {2, 2, 2}}) {
          if (prefill_tp * static_cast<unsigned>(pp * cp) > 16) continue;
          for (const int kind : {0, 1, 2, 3, 4}) {
            Split split;
            split.format = {.dtype = "uint32", .layers = 4, .kv_heads = heads, .head_dim = 1};
            split.format.mla = kind == 4;
            split.format.kv_joined = kind == 2 || kind == 3;
            split.format.order = kind % 2 == 1 ? PageOrder::head_token_dim : PageOrder::token_head_dim;
            if (split.format.mla && heads != 1) continue;
            split.prefill = {
                .tp = prefill_tp, .dp = 2, .pp = static_cast<std::uint32_t>(pp), .cp = static_cast<std::uint32_t>(cp)};
            split.decode = {.tp = decode_tp, .pp = static_cast<std::uint32_t>(decode_pp)};
            for (const auto& [prefill_page, decode_page] : pages) {
              split.prefill_page = prefill_page;
              split.decode_page = decode_page;
              check(split);
              if (HasFatalFailure()) return;
              ++combinations;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(combinations, 5'000u);
}

TEST(pairing, equal_ranks_move_whole_items) {
  Engine one({.dtype = "uint32", .layers = 4, .kv_heads = 4, .head_dim = 1}, small_page, {.tp = 2}, {});
  const auto pairing = pair_ranks({one.shape, one.place}, {one.shape, one.place});
  ASSERT_TRUE(pairing);
  const View view = View::of(one.memory, pairing->source, {});
  ASSERT_EQ(view.regions(component_kv).size(), one.memory.kv.size());
  for (const ViewRegion& region : view.regions(component_kv)) EXPECT_TRUE(region.whole);
}

TEST(pairing, what_does_not_follow_from_heads_and_tokens_is_refused_in_words) {
  const KvFormat format{.dtype = "uint32", .layers = 4, .kv_heads = 4, .head_dim = 1};
  Engine prefill(format, small_page, {.tp = 2}, {});
  Engine decode(format, small_page, {.tp = 4}, {});
  const auto refused = [&] {
    const auto pairing = pair_ranks({prefill.shape, prefill.place}, {decode.shape, decode.place});
    EXPECT_EQ(pairing.error().code, Code::mismatch);
    return pairing.error().text;
  };
  prefill.shape.kv_item_bytes[1] += 16;
  EXPECT_NE(refused().find("pages of different sizes"), std::string::npos);
  for (auto& bytes : prefill.shape.kv_item_bytes) bytes = 17;
  EXPECT_NE(refused().find("17 bytes"), std::string::npos);
  for (auto& bytes : prefill.shape.kv_item_bytes) bytes = 32;
  EXPECT_NE(refused().find("8 bytes on prefill and 4 on decode"), std::string::npos);
  prefill.shape.kv_item_bytes.pop_back();
  EXPECT_NE(refused().find("7 kv regions"), std::string::npos);
  prefill.shape.kv_item_bytes.assign(10, 16);
  EXPECT_NE(refused().find("layers 0 to 4, the model has 4"), std::string::npos);
  prefill.shape.format.kv_heads = decode.shape.format.kv_heads = 3;
  prefill.shape.kv_item_bytes.assign(8, 16);
  EXPECT_NE(refused().find("3 KV heads cannot be split over 2 ranks"), std::string::npos);
}

TEST(pairing, names_the_regions_of_the_layers_that_both_hold) {
  const KvFormat format{.dtype = "uint32", .layers = 6, .kv_heads = 2, .head_dim = 1};
  Engine prefill(format, small_page, {.pp = 2}, {.pp = 1});
  Engine decode(format, small_page, {}, {});
  const auto pairing = pair_ranks({prefill.shape, prefill.place}, {decode.shape, decode.place});
  ASSERT_TRUE(pairing);
  EXPECT_EQ(pairing->layers, (Range{3, 6}));
  EXPECT_EQ(pairing->regions_of(every_layer), (Range{0, 6}));
  EXPECT_EQ(pairing->regions_of({4, 6}), (Range{2, 6}));
  EXPECT_TRUE(pairing->regions_of({0, 3}).empty());
  std::vector<std::uint32_t> source;
  for (const RegionCut& cut : pairing->source) source.push_back(cut.region);
  EXPECT_EQ(source, (std::vector<std::uint32_t>{0, 3, 1, 4, 2, 5})) << "layer by layer, K then V";
  const auto whole = pair_ranks({decode.shape, decode.place}, {decode.shape, decode.place});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->source[3].region, 7u) << "V of layer 1";
}

TEST(pairing, units_that_an_index_cannot_name_are_refused) {
  EXPECT_TRUE(check_units(INT32_MAX, 1));
  EXPECT_TRUE(check_units(INT32_MAX / 4, 4));
  const auto refused = check_units(INT32_MAX / 4 + 1, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unsupported);
}

TEST(pairing, shares_are_contiguous_and_complete) {
  for (std::uint64_t count = 0; count < 40; ++count) {
    for (std::uint32_t size = 1; size < 9; ++size) {
      std::uint64_t next = 0;
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        const Range share = share_of(count, rank, size);
        EXPECT_EQ(share.begin, next);
        EXPECT_LE(share.size(), count / size + 1);
        next = share.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace kvferry::layout
