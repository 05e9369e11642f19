#include "layout/view.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>

namespace kvferry::layout {
namespace {

struct Block {
  explicit Block(std::size_t items, std::size_t item_bytes) : bytes(items * item_bytes) {
    region = {bytes.data(), bytes.size(), item_bytes, MemoryKind::host};
  }
  std::vector<std::byte> bytes;
  Region region;
};

TEST(view, whole_items_are_the_pieces_of_the_region_itself) {
  EXPECT_TRUE(rc::check("the same pieces", [] {
    Block block(32, 24);
    const auto items = *rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(0, 32));
    std::vector<Piece> expected;
    append_pieces(block.region, items, expected);
    std::vector<Piece> pieces;
    append_pieces(ViewRegion::of(block.region), items, pieces);
    RC_ASSERT(pieces == expected);
  }));
}

TEST(view, a_cut_moves_its_strips_of_every_unit_and_nothing_else) {
  EXPECT_TRUE(rc::check("byte by byte", [] {
    const auto runs = *rc::gen::inRange<std::uint64_t>(1, 5);
    const auto bytes = *rc::gen::inRange<std::uint64_t>(1, 9);
    const auto stride = bytes + *rc::gen::inRange<std::uint64_t>(0, 9);
    const auto offset = *rc::gen::inRange<std::uint64_t>(0, 9);
    const auto units = *rc::gen::inRange<std::uint32_t>(1, 4);
    const std::uint64_t unit_step = offset + runs * stride;
    Block block(8, units * unit_step);
    const RegionCut cut{.region = 0, .units = units, .unit_step = unit_step, .strips = {{offset, bytes, stride, runs}}};
    const ViewRegion view = ViewRegion::of(block.region, cut);
    RC_ASSERT(view.unit_bytes == runs * bytes);
    RC_ASSERT(view.unit_count == 8u * units);
    RC_ASSERT(cut.reach() <= block.region.item_bytes);
    const auto list =
        *rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(0, static_cast<std::int32_t>(8 * units)));
    std::vector<std::byte*> expected;
    for (const std::int32_t unit : list) {
      std::byte* at = block.bytes.data() + static_cast<std::uint64_t>(unit) * unit_step + offset;
      for (std::uint64_t run = 0; run < runs; ++run, at += stride) {
        for (std::uint64_t i = 0; i < bytes; ++i) expected.push_back(at + i);
      }
    }
    std::vector<Piece> pieces;
    append_pieces(view, list, pieces);
    std::vector<std::byte*> seen;
    for (const Piece& piece : pieces) {
      for (std::size_t i = 0; i < piece.bytes; ++i) seen.push_back(piece.data + i);
    }
    RC_ASSERT(seen == expected);
    RC_ASSERT(pieces.size() <= list.size() * view.pieces);
  }));
}

TEST(view, sizes_saturate) {
  const ViewRegion huge{.unit_bytes = std::numeric_limits<std::uint64_t>::max() / 2};
  const std::vector<ViewRegion> regions{huge, huge};
  EXPECT_EQ(bytes_of(regions, 2), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(bytes_of(regions, 1), std::numeric_limits<std::uint64_t>::max() - 1);
}

}  // namespace
}  // namespace kvferry::layout
