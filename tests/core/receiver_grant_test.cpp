// What the receiver grants, and what comes of it.
#include "core/rig.h"

namespace kvferry::core {
namespace {

const protocol::ChunkSpan whole = ReceiverRig::span(0, 0, 2, true);

TEST(receiver_grant, the_window_opens_before_the_grant_leaves) {
  ReceiverRig rig;
  rig.link(7, 7);
  EXPECT_THAT(rig.init(7, {4, 5}, 3, 2, {{8, 9}}),
              ElementsAre("open window 1 transfer 70 from 2 0:{4 5} 1:{3} 2:{8 9}",
                          "send 1: grant room 7 transfer 70 pages [2, 4) aux state 2"));
}

TEST(receiver_grant, init_may_come_before_the_link) {
  ReceiverRig rig;
  rig.open(7, 7);
  EXPECT_THAT(rig.init(7, {4}), IsEmpty());
  rig.sizes();
  rig.route(1);
  EXPECT_THAT(rig.up(1, 1), ElementsAre("handle 7 is waiting_for_input", "open window 1 transfer 70 from 0 0:{4}",
                                        "send 1: grant room 7 transfer 70 pages [0, 1)"));
}

TEST(receiver_grant, small_rooms_travel_on_the_control_link) {
  Limits limits = no_inline();
  limits.inline_bytes_max = 410;
  ReceiverRig rig(limits);
  rig.link(7, 7);
  EXPECT_THAT(rig.init(7, {4, 5}, 1), ElementsAre("open window 1 transfer 70 from 0 0:{4 5} 1:{1} inline",
                                                  "send 1: grant room 7 transfer 70 pages [0, 2) aux inline"));
  rig.open(8, 8);
  EXPECT_THAT(rig.init(8, {4, 5}, 1, 0, {{1}}), Not(Contains(HasSubstr("inline")))) << "20 bytes more";
}

TEST(receiver_grant, success_comes_when_every_byte_is_placed_and_the_window_is_closed) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(rig.placed(70, ReceiverRig::span(0, 0, 1, false)),
              ElementsAre("handle 7 moved 200", "handle 7 is transferring", "send 1: landed 70 chunk 0"));
  EXPECT_THAT(rig.placed(70, ReceiverRig::span(1, 1, 2, true)),
              ElementsAre("handle 7 moved 200", "close window 1 transfer 70"));
  EXPECT_THAT(rig.window_closed(70),
              ElementsAre("send 1: confirm 70", "handle 7 layers 1", "handle 7 is success", "handle 7 released"));
  EXPECT_THAT(rig.clear(7), ElementsAre("handle 7 done"));
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(receiver_grant, an_empty_last_chunk_ends_a_room_without_pages) {
  ReceiverRig rig;
  rig.link(7, 7);
  EXPECT_THAT(rig.init(7, {}, 3, 8), Contains("send 1: grant room 7 transfer 70 pages [8, 8) aux"));
  rig.placed(70, ReceiverRig::span(0, 8, 8, true), true);
  EXPECT_THAT(rig.window_closed(70), Contains("handle 7 is success"));
}

TEST(receiver_grant, an_offer_is_checked_and_then_read) {
  ReceiverRig rig;
  rig.link(7, 7, DataPath::pull);
  rig.init(7, {4, 5}, 3, 0, {{8}});
  EXPECT_THAT(rig.hear(1, protocol::Offer{TransferId{70}, whole, {1, 2}, 6, {{9}}}),
              ElementsAre("handle 7 is transferring", "move 1 transfer 70 chunk 0 [0, 2) last 0:{1 2} 1:{6} 2:{9}"));
  rig.placed(70, whole, true, {1});
  EXPECT_THAT(rig.window_closed(70), Contains("send 1: confirm 70"));
}

TEST(receiver_grant, offers_that_do_not_fit_fail_the_room_with_both_counts) {
  const auto offered = [](const protocol::Offer& offer) {
    ReceiverRig rig;
    rig.link(7, 7, DataPath::pull);
    rig.init(7, {4, 5}, 3, 0, {{8}});
    const Lines lines = rig.hear(1, offer);
    EXPECT_THAT(lines, Contains("close window 1 transfer 70"));
    EXPECT_THAT(lines, Not(Contains(HasSubstr("move"))));
    return lines.front();
  };
  EXPECT_EQ(offered({TransferId{70}, whole, {1}, 6, {{9}}}),
            "handle 7 is failed protocol: offers 1 pages for 2 positions @p1");
  EXPECT_EQ(offered({TransferId{70}, whole, {1, 2}, -1, {{9}}}),
            "handle 7 is failed mismatch: offers no aux record, one was granted @p1");
  EXPECT_EQ(offered({TransferId{70}, whole, {1, 2}, 6, {}}),
            "handle 7 is failed mismatch: 0 items of state component 0 came, 1 were granted @p1");
  EXPECT_EQ(offered({TransferId{70}, ReceiverRig::span(0, 0, 3, true), {1, 2, 3}, 6, {{9}}}),
            "handle 7 is failed out_of_range: chunk 0 covers pages [0, 3) of regions [0, 2), but pages [0, 2) of 2 "
            "regions were granted @p1");
}

TEST(receiver_grant, an_offer_where_nothing_is_read_fails_the_room) {
  ReceiverRig rig;
  rig.link(7, 7, DataPath::push);
  rig.init(7, {4, 5});
  EXPECT_THAT(rig.hear(1, protocol::Offer{TransferId{70}, whole, {1, 2}, -1, {}}),
              Contains("handle 7 is failed protocol: offers chunk 0 to be read, but it is to be sent @p1"));
}

TEST(receiver_grant, a_last_chunk_without_its_aux_record_is_no_success) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5}, 3);
  EXPECT_THAT(rig.placed(70, whole, false),
              Contains("handle 7 is failed mismatch: the last chunk came without the aux record that was granted @p1"));
}

TEST(receiver_grant, an_aux_record_that_was_not_granted_is_no_success) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(rig.placed(70, whole, true), Contains("handle 7 is failed mismatch: the last chunk came with an aux "
                                                    "record that was not granted @p1"));
}

TEST(receiver_grant, a_last_chunk_without_all_its_state_is_no_success) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5}, {}, 0, {{8, 9}});
  EXPECT_THAT(rig.placed(70, whole, false, {1}),
              Contains("handle 7 is failed mismatch: 1 items of state component 0 came, 2 were granted @p1"));
}

TEST(receiver_grant, a_last_chunk_that_leaves_pages_open_is_no_success) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(
      rig.placed(70, ReceiverRig::span(0, 0, 1, true)),
      Contains("handle 7 is failed mismatch: the last chunk came, but 2 of 4 page copies (2 pages in 2 regions) "
               "were never sent @p1"));
}

TEST(receiver_grant, failed_shows_at_once_and_the_pages_are_released_when_the_window_is_closed) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(rig.abort(7),
              ElementsAre("handle 7 is failed aborted: gone", "send 1: abort room 7 transfer 70 aborted: gone",
                          "close window 1 transfer 70"));
  EXPECT_EQ(rig.core().counters().quarantined_pages, 2u);
  EXPECT_EQ(rig.core().pending(), "room 7 waits for a window that nobody closes");
  EXPECT_THAT(rig.clear(7), IsEmpty());
  EXPECT_THAT(rig.window_closed(70), ElementsAre("send 1: closed 70", "handle 7 released", "handle 7 done"));
  EXPECT_EQ(rig.core().counters().quarantined_pages, 0u);
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(receiver_grant, the_number_is_free_while_the_fence_lives_on_and_the_uses_do_not_mix) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  rig.clear(7);
  rig.open(8, 7);
  EXPECT_THAT(rig.init(8, {6, 7}), Contains("send 1: grant room 7 transfer 80 pages [0, 2)"));
  EXPECT_THAT(rig.placed(70, whole), IsEmpty()) << "the end came first";
  EXPECT_THAT(rig.hear_abort(7, 70), IsEmpty());
  EXPECT_THAT(rig.window_closed(70), ElementsAre("send 1: closed 70", "handle 7 released", "handle 7 done"));
  EXPECT_EQ(rig.core().pending(), "room 7 is waiting_for_input");
  rig.placed(80, whole);
  EXPECT_THAT(rig.window_closed(80), Contains("handle 8 is success"));
}

TEST(receiver_grant, a_room_that_never_granted_is_released_at_once) {
  ReceiverRig rig;
  rig.link(7, 7);
  EXPECT_THAT(rig.abort(7), ElementsAre("handle 7 is failed aborted: gone", "handle 7 released"));
  EXPECT_THAT(rig.init(7, {1}), IsEmpty());
}

TEST(receiver_grant, an_abort_of_prefill_fails_the_room_with_its_words) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(rig.hear_abort(7, 70),
              ElementsAre("handle 7 is failed peer_aborted: prefill ended the room (aborted): gone @p1",
                          "close window 1 transfer 70"));
}

TEST(receiver_grant, a_refusal_keeps_its_code) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(rig.hear_abort(7, 70, Code::already_exists, "the room is owned by decode instance other"),
              Contains("handle 7 is failed already_exists: prefill ended the room (already_exists): the room is owned "
                       "by decode instance other @p1"));
}

TEST(receiver_grant, an_abort_that_crosses_the_last_byte_changes_nothing) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  rig.placed(70, whole);
  EXPECT_THAT(rig.hear_abort(7, 70), IsEmpty());
  EXPECT_THAT(rig.window_closed(70),
              ElementsAre("send 1: confirm 70", "handle 7 layers 1", "handle 7 is success", "handle 7 released"));
  EXPECT_THAT(rig.abort(7), IsEmpty());
}

TEST(receiver_grant, an_abort_by_the_engine_while_the_window_closes_is_a_failure_and_not_confirmed) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  rig.placed(70, whole);
  EXPECT_THAT(rig.abort(7), Contains("handle 7 is failed aborted: gone"));
  EXPECT_THAT(rig.window_closed(70), ElementsAre("send 1: closed 70", "handle 7 released"));
}

TEST(receiver_grant, a_rejected_chunk_fails_its_room) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(
      rig.on(MoverEvent{Rejected{SessionId{1}, TransferId{70}, Error{Code::out_of_range, "frame past its window"}}}),
      ElementsAre("handle 7 is failed out_of_range: frame past its window @p1",
                  "send 1: abort room 7 transfer 70 out_of_range: frame past its window",
                  "close window 1 transfer 70"));
}

TEST(receiver_grant, late_messages_after_clear_change_nothing) {
  ReceiverRig rig;
  rig.link(7, 7, DataPath::pull);
  rig.init(7, {4, 5});
  rig.placed(70, whole);
  rig.window_closed(70);
  rig.clear(7);
  EXPECT_THAT(rig.placed(70, whole), IsEmpty());
  EXPECT_THAT(rig.window_closed(70), IsEmpty());
  EXPECT_THAT(rig.hear(1, protocol::Offer{TransferId{70}, whole, {1, 2}, -1, {}}), IsEmpty());
  EXPECT_THAT(rig.hear_abort(7, 70), IsEmpty());
  EXPECT_THAT(rig.hear(1, protocol::Queued{{TransferId{70}}}), IsEmpty());
  EXPECT_THAT(rig.on(MoverEvent{Progress{SessionId{1}, TransferId{70}, 1}}), IsEmpty());
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(receiver_grant, a_session_without_part_in_a_room_cannot_touch_it) {
  ReceiverRig rig;
  rig.link(7, 7, DataPath::pull);
  rig.init(7, {4, 5});
  const Address other = bootstrap_address("10.0.0.2");
  rig.open(8, 8, other);
  rig.sizes(other);
  rig.route(2, ReceiverRig::key(other));
  rig.up(2, 2, DataPath::pull, ReceiverRig::key(other));
  EXPECT_THAT(rig.hear(2, protocol::Abort{RoomId{7}, TransferId{70}, Code::aborted, "not mine"}), IsEmpty());
  EXPECT_THAT(rig.hear(2, protocol::Offer{TransferId{70}, whole, {1, 2}, -1, {}}), IsEmpty());
  EXPECT_THAT(rig.placed(70, whole, false, {}, 2), IsEmpty());
  EXPECT_EQ(rig.core().pending(), "room 7 is waiting_for_input");
}

TEST(receiver_grant, the_waiting_timeout_is_renewed_while_prefill_says_queued) {
  Limits limits = no_inline();
  limits.waiting_timeout = seconds(10);
  ReceiverRig rig(limits);
  rig.link(7, 7);
  rig.init(7, {4, 5});
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(rig.wait(seconds(9)), IsEmpty());
    rig.hear(1, protocol::Queued{{TransferId{70}}});
  }
  EXPECT_THAT(rig.wait(seconds(10)),
              Contains("handle 7 is failed timeout: prefill sent nothing within the waiting timeout of 10 s @p1"));
}

TEST(receiver_grant, queued_is_no_progress) {
  Limits limits = no_inline();
  limits.progress_timeout = seconds(10);
  ReceiverRig rig(limits);
  rig.link(7, 7);
  rig.init(7, {4, 5});
  rig.placed(70, ReceiverRig::span(0, 0, 1, false));
  rig.wait(seconds(9));
  rig.hear(1, protocol::Queued{{TransferId{70}}});
  EXPECT_THAT(rig.wait(seconds(1)),
              Contains("handle 7 is failed timeout: no progress within the progress timeout of 10 s @p1"));
}

TEST(receiver_grant, the_progress_timeout_counts_though_it_is_the_shorter_one) {
  Limits limits = no_inline();
  limits.waiting_timeout = seconds(300);
  limits.progress_timeout = seconds(3);
  ReceiverRig rig(limits);
  rig.link(7, 7);
  rig.init(7, {4, 5});
  EXPECT_THAT(rig.on(MoverEvent{Progress{SessionId{1}, TransferId{70}, 1}}), ElementsAre("handle 7 is transferring"));
  EXPECT_THAT(rig.wait(seconds(3)), Contains(HasSubstr("progress timeout of 3 s")));
}

TEST(receiver_grant, an_engine_that_calls_no_init_meets_the_waiting_timeout) {
  Limits limits = no_inline();
  limits.waiting_timeout = seconds(10);
  ReceiverRig rig(limits);
  rig.link(7, 7);
  EXPECT_THAT(rig.wait(seconds(10)),
              Contains("handle 7 is failed timeout: the engine called no init within the waiting "
                       "timeout of 10 s @p1"));
}

}  // namespace
}  // namespace kvferry::core
