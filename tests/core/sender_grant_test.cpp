// Grants at the sender: when they come, which count, and what answers those that do not.
#include "core/rig.h"

namespace kvferry::core {
namespace {

TEST(sender_grant, a_room_waits_for_input_once_every_rank_has_granted) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  EXPECT_THAT(rig.open(7, 7), IsEmpty());
  auto grant = SenderRig::make_grant(7, 70, 4);
  grant.grants_awaited = 2;
  EXPECT_THAT(rig.hear(1, grant), IsEmpty());
  grant.transfer = TransferId{71};
  EXPECT_THAT(rig.hear(2, grant), ElementsAre("handle 7 prefix 0", "handle 7 is waiting_for_input"));
}

TEST(sender_grant, waiting_for_input_comes_without_init) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  EXPECT_THAT(rig.grant(1, 7, 70, 6, 2), ElementsAre("handle 7 prefix 2", "handle 7 is waiting_for_input"));
  EXPECT_THAT(rig.init(7, 4), IsEmpty());
}

TEST(sender_grant, a_grant_that_comes_before_its_room_waits_for_it) {
  SenderRig rig;
  rig.link(1);
  EXPECT_THAT(rig.grant(1, 7, 70, 4), IsEmpty());
  EXPECT_EQ(rig.core().counters().orphan_grants, 1u);
  EXPECT_THAT(rig.open(7, 7), ElementsAre("handle 7 prefix 0", "handle 7 is waiting_for_input"));
  EXPECT_EQ(rig.core().counters().orphan_grants, 0u);
}

TEST(sender_grant, a_grant_said_twice_counts_once) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.grant(1, 7, 70, 4);
  EXPECT_THAT(rig.grant(1, 7, 70, 4), IsEmpty());
  EXPECT_EQ(rig.core().counters().late_messages, 1u);
}

TEST(sender_grant, early_grants_are_bounded_and_the_oldest_is_told) {
  Limits limits = no_inline();
  limits.orphan_grants_max = 2;
  SenderRig rig(limits);
  rig.link(1);
  rig.grant(1, 1, 10, 4);
  rig.grant(1, 2, 20, 4);
  EXPECT_THAT(rig.grant(1, 3, 30, 4),
              ElementsAre("send 1: abort room 1 transfer 10 try_later: more than 2 grants of this rank wait for rooms "
                          "that no prefill engine has opened"));
  EXPECT_EQ(rig.core().counters().orphan_grants, 2u);
  EXPECT_THAT(rig.open(1, 1), IsEmpty());
  EXPECT_THAT(rig.open(2, 2), Contains("handle 2 is waiting_for_input"));
}

TEST(sender_grant, one_rank_does_not_use_up_the_bound_of_another) {
  Limits limits = no_inline();
  limits.orphan_grants_max = 1;
  SenderRig rig(limits);
  rig.link(1);
  rig.link(2);
  rig.grant(1, 1, 10, 4);
  EXPECT_THAT(rig.grant(2, 2, 20, 4), IsEmpty());
}

TEST(sender_grant, early_grants_are_bounded_in_time) {
  Limits limits = no_inline();
  limits.early_grant_ttl = seconds(20);
  SenderRig rig(limits);
  rig.link(1);
  rig.grant(1, 7, 70, 4);
  EXPECT_THAT(rig.wait(seconds(19)), IsEmpty());
  EXPECT_THAT(rig.wait(seconds(1)),
              ElementsAre("send 1: abort room 7 transfer 70 timeout: no prefill engine opened the room within the "
                          "early grant limit of 20 s"));
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(sender_grant, early_grants_go_with_their_session) {
  SenderRig rig;
  rig.link(1);
  rig.grant(1, 7, 70, 4);
  rig.down(1);
  EXPECT_EQ(rig.core().counters().orphan_grants, 0u);
  EXPECT_THAT(rig.open(7, 7), IsEmpty());
}

TEST(sender_grant, an_early_grant_that_is_taken_back_is_forgotten) {
  SenderRig rig;
  rig.link(1);
  rig.grant(1, 7, 70, 4);
  EXPECT_THAT(rig.hear(1, protocol::Abort{RoomId{7}, TransferId{70}, Code::aborted, "gone"}), IsEmpty());
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(sender_grant, a_grant_for_a_room_that_was_aborted_is_answered_with_that) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.abort(7);
  EXPECT_THAT(rig.grant(1, 7, 70, 4), ElementsAre("send 1: abort room 7 transfer 70 aborted: gone"));
}

TEST(sender_grant, a_grant_for_a_room_that_timed_out_is_answered_with_that) {
  Limits limits = no_inline();
  limits.bootstrap_timeout = seconds(5);
  SenderRig rig(limits);
  rig.link(1);
  rig.open(7, 7);
  rig.wait(seconds(6));
  EXPECT_THAT(rig.grant(1, 7, 70, 4),
              ElementsAre("send 1: abort room 7 transfer 70 timeout: no decode rank granted the room within the "
                          "bootstrap timeout of 5 s"));
}

TEST(sender_grant, a_grant_for_a_room_that_was_cleared_is_answered_with_its_end_for_a_while) {
  Limits limits = no_inline();
  limits.outcome_ttl = seconds(60);
  SenderRig rig(limits);
  rig.link(1);
  rig.open(7, 7);
  EXPECT_THAT(rig.clear(7),
              ElementsAre("handle 7 is failed aborted: cleared by the engine", "handle 7 released", "handle 7 done"));
  EXPECT_THAT(rig.grant(1, 7, 70, 4), ElementsAre("send 1: abort room 7 transfer 70 aborted: cleared by the engine"));
  rig.wait(seconds(61));
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(sender_grant, a_rank_that_was_told_the_end_means_the_next_use_with_its_next_grant) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.abort(7);
  rig.grant(1, 7, 70, 4);
  rig.clear(7);
  EXPECT_THAT(rig.grant(1, 7, 71, 4), IsEmpty()) << "it waits for the engine to open the room again";
  EXPECT_THAT(rig.open(8, 7), ElementsAre("handle 8 prefix 0", "handle 8 is waiting_for_input"));
}

TEST(sender_grant, a_rank_whose_grant_was_taken_means_the_next_use_with_its_next_grant) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 4);
  rig.abort(7);
  EXPECT_THAT(rig.grant(1, 7, 71, 4), IsEmpty());
  rig.clear(7);
  EXPECT_THAT(rig.open(8, 7), ElementsAre("handle 8 prefix 0", "handle 8 is waiting_for_input"));
}

TEST(sender_grant, the_rank_that_had_not_granted_yet_is_told_how_a_half_granted_room_ended) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 4);
  grant.grants_awaited = 2;
  rig.hear(1, grant);
  rig.abort(7);
  grant.transfer = TransferId{71};
  EXPECT_THAT(rig.hear(2, grant), ElementsAre("send 2: abort room 7 transfer 71 aborted: gone"));
  rig.clear(7);
  EXPECT_EQ(rig.core().counters().orphan_grants, 0u);
}

TEST(sender_grant, the_rank_that_had_not_granted_yet_is_told_after_the_clear_too) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 4);
  grant.grants_awaited = 2;
  rig.hear(1, grant);
  rig.clear(7);
  grant.transfer = TransferId{72};
  EXPECT_THAT(rig.hear(1, grant), IsEmpty()) << "the next use";
  grant.transfer = TransferId{71};
  EXPECT_THAT(rig.hear(2, grant), ElementsAre("send 2: abort room 7 transfer 71 aborted: cleared by the engine"));
}

TEST(sender_grant, a_new_use_of_the_number_forgets_how_the_last_one_ended) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.clear(7);
  rig.open(8, 7);
  EXPECT_THAT(rig.grant(1, 7, 70, 4), ElementsAre("handle 8 prefix 0", "handle 8 is waiting_for_input"));
}

TEST(sender_grant, outcomes_are_bounded) {
  Limits limits = no_inline();
  limits.outcomes_max = 2;
  SenderRig rig(limits);
  rig.link(1);
  for (std::uint64_t room = 1; room <= 3; ++room) {
    rig.open(room, room);
    rig.clear(room);
  }
  EXPECT_THAT(rig.grant(1, 1, 10, 4), IsEmpty()) << "the oldest is forgotten: its grant waits";
  EXPECT_THAT(rig.grant(1, 2, 20, 4), Contains(HasSubstr("abort room 2")));
  EXPECT_THAT(rig.grant(1, 3, 30, 4), Contains(HasSubstr("abort room 3")));
}

TEST(sender_grant, no_outcome_is_kept_where_none_may_be) {
  Limits limits = no_inline();
  limits.outcomes_max = 0;
  limits.orphan_grants_max = 0;
  SenderRig rig(limits);
  rig.link(1);
  rig.open(7, 7);
  rig.clear(7);
  EXPECT_EQ(rig.core().held(), std::nullopt);
  EXPECT_THAT(rig.grant(1, 7, 70, 4), IsEmpty());
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(sender_grant, the_first_decode_instance_owns_the_room) {
  SenderRig rig;
  rig.link(1, DataPath::push, "decode-a");
  rig.link(2, DataPath::push, "decode-b");
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 4);
  grant.grants_awaited = 2;
  rig.hear(1, grant);
  EXPECT_THAT(rig.grant(2, 7, 71, 4),
              ElementsAre("send 2: abort room 7 transfer 71 already_exists: the room is owned by decode instance "
                          "decode-a"));
  EXPECT_EQ(rig.core().pending(), "room 7 is bootstrapping with 1 grants");
}

TEST(sender_grant, a_second_grant_of_a_live_room_by_the_same_rank_is_refused) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.grant(1, 7, 70, 4);
  EXPECT_THAT(rig.grant(1, 7, 71, 4),
              ElementsAre("send 1: abort room 7 transfer 71 already_exists: the room is live with an earlier grant of "
                          "this rank"));
}

TEST(sender_grant, a_grant_more_than_awaited_is_refused_and_the_room_goes_on) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  rig.ready(7, 7, 1, 70, 4);
  EXPECT_THAT(rig.grant(2, 7, 71, 4),
              ElementsAre("send 2: abort room 7 transfer 71 already_exists: all 1 decode ranks that the room waits for "
                          "have granted it"));
  EXPECT_THAT(rig.send(7, {0, 1, 2, 3}), Contains(HasSubstr("move 1 transfer 70 chunk 0 [0, 4) last")));
}

TEST(sender_grant, ranks_that_disagree_fail_the_room_on_both) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 4);
  grant.grants_awaited = 2;
  rig.hear(1, grant);
  grant.transfer = TransferId{71};
  grant.prefix_pages = 1;
  const std::string words = "decode ranks disagree: prefix 0, pages 4, ranks 2 against prefix 1, pages 4, ranks 2";
  EXPECT_THAT(rig.hear(2, grant),
              ElementsAre("send 2: abort room 7 transfer 71 mismatch: " + words,
                          "handle 7 is failed mismatch: " + words + " @d2",
                          "send 1: abort room 7 transfer 70 mismatch: peer d2: " + words, "handle 7 released"));
}

TEST(sender_grant, early_grants_that_disagree_fail_the_room_and_those_behind_are_told) {
  SenderRig rig;
  for (std::uint64_t session = 1; session <= 3; ++session) {
    rig.link(session);
    auto grant = SenderRig::make_grant(7, 70 + session, 4 + session);
    grant.grants_awaited = 3;
    rig.hear(session, grant);
  }
  const Lines lines = rig.open(7, 7);
  EXPECT_THAT(lines, Contains(HasSubstr("handle 7 is failed mismatch")));
  EXPECT_THAT(lines, Contains(HasSubstr("send 3: abort room 7 transfer 73 mismatch")));
}

TEST(sender_grant, a_grant_that_cannot_be_is_refused_with_its_numbers) {
  Limits limits = no_inline();
  limits.pages_max = 100;
  SenderRig rig(limits);
  rig.link(1);
  EXPECT_THAT(
      rig.grant(1, 7, 70, 101, 2),
      ElementsAre("send 1: abort room 7 transfer 70 protocol: a grant of 101 pages with a prefix of 2 cannot be "
                  "(at most 100 pages)"));
  EXPECT_THAT(rig.grant(1, 7, 70, 1, 2), Contains(HasSubstr("a grant of 1 pages with a prefix of 2 cannot be")));
  auto grant = SenderRig::make_grant(7, 70, 4);
  grant.grants_awaited = 0;
  EXPECT_THAT(rig.hear(1, grant), Contains(HasSubstr("cannot be")));
  grant.grants_awaited = 1;
  grant.state_items = {1, 1};
  EXPECT_THAT(rig.hear(1, grant), ElementsAre("send 1: abort room 7 transfer 70 mismatch: decode grants 2 state "
                                              "components, both sides have 1"));
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(sender_grant, an_inline_grant_that_no_frame_can_hold_is_refused) {
  SenderRig rig;
  rig.link(1);
  auto grant = SenderRig::make_grant(7, 70, 1'000'000);
  grant.inlined = true;
  EXPECT_THAT(rig.hear(1, grant), ElementsAre("send 1: abort room 7 transfer 70 protocol: a grant of 1000000 pages is "
                                              "too large for the control link"));
}

TEST(sender_grant, the_prefix_and_the_count_must_make_the_total) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.grant(1, 7, 70, 6, 2);
  const std::string words =
      "prefill announced 5 pages, decode granted 6 pages of which it holds the first 2: the sum must be the same on "
      "both sides";
  EXPECT_THAT(rig.init(7, 5), ElementsAre("handle 7 is failed mismatch: " + words + " @d1",
                                          "send 1: abort room 7 transfer 70 mismatch: " + words, "handle 7 released"));
}

TEST(sender_grant, a_granted_aux_record_needs_an_aux_index) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 4);
  grant.with_aux = true;
  rig.hear(1, grant);
  EXPECT_THAT(rig.init(7, 4), Contains("handle 7 is failed mismatch: decode granted an aux record, prefill's init "
                                       "named no aux_index"));
}

TEST(sender_grant, the_bootstrap_timeout_names_itself) {
  Limits limits = no_inline();
  limits.bootstrap_timeout = milliseconds(1500);
  SenderRig rig(limits);
  rig.open(7, 7);
  EXPECT_THAT(rig.wait(milliseconds(1499)), IsEmpty());
  EXPECT_THAT(rig.wait(milliseconds(1)),
              ElementsAre("handle 7 is failed timeout: no decode rank granted the room within the bootstrap timeout of "
                          "1500 ms",
                          "handle 7 released"));
}

}  // namespace
}  // namespace kvferry::core
