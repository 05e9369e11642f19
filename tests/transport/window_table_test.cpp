#include "transport/window_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "support.h"
#include "transport/chunk_cursor.h"

namespace kvferry::transport {
namespace {

using protocol::DataHeader;
using protocol::DataKind;

struct Fixture {
  // Eight items; kv regions of 16 and 32 bytes an item, one aux region of 8.
  TestMemory memory{8, {16, 32}, {8}};
  layout::View view = layout::View::of(memory.memory);
  WindowTable table{view};
  Fixture() { EXPECT_TRUE(table.open(Window{session_1, transfer_1, 10, {{0, {5, 4, 7, 0}}, {1, {2}}}})); }
  static DataHeader bytes(std::uint64_t begin, std::uint64_t end, std::uint32_t region, std::uint64_t payload) {
    return {DataKind::bytes, false, transfer_1, 0, 0, begin, end, region, region + 1, payload};
  }
  static DataHeader end(std::uint64_t begin, std::uint64_t last, std::uint32_t regions) {
    return {DataKind::end, false, transfer_1, 0, 0, begin, last, 0, regions, 0};
  }
};

TEST(WindowTable, a_frame_inside_its_window_is_placed_at_the_granted_items) {
  Fixture f;
  const auto target = f.table.on_bytes(Fixture::bytes(11, 13, 0, 32));
  ASSERT_TRUE(target && *target);
  EXPECT_EQ((*target)->items[0], 4);
  EXPECT_EQ((*target)->items[1], 7);
  EXPECT_EQ((*target)->regions.data(), f.view.regions(0).data());
}

TEST(WindowTable, positions_outside_the_grant_are_refused_with_both_ranges) {
  Fixture f;
  const auto before = f.table.on_bytes(Fixture::bytes(9, 11, 0, 32));
  ASSERT_FALSE(before);
  EXPECT_EQ(before.error().code, Code::out_of_range);
  EXPECT_NE(before.error().text.find("9 to 11"), std::string::npos) << before.error().text;
  EXPECT_NE(before.error().text.find("10 to 14"), std::string::npos) << before.error().text;
  Fixture g;
  EXPECT_FALSE(g.table.on_bytes(Fixture::bytes(13, 15, 0, 32)));
  Fixture h;
  EXPECT_FALSE(h.table.on_bytes(Fixture::bytes(UINT64_MAX - 1, UINT64_MAX, 0, 16)));
}

TEST(WindowTable, regions_components_and_lengths_that_do_not_fit_are_refused) {
  EXPECT_FALSE(Fixture().table.on_bytes(Fixture::bytes(10, 11, 2, 16)));
  EXPECT_FALSE(Fixture().table.on_bytes(Fixture::bytes(10, 11, 0, 17)));
  auto foreign = Fixture::bytes(10, 11, 0, 16);
  foreign.component = 7;
  EXPECT_FALSE(Fixture().table.on_bytes(foreign));
  auto early_aux = Fixture::bytes(0, 1, 0, 8);
  early_aux.component = 1;
  EXPECT_FALSE(Fixture().table.on_bytes(early_aux)) << "aux comes with the last chunk alone";
}

TEST(WindowTable, after_a_refusal_the_transfer_is_dropped) {
  Fixture f;
  ASSERT_FALSE(f.table.on_bytes(Fixture::bytes(9, 11, 0, 32)));
  const auto next = f.table.on_bytes(Fixture::bytes(10, 11, 0, 16));
  ASSERT_TRUE(next);
  EXPECT_FALSE(*next);
  EXPECT_EQ(f.table.frames_dropped(), 1u);
}

TEST(WindowTable, frames_without_a_window_are_dropped_and_counted) {
  Fixture f;
  auto header = Fixture::bytes(10, 11, 0, 16);
  header.transfer = transfer_2;
  const auto target = f.table.on_bytes(header);
  ASSERT_TRUE(target);
  EXPECT_FALSE(*target);
  EXPECT_EQ(f.table.frames_dropped(), 1u);
}

TEST(WindowTable, a_chunk_ends_only_when_every_byte_came_once) {
  Fixture f;
  ASSERT_TRUE(f.table.on_bytes(Fixture::bytes(10, 12, 0, 32)));
  ASSERT_TRUE(f.table.on_bytes(Fixture::bytes(10, 12, 1, 64)));
  const auto placed = f.table.on_end(Fixture::end(10, 12, 2));
  ASSERT_TRUE(placed && *placed);
  EXPECT_FALSE((*placed)->with_aux);

  Fixture missing;
  ASSERT_TRUE(missing.table.on_bytes(Fixture::bytes(10, 12, 0, 32)));
  EXPECT_FALSE(missing.table.on_end(Fixture::end(10, 12, 2)));
  Fixture nothing;
  EXPECT_FALSE(nothing.table.on_end(Fixture::end(10, 12, 2)));
  Fixture twice;
  ASSERT_TRUE(twice.table.on_bytes(Fixture::bytes(10, 12, 0, 32)));
  EXPECT_FALSE(twice.table.on_bytes(Fixture::bytes(11, 13, 0, 32)));
  Fixture gap;
  ASSERT_TRUE(gap.table.on_bytes(Fixture::bytes(10, 11, 0, 16)));
  EXPECT_FALSE(gap.table.on_bytes(Fixture::bytes(12, 13, 0, 16)));
}

TEST(WindowTable, a_chunk_does_not_come_twice) {
  Fixture f;
  ASSERT_TRUE(f.table.on_bytes(Fixture::bytes(10, 12, 0, 32)));
  ASSERT_TRUE(f.table.on_end(Fixture::end(10, 12, 1)));
  EXPECT_FALSE(f.table.on_bytes(Fixture::bytes(10, 12, 0, 32)));
}

TEST(WindowTable, nothing_follows_the_last_chunk) {
  Fixture f;
  auto last = Fixture::end(10, 11, 2);
  last.last = true;
  ASSERT_TRUE(*f.table.on_bytes(Fixture::bytes(10, 11, 0, 16)));
  ASSERT_TRUE(*f.table.on_bytes(Fixture::bytes(10, 11, 1, 32)));
  ASSERT_TRUE(*f.table.on_end(last));
  auto more = Fixture::bytes(11, 12, 0, 16);
  more.number = 1;
  const auto placed = f.table.on_bytes(more);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, Code::protocol);
  EXPECT_FALSE(f.table.is_open(transfer_1));
}

TEST(WindowTable, an_empty_last_chunk_brings_aux) {
  Fixture f;
  auto aux = Fixture::bytes(0, 1, 0, 8);
  aux.component = 1;
  aux.last = true;
  ASSERT_TRUE(f.table.on_bytes(aux));
  auto end = Fixture::end(10, 10, 2);
  end.last = true;
  const auto placed = f.table.on_end(end);
  ASSERT_TRUE(placed && *placed);
  EXPECT_TRUE((*placed)->with_aux);
}

TEST(WindowTable, a_window_closes_when_the_last_copy_into_it_has_ended) {
  Fixture f;
  f.table.copy_began(transfer_1);
  f.table.copy_began(transfer_1);
  EXPECT_EQ(f.table.close(transfer_1), WindowTable::Closed::after_copies);
  EXPECT_FALSE(f.table.is_open(transfer_1));
  EXPECT_FALSE(f.table.copy_ended(transfer_1));
  EXPECT_TRUE(f.table.copy_ended(transfer_1));
  EXPECT_EQ(f.table.close(transfer_1), WindowTable::Closed::now);
}

TEST(WindowTable, windows_outside_of_the_memory_do_not_open) {
  Fixture f;
  EXPECT_FALSE(f.table.open(Window{session_1, transfer_2, 0, {{0, {8}}}}));
  EXPECT_FALSE(f.table.open(Window{session_1, transfer_2, 0, {{0, {-1}}}}));
  EXPECT_FALSE(f.table.open(Window{session_1, transfer_2, 0, {{9, {0}}}}));
  EXPECT_EQ(f.table.open(Window{session_1, transfer_1, 0, {}}).error().code, Code::already_exists);
}

TEST(WindowTable, every_way_to_cut_a_chunk_is_accepted_in_order_and_refused_out_of_it) {
  const bool held = rc::check("cut, accepted, complete", [] {
    const auto regions = *rc::gen::inRange<std::size_t>(1, 5);
    const auto count = *rc::gen::inRange<std::size_t>(1, 20);
    std::vector<std::size_t> sizes;
    for (std::size_t r = 0; r < regions; ++r) sizes.push_back(*rc::gen::element<std::size_t>(8, 64, 512));
    TestMemory memory(32, sizes);
    ChunkOrder order{session_1, transfer_1, {0, 3, 3 + count, 0, static_cast<std::uint32_t>(regions), false}, {}};
    order.lists.push_back({0, shuffled(count, 32, 1)});
    const layout::View view = layout::View::of(memory.memory);
    RC_ASSERT(settle_order(view, order).has_value());
    ChunkCursor cursor(view, order);
    const auto bytes_max = *rc::gen::element<std::uint64_t>(1, 100, 700, 5000);
    const auto pieces_max = *rc::gen::inRange<std::size_t>(1, 40);
    std::vector<DataHeader> frames;
    std::uint64_t bytes = 0;
    while (!cursor.done()) {
      const Part part = cursor.next(bytes_max, pieces_max);
      RC_ASSERT(part.pieces >= 1u);
      RC_ASSERT(part.pieces == 1u || (part.bytes <= bytes_max && part.pieces <= pieces_max));
      bytes += part.bytes;
      frames.push_back({DataKind::bytes, false, transfer_1, 0, 0, 3 + part.item_begin, 3 + part.item_end,
                        part.region_begin, part.region_end, part.bytes});
    }
    RC_ASSERT(bytes == cursor.bytes());
    const DataHeader end{
        DataKind::end, false, transfer_1, 0, 0, 3, 3 + count, 0, static_cast<std::uint32_t>(regions), 0};
    WindowTable good(view);
    RC_ASSERT(good.open(Window{session_1, transfer_1, 0, {{0, shuffled(32, 32, 2)}}}).has_value());
    for (const auto& frame : frames) RC_ASSERT(good.on_bytes(frame).has_value());
    RC_ASSERT(good.on_end(end).has_value());
    // One frame less, or one twice, must not pass.
    const auto at = *rc::gen::inRange<std::size_t>(0, frames.size());
    const bool twice = *rc::gen::arbitrary<bool>();
    if (twice) {
      frames.insert(frames.begin() + static_cast<std::ptrdiff_t>(at), frames[at]);
    } else {
      frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(at));
    }
    WindowTable bad(view);
    RC_ASSERT(bad.open(Window{session_1, transfer_1, 0, {{0, shuffled(32, 32, 2)}}}).has_value());
    bool refused = false;
    for (const auto& frame : frames) refused = refused || !bad.on_bytes(frame);
    refused = refused || !bad.on_end(end);
    RC_ASSERT(refused);
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace kvferry::transport
