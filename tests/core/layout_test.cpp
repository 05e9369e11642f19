// Rooms whose two sides are built differently: pages of other sizes, layers that come one by one or not at all, state
// components that only one side has.
#include "core/rig.h"

namespace kvferry::core {
namespace {

// Two layers of one 8-byte head a token, K and V apart.
layout::Shape shape_of_pages(std::uint32_t page_tokens, std::uint32_t layers = 2) {
  layout::Shape shape;
  shape.format = {.dtype = "uint64", .page_tokens = page_tokens, .layers = 2, .kv_heads = 1, .head_dim = 1};
  shape.kv_item_bytes.assign(std::size_t{layers} * 2, std::uint64_t{page_tokens} * 8);
  return shape;
}
layout::Pairing pair_pages(std::uint32_t prefill_tokens, std::uint32_t decode_tokens) {
  return *layout::pair_ranks({shape_of_pages(prefill_tokens), {}}, {shape_of_pages(decode_tokens), {}});
}

SenderRig linked_sender(layout::Pairing pairing) {
  SenderRig rig;
  rig.link_paired(1, SenderRig::identity(1), DataPath::push, std::move(pairing));
  return rig;
}

TEST(layouts, pages_of_decode_that_are_larger_are_filled_from_several_of_prefill) {
  SenderRig rig = linked_sender(pair_pages(16, 64));
  rig.open(7, 7);
  EXPECT_THAT(rig.grant(1, 7, 70, 3, 1), Contains("handle 7 prefix 4"));
  EXPECT_THAT(rig.init(7, 6), IsEmpty()) << "two pages of decode's, the last of them half filled";
  EXPECT_THAT(rig.send(7, {10, 11, 12}), Contains("move 1 transfer 70 chunk 0 [4, 7) regions [0, 4) 0:{10 11 12}"));
  EXPECT_THAT(rig.send(7, {20, 21, 22}),
              Contains("move 1 transfer 70 chunk 1 [7, 10) regions [0, 4) last 0:{20 21 22}"));
}

TEST(layouts, a_page_of_decode_that_would_stay_empty_is_a_mismatch) {
  SenderRig rig = linked_sender(pair_pages(16, 64));
  rig.open(7, 7);
  rig.grant(1, 7, 70, 3, 1);
  EXPECT_THAT(rig.init(7, 4), Contains(HasSubstr("prefill announced 4 pages, decode granted 3 pages of which it holds "
                                                 "the first 1, this rank's part is 5 to 8 of its pages")));
}

TEST(layouts, pages_of_prefill_that_are_larger_are_cut) {
  SenderRig rig = linked_sender(pair_pages(64, 16));
  rig.open(7, 7);
  EXPECT_THAT(rig.grant(1, 7, 70, 11, 6), Contains("handle 7 prefix 1")) << "decode holds half of the second page";
  rig.init(7, 2);
  EXPECT_THAT(rig.send(7, {5, 9}),
              Contains("move 1 transfer 70 chunk 0 [6, 11) regions [0, 4) last 0:{22 23 36 37 38}"));
}

TEST(layouts, layers_are_sent_one_by_one_in_any_order) {
  SenderRig rig = linked_sender(pair_pages(16, 16));
  rig.ready(7, 7, 1, 70, 3);
  EXPECT_THAT(rig.send_layers(7, {1, 2}, 0, {0, 1}), Contains("move 1 transfer 70 chunk 0 [0, 2) 0:{1 2}"));
  EXPECT_THAT(rig.send_layers(7, {3}, 2, {1, 2}), Contains("move 1 transfer 70 chunk 1 [2, 3) regions [2, 4) 0:{3}"));
  EXPECT_THAT(rig.send_layers(7, {1, 2}, 0, {1, 2}),
              Contains("move 1 transfer 70 chunk 2 [0, 2) regions [2, 4) 0:{1 2}"));
  EXPECT_THAT(rig.send_layers(7, {3}, 2, {0, 1}, true), Contains("move 1 transfer 70 chunk 3 [2, 3) last 0:{3}"));
}

TEST(layouts, a_rank_gets_the_chunks_of_its_layers_with_numbers_of_its_own_and_the_end) {
  layout::Shape all = shape_of_pages(16);
  all.parallel.pp = 1;
  layout::Shape stage = shape_of_pages(16, 1);
  stage.first_layer = 1;
  stage.parallel.pp = 2;
  // The room's other decode rank holds all layers: a pair that no engine has, and the core does not mind.
  const auto half = layout::pair_ranks({stage, {.pp = 1}}, {all, {}});
  ASSERT_TRUE(half);
  SenderRig rig = linked_sender(pair_pages(16, 16));
  rig.link_paired(2, SenderRig::identity(2), DataPath::push, *half);
  rig.open(7, 7);
  for (const std::uint64_t session : {1, 2}) {
    auto grant = SenderRig::make_grant(7, 70 + session, 1);
    grant.grants_awaited = 2;
    rig.hear(session, grant);
  }
  rig.init(7, 1);
  EXPECT_THAT(rig.send_layers(7, {4}, 0, {0, 1}),
              ElementsAre("handle 7 took 1", "handle 7 is transferring", "move 1 transfer 71 chunk 0 [0, 1) 0:{4}"));
  EXPECT_THAT(rig.send_layers(7, {4}, 0, {1, 2}, true),
              ElementsAre("handle 7 took 1", "move 1 transfer 71 chunk 1 [0, 1) regions [2, 4) last 0:{4}",
                          "move 2 transfer 72 chunk 0 [0, 1) last 0:{4}"));
}

TEST(layouts, the_sum_is_of_all_positions_whatever_order_they_were_sent_in) {
  SenderRig rig = linked_sender(pair_pages(64, 16));
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 7, 1);
  grant.verify = true;
  rig.hear(1, grant);
  rig.init(7, 2);
  rig.send_layers(7, {9}, 1, layout::every_layer);
  EXPECT_THAT(rig.send_layers(7, {5}, 0, layout::every_layer, true),
              Contains("sum 1 transfer 70 0:{21 22 23 36 37 38}"));
}

TEST(layouts, state_components_are_those_that_both_sides_have) {
  layout::Shape prefill = small_shape();
  prefill.state = {{{8}, "window", true}, {{20}, "mamba"}};
  layout::Shape decode = small_shape();
  decode.state = {{{20}, "mamba"}, {{4}, "draft", true}};
  const auto pairing = layout::pair_ranks({prefill, {}}, {decode, {}});
  ASSERT_TRUE(pairing);
  SenderRig sender = linked_sender(*pairing);
  sender.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.state_items = {2};
  sender.hear(1, grant);
  sender.init(7, 1);
  EXPECT_THAT(sender.send(7, {1}, {{3}, {8, 9}}), Contains("move 1 transfer 70 chunk 0 [0, 1) last 0:{1} 2:{8 9}"));

  ReceiverRig receiver(no_inline(), decode);
  receiver.open(7, 7);
  receiver.sizes();
  receiver.route(1);
  receiver.up_paired(1, 1, DataPath::push, ReceiverRig::key(), *pairing);
  EXPECT_THAT(receiver.init(7, {4}, {}, 0, {{5, 6}, {1}}),
              ElementsAre("open window 1 transfer 70 from 0 0:{4} 2:{5 6}",
                          "send 1: grant room 7 transfer 70 pages [0, 1) state 2"));
}

ReceiverRig linked_receiver(std::uint32_t prefill_tokens, std::uint32_t decode_tokens, const Limits& limits) {
  ReceiverRig rig(limits, shape_of_pages(decode_tokens));
  rig.open(7, 7);
  rig.sizes();
  rig.route(1);
  rig.up_paired(1, 1, DataPath::push, ReceiverRig::key(), pair_pages(prefill_tokens, decode_tokens));
  return rig;
}

protocol::ChunkSpan span(std::uint32_t chunk, std::uint64_t begin, std::uint64_t end, std::uint32_t region_begin,
                         std::uint32_t region_end, bool last = false) {
  return {chunk, begin, end, region_begin, region_end, last};
}

TEST(layouts, the_last_page_of_decode_may_be_partly_filled_and_is_summed_up_as_far_as_it_is) {
  ReceiverRig rig = linked_receiver(16, 64, verifying());
  EXPECT_THAT(rig.init(7, {3, 8}, {}, 1), Contains("open window 1 transfer 70 from 4 0:{12 13 14 15 32 33 34 35}"));
  EXPECT_THAT(rig.placed(70, span(0, 4, 10, 0, 4, true)), Contains("close window 1 transfer 70"));
  EXPECT_THAT(rig.window_closed(70), ElementsAre("sum 1 transfer 70 0:{12 13 14 15 32 33}"));
}

TEST(layouts, a_page_of_decode_that_stays_empty_fails_the_room) {
  ReceiverRig rig = linked_receiver(16, 64, no_inline());
  rig.init(7, {3, 8});
  EXPECT_THAT(rig.placed(70, span(0, 0, 4, 0, 4, true)),
              Contains(HasSubstr("the last chunk came, but 16 of 32 page copies")));
}

TEST(layouts, layers_that_are_whole_are_told_as_they_come) {
  ReceiverRig rig = linked_receiver(16, 16, no_inline());
  rig.init(7, {3, 8});
  EXPECT_THAT(rig.placed(70, span(0, 0, 2, 2, 4)), Not(Contains(HasSubstr("layers")))) << "the first is missing";
  EXPECT_THAT(rig.placed(70, span(1, 0, 1, 0, 2)), Not(Contains(HasSubstr("layers")))) << "half of it is missing";
  EXPECT_THAT(rig.placed(70, span(2, 1, 2, 0, 2, true)), Not(Contains(HasSubstr("layers")))) << "the end says it";
  EXPECT_THAT(rig.window_closed(70), Contains("handle 7 layers 2"));
}

TEST(layouts, the_first_layer_is_told_before_the_second_comes) {
  ReceiverRig rig = linked_receiver(16, 16, no_inline());
  rig.init(7, {3, 8});
  EXPECT_THAT(rig.placed(70, span(0, 0, 2, 0, 2)), Contains("handle 7 layers 1"));
}

}  // namespace
}  // namespace kvferry::core
