#include "layout/pages.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/assert.h"
#include "page_lists.h"

namespace kvferry::layout {
namespace {

using Runs = std::vector<Run>;  // inside a test, Run is GoogleTest's

Runs naive_runs(const PageLists& lists) {
  Runs runs;
  for (std::size_t i = 0; i < lists.source.size(); ++i) {
    const auto source = static_cast<std::uint32_t>(lists.source[i]);
    const auto target = static_cast<std::uint32_t>(lists.target[i]);
    if (!runs.empty() && source == runs.back().source + runs.back().count &&
        target == runs.back().target + runs.back().count) {
      ++runs.back().count;
    } else {
      runs.push_back({source, target, 1});
    }
  }
  return runs;
}

Runs runs_of(const PageLists& lists) {
  Runs runs;
  merge_runs(lists.source, lists.target, runs);
  return runs;
}

Region region_at(std::byte* base, std::size_t items, std::size_t item_bytes) {
  return {.base = base, .length = items * item_bytes, .item_bytes = item_bytes};
}

TEST(merge_runs, gives_what_the_plain_loop_gives) {
  EXPECT_TRUE(rc::check("merge_runs == naive", [] {
    const PageLists lists = draw_lists(20);
    RC_ASSERT(runs_of(lists) == naive_runs(lists));
  }));
}

TEST(merge_runs, copies_every_pair_once_in_order_with_the_fewest_runs) {
  EXPECT_TRUE(rc::check("expansion is the input, neighbours cannot be joined", [] {
    const PageLists lists = draw_lists(20);
    const Runs runs = runs_of(lists);
    PageLists expanded;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      RC_ASSERT(runs[r].count > 0u);
      if (r > 0) {
        const auto& before = runs[r - 1];
        RC_ASSERT(before.source + before.count != runs[r].source || before.target + before.count != runs[r].target);
      }
      for (std::uint32_t i = 0; i < runs[r].count; ++i) {
        expanded.source.push_back(static_cast<std::int32_t>(runs[r].source + i));
        expanded.target.push_back(static_cast<std::int32_t>(runs[r].target + i));
      }
    }
    RC_ASSERT(expanded.source == lists.source);
    RC_ASSERT(expanded.target == lists.target);
  }));
}

TEST(merge_runs, every_length_around_the_width_of_a_block_is_right) {
  for (std::size_t size = 0; size <= 200; ++size) {
    PageLists one_run;
    PageLists scattered;
    for (std::size_t i = 0; i < size; ++i) {
      one_run.source.push_back(static_cast<std::int32_t>(i + 5));
      one_run.target.push_back(static_cast<std::int32_t>(i));
      scattered.source.push_back(static_cast<std::int32_t>(2 * i));
      scattered.target.push_back(static_cast<std::int32_t>(i));
    }
    EXPECT_EQ(runs_of(one_run).size(), size == 0 ? 0u : 1u);
    EXPECT_EQ(runs_of(one_run), naive_runs(one_run));
    EXPECT_EQ(runs_of(scattered).size(), size);
    EXPECT_EQ(runs_of(scattered), naive_runs(scattered));
  }
}

TEST(merge_runs, a_break_at_any_place_is_found) {
  for (std::size_t at = 1; at < 140; ++at) {
    PageLists lists;
    for (std::size_t i = 0; i < 140; ++i) {
      lists.source.push_back(static_cast<std::int32_t>(i));
      lists.target.push_back(static_cast<std::int32_t>(i >= at ? i + 1 : i));
    }
    const auto rest = static_cast<std::uint32_t>(140 - at);
    const auto begin = static_cast<std::uint32_t>(at);
    EXPECT_EQ(runs_of(lists), (Runs{{0, 0, begin}, {begin, begin + 1, rest}}));
  }
}

TEST(merge_runs, what_is_in_the_output_stays) {
  Runs runs{{1, 1, 1}};
  const std::vector<std::int32_t> pages{2, 3};
  merge_runs(pages, pages, runs);
  EXPECT_EQ(runs, (Runs{{1, 1, 1}, {2, 2, 2}}));
}

TEST(merge_runs, lists_of_different_length_are_our_own_fault) {
  Runs runs;
  const std::vector<std::int32_t> one{1};
  EXPECT_THROW(merge_runs(one, {}, runs), AssertionFailed);
}

TEST(append_pieces, covers_every_item_once_in_order) {
  EXPECT_TRUE(rc::check("pieces expand to the items", [] {
    constexpr std::size_t items = 400;
    const std::size_t item_bytes = *rc::gen::inRange<std::size_t>(1, 9);
    std::vector<std::byte> memory(items * item_bytes);
    const Region region = region_at(memory.data(), items, item_bytes);
    std::vector<std::int32_t> indices;
    const int stretches = *rc::gen::inRange(0, 8);
    for (int i = 0; i < stretches; ++i) {
      const int begin = *rc::gen::inRange(0, static_cast<int>(items));
      const int end = *rc::gen::inRange(begin, std::min(begin + 150, static_cast<int>(items)));
      for (int k = begin; k < end; ++k) indices.push_back(k);
    }
    std::vector<Piece> pieces;
    append_pieces(region, indices, pieces);
    std::vector<std::int32_t> expanded;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      RC_ASSERT(pieces[p].bytes > 0u && pieces[p].bytes % item_bytes == 0);
      if (p > 0) RC_ASSERT(pieces[p - 1].data + pieces[p - 1].bytes != pieces[p].data);
      const auto first = static_cast<std::size_t>(pieces[p].data - memory.data()) / item_bytes;
      for (std::size_t i = 0; i < pieces[p].bytes / item_bytes; ++i) {
        expanded.push_back(static_cast<std::int32_t>(first + i));
      }
    }
    RC_ASSERT(expanded == indices);
  }));
}

TEST(append_pieces, a_piece_that_goes_on_where_the_last_one_ended_is_the_same_piece) {
  std::vector<std::byte> memory(100);
  const Region region = region_at(memory.data(), 10, 10);
  std::vector<Piece> pieces;
  const auto append = [&](std::vector<std::int32_t> items) { append_pieces(region, items, pieces); };
  append({2, 3});
  append({4, 7});
  append({});
  append({8});
  append({8});
  EXPECT_EQ(pieces, (std::vector<Piece>{{memory.data() + 20, 30}, {memory.data() + 70, 20}, {memory.data() + 80, 10}}));
}

TEST(components, are_found_by_their_number) {
  Memory memory;
  memory.kv.resize(3);
  memory.aux.resize(2);
  memory.state.resize(2);
  memory.state[1].regions.resize(5);
  EXPECT_EQ(component_count(memory), 4u);
  EXPECT_EQ(component_regions(memory, component_kv).size(), 3u);
  EXPECT_EQ(component_regions(memory, component_aux).size(), 2u);
  EXPECT_EQ(component_regions(memory, component_state).size(), 0u);
  EXPECT_EQ(component_regions(memory, component_state + 1).size(), 5u);
  EXPECT_TRUE(component_regions(memory, component_state + 2).empty());
  EXPECT_TRUE(component_regions(memory, std::numeric_limits<std::uint32_t>::max()).empty());
}

TEST(bytes_of, adds_up_and_stops_at_the_largest_value) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  const std::vector<Region> regions(3, Region{.base = nullptr, .length = 0, .item_bytes = 1'000});
  EXPECT_EQ(bytes_of(regions, 7), 21'000u);
  EXPECT_EQ(bytes_of({}, most), 0u);
  EXPECT_EQ(bytes_of(regions, most), most);
  EXPECT_EQ(bytes_of(regions, most / 2'500), most) << "the sum overflows, no single product does";
  EXPECT_EQ(bytes_of(regions, most / 3'000), most / 3'000 * 3'000);
}

TEST(check_items, takes_exactly_what_is_there) {
  EXPECT_TRUE(rc::check("check_items == every index in range", [] {
    const auto items = *rc::gen::oneOf(rc::gen::inRange<std::size_t>(0, 50),
                                       rc::gen::element<std::size_t>(1u << 31, (1u << 31) - 1, 1ull << 40));
    const auto index = rc::gen::oneOf(rc::gen::inRange<std::int32_t>(0, 50), rc::gen::arbitrary<std::int32_t>(),
                                      rc::gen::element(-1, 2'147'483'647, -2'147'483'647 - 1));
    const auto indices = *rc::gen::container<std::vector<std::int32_t>>(index);
    const bool expected =
        std::ranges::all_of(indices, [&](std::int32_t i) { return i >= 0 && static_cast<std::size_t>(i) < items; });
    RC_ASSERT(check_items(indices, items, "page").has_value() == expected);
  }));
}

TEST(check_items, names_the_first_index_that_is_outside) {
  const std::vector<std::int32_t> high{3, 9, 10, -1};
  const auto bad = check_items(high, 10, "page");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::out_of_range);
  EXPECT_EQ(bad.error().text, "page 10 (entry 2 of 4) does not exist; there are 10 (0 to 9)");
  const std::vector<std::int32_t> negative{-7};
  EXPECT_NE(check_items(negative, 10, "aux slot").error().text.find("aux slot -7"), std::string::npos);
  const std::vector<std::int32_t> zero{0};
  EXPECT_EQ(check_items(zero, 0, "page").error().text, "page 0 (entry 0 of 1) does not exist; there are 0");
}

}  // namespace
}  // namespace kvferry::layout
