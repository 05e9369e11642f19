#include "layout/check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace kvferry::layout {
namespace {

std::byte* somewhere() { return reinterpret_cast<std::byte*>(std::uintptr_t{0x10000}); }
Region region(std::size_t items = 4, std::size_t item_bytes = 16) {
  return {.base = somewhere(), .length = items * item_bytes, .item_bytes = item_bytes};
}
Memory good_memory() {
  Memory memory;
  memory.kv = {region(), region(4, 32)};
  memory.aux = {region(7, 8)};
  memory.state = {{{region(3, 8)}}, {{region(9, 8), region(9, 4)}}};
  return memory;
}

struct MemoryCase {
  std::function<void(Memory&)> spoil;
  Code code;
  std::vector<std::string> words;
};

TEST(check_memory, takes_memory_that_is_right) {
  EXPECT_TRUE(check_memory(good_memory()));
  Memory aux_only;
  aux_only.aux = {region()};
  EXPECT_TRUE(check_memory(aux_only));
}

TEST(check_memory, refuses_each_fault_and_names_the_region) {
  constexpr std::size_t too_many = (std::size_t{1} << 31) * 16;
  const std::vector<MemoryCase> cases{
      {[](Memory& m) { m = {}; }, Code::invalid_argument, {"no memory is registered"}},
      {[](Memory& m) { m.kv[1].base = nullptr; }, Code::invalid_argument, {"kv region 1", "null base address"}},
      {[](Memory& m) { m.kv[0].length = 0; }, Code::invalid_argument, {"kv region 0", "is empty"}},
      {[](Memory& m) { m.aux[0].item_bytes = 0; }, Code::invalid_argument, {"aux region 0", "items of 0 bytes"}},
      {[](Memory& m) { m.kv[1].length = 100; }, Code::invalid_argument, {"kv region 1", "100 bytes", "32 bytes"}},
      {[](Memory& m) { m.kv[1] = region(5, 32); }, Code::invalid_argument, {"kv region 1", "5 items", "has 4"}},
      {[](Memory& m) { m.state[1].regions[1] = region(8, 4); },
       Code::invalid_argument,
       {"state component 1 region 1", "8 items", "has 9"}},
      {[](Memory& m) { m.state[0].regions.clear(); }, Code::invalid_argument, {"state component 0", "no region"}},
      {[](Memory& m) { m.state[0].name = "a,b"; },
       Code::invalid_argument,
       {"state component 0 (a,b)", "without a comma"}},
      {[](Memory& m) { m.state[0].name.assign(64, 'a'); }, Code::invalid_argument, {"state component 0", "at most 63"}},
      {[](Memory& m) { m.state[0].name = m.state[1].name = "mamba"; },
       Code::invalid_argument,
       {"state component 1 (mamba)", "an earlier one"}},
      {[](Memory& m) { m.state.resize(1'025, {{region()}}); }, Code::invalid_argument, {"1025", "at most 1024"}},
      {[](Memory& m) { m.kv[0].base = reinterpret_cast<void*>(~std::uintptr_t{0} - 8); },
       Code::invalid_argument,
       {"kv region 0", "end of the address space"}},
      {[=](Memory& m) { m.kv[0].length = too_many; }, Code::invalid_argument, {"kv region 0", "2147483648 items"}},
      {[](Memory& m) { m.kv[1].kind = MemoryKind::cuda; }, Code::unsupported, {"kv region 1", "host memory"}},
  };
  for (const MemoryCase& fault : cases) {
    Memory memory = good_memory();
    fault.spoil(memory);
    const auto checked = check_memory(memory);
    ASSERT_FALSE(checked) << fault.words.front();
    EXPECT_EQ(checked.error().code, fault.code) << checked.error().text;
    for (const std::string& word : fault.words) {
      EXPECT_NE(checked.error().text.find(word), std::string::npos) << word << " in: " << checked.error().text;
    }
  }
}

KvFormat good_format() {
  return {.dtype = "bfloat16", .page_tokens = 16, .layers = 2, .kv_heads = 8, .head_dim = 128, .mla = false};
}
Shape good_shape() { return shape_of(good_memory(), good_format(), {.tp = 2, .dp = 3, .pp = 1}); }

TEST(shape_of, tells_sizes_and_never_addresses) {
  const Shape shape = good_shape();
  EXPECT_EQ(shape.kv_item_bytes, (std::vector<std::uint64_t>{16, 32}));
  EXPECT_EQ(shape.aux_item_bytes, (std::vector<std::uint64_t>{8}));
  EXPECT_EQ(shape.state, (std::vector<StateShape>{{{8}}, {{8, 4}}}));
  EXPECT_EQ(shape.format, good_format());
  EXPECT_EQ(shape.parallel.tp, 2u);
}

TEST(check_pair, takes_what_fits) {
  EXPECT_TRUE(check_pair(good_shape(), good_shape()));
  Shape decode = good_shape();
  decode.parallel.dp = 9;
  EXPECT_TRUE(check_pair(good_shape(), decode)) << "dp groups need not be equally many";
}

TEST(check_pair, takes_pages_of_which_one_is_a_multiple_of_the_other) {
  Shape decode = good_shape();
  for (const std::uint32_t tokens : {1u, 4u, 8u, 32u, 64u}) {
    decode.format.page_tokens = tokens;
    EXPECT_TRUE(check_pair(good_shape(), decode)) << tokens;
    EXPECT_TRUE(check_pair(decode, good_shape())) << tokens;
  }
  decode.format.page_tokens = 0;
  EXPECT_FALSE(check_pair(good_shape(), decode));
}

TEST(pair_states, pairs_by_name_and_those_without_one_in_their_order) {
  Shape prefill = good_shape();
  prefill.state = {{{1}, "a"}, {{2}}, {{3}, "b", true}, {{4}}};
  Shape decode = good_shape();
  decode.state = {{{2}}, {{4}}, {{1}, "a"}, {{9}, "c", true}};
  const auto pairs = pair_states(prefill, decode);
  ASSERT_TRUE(pairs) << pairs.error().text;
  EXPECT_EQ(pairs->prefill, (std::vector<std::uint32_t>{0, 1, 3}));
  EXPECT_EQ(pairs->decode, (std::vector<std::uint32_t>{2, 0, 1}));
}

TEST(pair_states, one_that_only_one_side_has_must_be_optional_there) {
  Shape prefill = good_shape();
  prefill.state = {{{1}, "draft"}};
  Shape decode = good_shape();
  decode.state.clear();
  for (const bool swapped : {false, true}) {
    const auto pair = [&] { return swapped ? pair_states(decode, prefill) : pair_states(prefill, decode); };
    prefill.state[0].optional = false;
    const auto refused = pair();
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text.find(std::string("state component 0 (draft): only ") +
                                        (swapped ? "decode" : "prefill") + " has it"),
              std::string::npos)
        << refused.error().text;
    prefill.state[0].optional = true;
    EXPECT_TRUE(pair());
  }
}

TEST(check_pair, refuses_each_field_with_both_values) {
  struct Case {
    std::function<void(Shape&)> spoil;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases{
      {[](Shape& s) { s.format.dtype = "fp8"; }, {"dtype", "\"bfloat16\"", "\"fp8\""}},
      {[](Shape& s) { s.format.page_tokens = 24; }, {"page_tokens", "has 16", "has 24", "multiple"}},
      {[](Shape& s) { s.format.layers = 3; }, {"layers", "has 2", "has 3"}},
      {[](Shape& s) { s.format.kv_heads = 4; }, {"kv_heads", "has 8", "has 4"}},
      {[](Shape& s) { s.format.head_dim = 64; }, {"head_dim", "has 128", "has 64"}},
      {[](Shape& s) { s.format.mla = true; }, {"mla", "has false", "has true"}},
      {[](Shape& s) { s.format.order = PageOrder::head_token_dim; }, {"order", "token_head_dim", "head_token_dim"}},
      {[](Shape& s) { s.format.kv_joined = true; }, {"kv_joined", "has false", "has true"}},
      {[](Shape& s) { s.first_layer = 1; }, {"first_layer", "has 0", "has 1"}},
      {[](Shape& s) { s.parallel.tp = 3; }, {"multiple", "tp 2", "tp 3"}},
      {[](Shape& s) { s.parallel.dp = 0; }, {"at least 1", "dp 3", "dp 0"}},
      {[](Shape& s) { s.kv_item_bytes.push_back(1); }, {"kv regions", "has 2", "has 3"}},
      {[](Shape& s) { s.kv_item_bytes[1] = 64; }, {"kv region 1", "has 32", "has 64"}},
      {[](Shape& s) { s.aux_item_bytes.clear(); }, {"aux regions", "has 1", "has 0"}},
      {[](Shape& s) { s.aux_item_bytes[0] = 9; }, {"aux region 0", "has 8", "has 9"}},
      {[](Shape& s) { s.state.pop_back(); }, {"state component 1", "only ", "has 2", "has 1"}},
      {[](Shape& s) { s.state[1].item_bytes.pop_back(); }, {"state component 1 regions", "has 2", "has 1"}},
      {[](Shape& s) { s.state[1].item_bytes[1] = 5; }, {"state component 1 region 1", "has 4", "has 5"}},
  };
  for (const Case& fault : cases) {
    Shape decode = good_shape();
    fault.spoil(decode);
    for (const bool swapped : {false, true}) {
      const auto checked = swapped ? check_pair(decode, good_shape()) : check_pair(good_shape(), decode);
      ASSERT_FALSE(checked) << fault.words.front();
      EXPECT_EQ(checked.error().code, Code::mismatch);
      for (const std::string& word : fault.words) {
        EXPECT_NE(checked.error().text.find(word), std::string::npos) << word << " in: " << checked.error().text;
      }
    }
  }
}

}  // namespace
}  // namespace kvferry::layout
