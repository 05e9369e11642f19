// Chunks at the sender: their places, their ways, and when a room is over and its pages are free.
#include "core/rig.h"

namespace kvferry::core {
namespace {

TEST(sender_chunk, chunks_know_their_place_behind_the_prefix) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.grant(1, 7, 70, 6, 2);
  rig.init(7, 4);
  EXPECT_THAT(rig.send(7, {10, 11, 12}), ElementsAre("handle 7 took 1", "handle 7 is transferring",
                                                     "move 1 transfer 70 chunk 0 [2, 5) 0:{10 11 12}"));
  EXPECT_THAT(rig.send(7, {20}), ElementsAre("handle 7 took 1", "move 1 transfer 70 chunk 1 [5, 6) last 0:{20}"));
}

TEST(sender_chunk, chunks_sent_before_the_grant_wait_for_it) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.init(7, 2);
  EXPECT_THAT(rig.send(7, {1}), IsEmpty());
  EXPECT_THAT(rig.send(7, {2}), IsEmpty());
  EXPECT_THAT(
      rig.grant(1, 7, 70, 2),
      ElementsAre("handle 7 prefix 0", "handle 7 is waiting_for_input", "handle 7 took 2", "handle 7 is transferring",
                  "move 1 transfer 70 chunk 0 [0, 1) 0:{1}", "move 1 transfer 70 chunk 1 [1, 2) last 0:{2}"));
}

TEST(sender_chunk, the_last_chunk_brings_aux_and_state) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.with_aux = true;
  grant.state_items = {2};
  rig.hear(1, grant);
  rig.init(7, 1, 5);
  EXPECT_THAT(rig.send(7, {1}, {{8, 9}}), Contains("move 1 transfer 70 chunk 0 [0, 1) last 0:{1} 1:{5} 2:{8 9}"));
}

TEST(sender_chunk, state_that_differs_from_the_grant_fails_the_room_with_both_counts) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.state_items = {2};
  rig.hear(1, grant);
  rig.init(7, 1);
  EXPECT_THAT(rig.send(7, {1}, {{8}}),
              Contains("handle 7 is failed mismatch: state component 0: prefill sends 1 items, decode granted 2 @d1"));
}

TEST(sender_chunk, a_room_without_pages_ends_with_an_empty_chunk) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.grant(1, 7, 70, 8, 8);
  rig.init(7, 0);
  EXPECT_THAT(rig.send(7, {}), Contains("move 1 transfer 70 chunk 0 [8, 8) last 0:{}"));
  rig.pushed(1, 70, 0);
  EXPECT_THAT(rig.hear(1, protocol::Confirm{TransferId{70}}), ElementsAre("handle 7 is success", "handle 7 released"));
}

TEST(sender_chunk, an_inline_grant_is_answered_on_the_control_link) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.inlined = true;
  rig.hear(1, grant);
  rig.init(7, 1);
  EXPECT_THAT(rig.send(7, {4}), Contains("send 1: inline 70 chunk 0 [0, 1) last 0:{4}"));
}

TEST(sender_chunk, a_same_host_peer_is_offered_the_chunk) {
  SenderRig rig;
  rig.link(1, DataPath::pull);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.with_aux = true;
  grant.state_items = {1};
  rig.hear(1, grant);
  rig.init(7, 1, 3);
  EXPECT_THAT(rig.send(7, {4}, {{6}}), Contains("send 1: offer 70 chunk 0 [0, 1) last {4} aux 3 state {6}"));
}

TEST(sender_chunk, success_needs_every_destination) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.grants_awaited = 2;
  rig.hear(1, grant);
  grant.transfer = TransferId{71};
  rig.hear(2, grant);
  rig.init(7, 1);
  EXPECT_THAT(rig.send(7, {4}),
              ElementsAre("handle 7 took 1", "handle 7 is transferring", "move 1 transfer 70 chunk 0 [0, 1) last 0:{4}",
                          "move 2 transfer 71 chunk 0 [0, 1) last 0:{4}"));
  rig.pushed(1, 70, 0);
  rig.pushed(2, 71, 0);
  EXPECT_THAT(rig.hear(1, protocol::Confirm{TransferId{70}}), IsEmpty());
  EXPECT_THAT(rig.hear(2, protocol::Confirm{TransferId{71}}), ElementsAre("handle 7 is success", "handle 7 released"));
}

TEST(sender_chunk, one_lost_destination_fails_the_room_on_the_others) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.grants_awaited = 2;
  rig.hear(1, grant);
  grant.transfer = TransferId{71};
  rig.hear(2, grant);
  const Lines lines = rig.down(1);
  EXPECT_THAT(lines, Contains("handle 7 is failed peer_lost: connection reset @d1"));
  EXPECT_THAT(lines, Contains("send 2: abort room 7 transfer 71 peer_lost: peer d1: connection reset"));
}

TEST(sender_chunk, pages_are_free_only_when_the_mover_reads_them_no_more) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  rig.send(7, {1});
  rig.send(7, {2});
  EXPECT_THAT(rig.pushed(1, 70, 0, 200), ElementsAre("handle 7 moved 200"));
  EXPECT_THAT(rig.hear(1, protocol::Confirm{TransferId{70}}), ElementsAre("handle 7 is success"));
  EXPECT_EQ(rig.core().pending(), "room 7 has ended, its pages are not released");
  EXPECT_THAT(rig.pushed(1, 70, 1, 200), ElementsAre("handle 7 moved 200", "handle 7 released"));
}

TEST(sender_chunk, an_abort_stops_the_mover_and_waits_for_its_word) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  rig.send(7, {1});
  EXPECT_THAT(rig.abort(7), ElementsAre("handle 7 is failed aborted: gone",
                                        "send 1: abort room 7 transfer 70 aborted: gone", "stop moves 1 transfer 70"));
  EXPECT_THAT(rig.clear(7), IsEmpty());
  EXPECT_THAT(rig.stopped(1, 70), ElementsAre("handle 7 released", "handle 7 done"));
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(sender_chunk, an_offered_chunk_is_free_when_its_reader_says_closed) {
  SenderRig rig;
  rig.link(1, DataPath::pull);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  EXPECT_THAT(rig.abort(7), Not(Contains("handle 7 released")));
  EXPECT_THAT(rig.hear(1, protocol::Closed{TransferId{70}}), ElementsAre("handle 7 released"));
}

TEST(sender_chunk, a_lost_reader_keeps_the_pages_until_it_has_exited) {
  SenderRig rig;
  rig.link(1, DataPath::pull);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  EXPECT_THAT(rig.down(1), Not(Contains("handle 7 released")));
  EXPECT_THAT(rig.on(MoverEvent{SessionClosed{SessionId{1}}}), IsEmpty()) << "our mover reads nothing of it anyway";
  EXPECT_THAT(rig.on(event::PeerExited{Incarnation{{0, 1}}}), ElementsAre("handle 7 released"));
}

TEST(sender_chunk, a_reader_whose_exit_is_seen_before_its_link_ends_is_lost_and_frees_the_pages) {
  SenderRig rig;
  rig.link(1, DataPath::pull);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  const Lines lines = rig.on(event::PeerExited{Incarnation{{0, 1}}});
  EXPECT_THAT(lines, Contains("handle 7 is failed peer_lost: the process has exited @d1"));
  EXPECT_THAT(lines, Contains("handle 7 released"));
  EXPECT_THAT(rig.down(1), IsEmpty());
}

TEST(sender_chunk, a_lost_reader_that_links_again_reads_no_more) {
  SenderRig rig;
  rig.link(1, DataPath::pull);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  rig.down(1);
  EXPECT_THAT(rig.link_as(2, SenderRig::identity(1), DataPath::pull), ElementsAre("handle 7 released"));
}

TEST(sender_chunk, of_two_lost_readers_each_frees_only_what_it_read) {
  SenderRig rig;
  rig.link(1, DataPath::pull);
  rig.link(2, DataPath::pull);
  rig.open(7, 7);
  auto grant = SenderRig::make_grant(7, 70, 1);
  grant.grants_awaited = 2;
  rig.hear(1, grant);
  grant.transfer = TransferId{71};
  rig.hear(2, grant);
  rig.init(7, 1);
  rig.send(7, {1});
  rig.down(1);
  rig.down(2);
  EXPECT_THAT(rig.on(event::PeerExited{Incarnation{{0, 1}}}), IsEmpty());
  EXPECT_THAT(rig.on(event::PeerExited{Incarnation{{0, 2}}}), ElementsAre("handle 7 released"));
}

TEST(sender_chunk, closing_the_movers_session_frees_what_it_would_have_read) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  rig.down(1);
  EXPECT_THAT(rig.on(MoverEvent{SessionClosed{SessionId{1}}}), ElementsAre("handle 7 released"));
}

TEST(sender_chunk, an_abort_of_decode_fails_the_room_with_its_words) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  EXPECT_THAT(rig.hear(1, protocol::Abort{RoomId{7}, TransferId{70}, Code::timeout, "too slow"}),
              ElementsAre("handle 7 is failed peer_aborted: decode ended the room (timeout): too slow @d1",
                          "handle 7 released"))
      << "who said it is not told";
}

TEST(sender_chunk, an_abort_that_crosses_the_last_confirmation_changes_nothing) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  rig.pushed(1, 70, 0);
  rig.hear(1, protocol::Confirm{TransferId{70}});
  EXPECT_THAT(rig.abort(7), IsEmpty());
  EXPECT_THAT(rig.hear(1, protocol::Abort{RoomId{7}, TransferId{70}, Code::aborted, "gone"}), IsEmpty());
  EXPECT_EQ(rig.core().counters().rooms_succeeded, 1u);
  EXPECT_EQ(rig.core().counters().rooms_failed, 0u);
}

TEST(sender_chunk, a_confirmation_after_the_abort_frees_the_pages_and_changes_no_state) {
  SenderRig rig;
  rig.link(1, DataPath::pull);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  rig.abort(7);
  EXPECT_THAT(rig.hear(1, protocol::Confirm{TransferId{70}}), ElementsAre("handle 7 released"));
}

TEST(sender_chunk, a_confirmation_before_the_last_chunk_ends_the_session) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  rig.send(7, {1});
  EXPECT_THAT(rig.hear(1, protocol::Confirm{TransferId{70}}),
              Contains("handle 7 is failed protocol: confirmed room 7 before its end @d1"));
}

TEST(sender_chunk, late_messages_after_clear_change_nothing) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  rig.pushed(1, 70, 0);
  rig.hear(1, protocol::Confirm{TransferId{70}});
  rig.clear(7);
  rig.ready(8, 7, 1, 80, 1);
  EXPECT_THAT(rig.hear(1, protocol::Confirm{TransferId{70}}), IsEmpty());
  EXPECT_THAT(rig.hear(1, protocol::Landed{TransferId{70}, 0}), IsEmpty());
  EXPECT_THAT(rig.hear(1, protocol::Abort{RoomId{7}, TransferId{70}, Code::aborted, "old"}), IsEmpty());
  EXPECT_THAT(rig.hear(1, protocol::Closed{TransferId{70}}), IsEmpty());
  EXPECT_THAT(rig.pushed(1, 70, 0), IsEmpty());
  EXPECT_THAT(rig.stopped(1, 70), IsEmpty());
  EXPECT_EQ(rig.core().pending(), "room 7 is waiting_for_input with 1 grants");
  EXPECT_EQ(rig.core().counters().late_messages, 3u);
}

TEST(sender_chunk, the_number_of_a_cleared_room_is_free_while_its_fence_lives_on) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  rig.send(7, {1});
  rig.abort(7);
  rig.clear(7);
  rig.ready(8, 7, 1, 80, 1);
  EXPECT_THAT(rig.send(8, {5}), Contains("move 1 transfer 80 chunk 0 [0, 1) last 0:{5}"));
  EXPECT_THAT(rig.stopped(1, 70), ElementsAre("handle 7 released", "handle 7 done"));
}

TEST(sender_chunk, wishes_for_a_room_that_has_ended_change_nothing) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  rig.abort(7);
  EXPECT_THAT(rig.send(7, {1}), ElementsAre("handle 7 took 1"));
  EXPECT_THAT(rig.init(7, 2), IsEmpty());
  EXPECT_THAT(rig.abort(7), IsEmpty());
  EXPECT_THAT(rig.clear(7), ElementsAre("handle 7 done"));
  EXPECT_THAT(rig.clear(7), IsEmpty());
  EXPECT_THAT(rig.abort(7), IsEmpty());
  EXPECT_THAT(rig.init(7, 2), IsEmpty());
}

TEST(sender_chunk, a_chunk_that_cannot_be_read_fails_the_room) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  EXPECT_THAT(rig.on(MoverEvent{Rejected{SessionId{1}, TransferId{70}, Error{Code::out_of_range, "page 9 of 4"}}}),
              ElementsAre("handle 7 is failed out_of_range: page 9 of 4",
                          "send 1: abort room 7 transfer 70 out_of_range: page 9 of 4", "stop moves 1 transfer 70"));
}

TEST(sender_chunk, chunks_that_wait_are_given_back_when_the_room_fails) {
  SenderRig rig;
  rig.link(1);
  rig.open(7, 7);
  rig.init(7, 2);
  rig.send(7, {1});
  EXPECT_THAT(rig.abort(7), ElementsAre("handle 7 is failed aborted: gone", "handle 7 took 1", "handle 7 released"));
}

TEST(sender_chunk, the_engine_that_sends_nothing_meets_the_send_timeout) {
  Limits limits = no_inline();
  limits.send_timeout = seconds(6);
  SenderRig rig(limits);
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  rig.wait(seconds(5));
  rig.send(7, {1});
  rig.pushed(1, 70, 0, 200);
  EXPECT_THAT(rig.wait(seconds(5)), IsEmpty());
  EXPECT_THAT(rig.wait(seconds(1)),
              Contains("handle 7 is failed timeout: the engine sent nothing within the send timeout of 6 s @d1"));
}

TEST(sender_chunk, the_progress_timeout_counts_from_the_last_chunk_though_it_is_the_shorter_one) {
  Limits limits = no_inline();
  limits.send_timeout = seconds(600);
  limits.progress_timeout = seconds(3);
  SenderRig rig(limits);
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  EXPECT_THAT(rig.wait(seconds(2)), IsEmpty());
  EXPECT_THAT(rig.wait(seconds(1)),
              Contains("handle 7 is failed timeout: no progress within the progress timeout of 3 s @d1"));
}

TEST(sender_chunk, progress_renews_the_progress_timeout) {
  Limits limits = no_inline();
  limits.progress_timeout = seconds(3);
  SenderRig rig(limits);
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(rig.wait(seconds(2)), IsEmpty());
    // Its bytes count when the chunk has left: Pushed says them all.
    EXPECT_THAT(rig.on(MoverEvent{Progress{SessionId{1}, TransferId{70}, 50}}), IsEmpty());
  }
}

}  // namespace
}  // namespace kvferry::core
