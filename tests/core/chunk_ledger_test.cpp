#include "core/chunk_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kvferry::Code;
using kvferry::core::ChunkLedger;
using kvferry::protocol::ChunkSpan;
using testing::HasSubstr;

constexpr std::size_t many = 100;

ChunkSpan chunk(std::uint32_t number, std::uint64_t begin, std::uint64_t end, bool last, std::uint32_t region_begin = 0,
                std::uint32_t region_end = 2) {
  return {number, begin, end, region_begin, region_end, last};
}

void come(ChunkLedger& ledger, const ChunkSpan& span) {
  const auto announced = ledger.announce(span, many);
  ASSERT_TRUE(announced) << announced.error().text;
  const auto landed = ledger.land(span);
  ASSERT_TRUE(landed) << landed.error().text;
}

TEST(chunk_ledger, is_complete_when_the_last_chunk_and_every_part_have_landed) {
  ChunkLedger ledger({2, 10}, 2);
  come(ledger, chunk(0, 2, 6, false));
  EXPECT_FALSE(ledger.complete());
  come(ledger, chunk(1, 6, 10, true));
  EXPECT_TRUE(ledger.complete());
}

TEST(chunk_ledger, an_announced_last_chunk_is_not_a_landed_one) {
  ChunkLedger ledger({0, 4}, 2);
  ASSERT_TRUE(ledger.announce(chunk(0, 0, 4, true), many));
  EXPECT_FALSE(ledger.complete());
  EXPECT_TRUE(ledger.announced(0));
  EXPECT_FALSE(ledger.announced(1));
}

TEST(chunk_ledger, chunks_may_land_out_of_order) {
  ChunkLedger ledger({0, 4}, 2);
  ASSERT_TRUE(ledger.announce(chunk(1, 2, 4, true), many));
  ASSERT_TRUE(ledger.announce(chunk(0, 0, 2, false), many));
  ASSERT_TRUE(ledger.land(chunk(1, 2, 4, true)));
  EXPECT_FALSE(ledger.complete());
  ASSERT_TRUE(ledger.land(chunk(0, 0, 2, false)));
  EXPECT_TRUE(ledger.complete());
}

TEST(chunk_ledger, an_empty_last_chunk_ends_a_room_without_pages) {
  ChunkLedger ledger({5, 5}, 2);
  EXPECT_FALSE(ledger.complete());
  come(ledger, chunk(0, 5, 5, true));
  EXPECT_TRUE(ledger.complete());
}

TEST(chunk_ledger, layers_may_come_one_by_one) {
  ChunkLedger ledger({0, 4}, 2);
  come(ledger, chunk(0, 0, 4, false, 0, 1));
  come(ledger, chunk(1, 0, 4, true, 1, 2));
  EXPECT_TRUE(ledger.complete());
}

TEST(chunk_ledger, positions_within_the_slack_may_stay_away_in_all_regions_alike) {
  ChunkLedger whole({0, 8}, 2, 3);
  come(whole, chunk(0, 0, 5, true));
  EXPECT_TRUE(whole.complete());
  EXPECT_EQ(whole.positions(), 5u);
  EXPECT_EQ(whole.leading_regions(), 2u);
  ChunkLedger short_of_one({0, 8}, 2, 3);
  come(short_of_one, chunk(0, 0, 4, true));
  EXPECT_FALSE(short_of_one.complete());
  ChunkLedger uneven({0, 8}, 2, 3);
  come(uneven, chunk(0, 0, 6, false, 0, 1));
  come(uneven, chunk(1, 0, 5, true, 1, 2));
  EXPECT_FALSE(uneven.complete());
}

TEST(chunk_ledger, regions_count_once_all_of_their_positions_have_landed_from_the_first_on) {
  ChunkLedger ledger({0, 4}, 3);
  come(ledger, chunk(0, 0, 4, false, 1, 2));
  EXPECT_EQ(ledger.leading_regions(), 0u);
  ASSERT_TRUE(ledger.announce(chunk(1, 0, 4, false, 0, 1), many));
  EXPECT_EQ(ledger.leading_regions(), 0u);
  ASSERT_TRUE(ledger.land(chunk(1, 0, 4, false, 0, 1)));
  EXPECT_EQ(ledger.leading_regions(), 2u);
}

TEST(chunk_ledger, a_last_chunk_leaves_open_what_was_never_sent) {
  ChunkLedger ledger({0, 4}, 2);
  come(ledger, chunk(0, 0, 3, true));
  EXPECT_FALSE(ledger.complete());
  EXPECT_EQ(ledger.missing(), "2 of 8 page copies (4 pages in 2 regions)");
}

TEST(chunk_ledger, a_chunk_outside_of_the_grant_is_refused_with_both_ranges) {
  ChunkLedger ledger({2, 10}, 2);
  const auto refused = ledger.announce(chunk(0, 2, 11, true), many);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::out_of_range);
  EXPECT_EQ(refused.error().text,
            "chunk 0 covers pages [2, 11) of regions [0, 2), but pages [2, 10) of 2 regions were granted");
  EXPECT_FALSE(ledger.announce(chunk(0, 1, 3, false), many));
  EXPECT_FALSE(ledger.announce(chunk(0, 4, 3, false), many));
  EXPECT_FALSE(ledger.announce(chunk(0, 2, 3, false, 0, 3), many));
  EXPECT_FALSE(ledger.announce(chunk(0, 2, 3, false, 2, 1), many));
  EXPECT_TRUE(ledger.empty());
}

TEST(chunk_ledger, no_part_and_no_number_comes_twice) {
  ChunkLedger ledger({0, 10}, 2);
  ASSERT_TRUE(ledger.announce(chunk(0, 0, 5, false), many));
  const auto overlap = ledger.announce(chunk(1, 4, 6, false), many);
  ASSERT_FALSE(overlap);
  EXPECT_EQ(overlap.error().text,
            "chunk 1 covers pages [4, 6) of regions [0, 2), some of which an earlier one covers already");
  const auto twice = ledger.announce(chunk(0, 5, 6, false), many);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().text, "chunk 0 was sent twice or after its last one");
}

TEST(chunk_ledger, an_empty_chunk_covers_nothing_wherever_it_stands) {
  ChunkLedger ledger({0, 10}, 2);
  come(ledger, chunk(1, 0, 10, false));
  come(ledger, chunk(0, 5, 5, false));
  come(ledger, chunk(2, 10, 10, true));
  EXPECT_TRUE(ledger.complete());
}

TEST(chunk_ledger, nothing_comes_after_the_last_chunk) {
  ChunkLedger ledger({0, 10}, 2);
  ASSERT_TRUE(ledger.announce(chunk(1, 5, 10, true), many));
  const auto after = ledger.announce(chunk(2, 0, 5, false), many);
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().code, Code::protocol);
  EXPECT_EQ(after.error().text, "chunk 2 comes after the last chunk, 1");
  EXPECT_FALSE(ledger.announce(chunk(0, 0, 5, true), many)) << "there is one last chunk";
  EXPECT_TRUE(ledger.announce(chunk(0, 0, 5, false), many));
}

TEST(chunk_ledger, a_last_chunk_with_a_number_below_another_is_refused) {
  ChunkLedger ledger({0, 10}, 2);
  ASSERT_TRUE(ledger.announce(chunk(3, 0, 5, false), many));
  EXPECT_FALSE(ledger.announce(chunk(1, 5, 10, true), many));
}

TEST(chunk_ledger, chunks_are_bounded) {
  ChunkLedger ledger({0, 10}, 2);
  ASSERT_TRUE(ledger.announce(chunk(0, 0, 1, false), 1));
  const auto refused = ledger.announce(chunk(1, 1, 2, false), 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text, "more than 1 chunks in one transfer");
}

TEST(chunk_ledger, only_what_was_announced_lands_and_only_once) {
  ChunkLedger ledger({0, 10}, 2);
  const auto unknown = ledger.land(chunk(0, 0, 5, false));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().text, "chunk 0 landed without having been announced so");
  ASSERT_TRUE(ledger.announce(chunk(0, 0, 5, false), many));
  EXPECT_FALSE(ledger.land(chunk(0, 0, 6, false)));
  EXPECT_TRUE(ledger.land(chunk(0, 0, 5, false)));
  EXPECT_FALSE(ledger.land(chunk(0, 0, 5, false)));
}

TEST(chunk_ledger, numbers_that_were_left_out_are_missing) {
  ChunkLedger ledger({0, 4}, 2);
  come(ledger, chunk(0, 0, 2, false));
  come(ledger, chunk(2, 2, 4, true));
  EXPECT_FALSE(ledger.complete());
}

}  // namespace
