// Sessions at the sender: who is linked, who is replaced, whose rooms fail.
#include "core/rig.h"

namespace kvferry::core {
namespace {

TEST(sender_session, a_lost_session_fails_exactly_the_rooms_that_need_it) {
  SenderRig rig;
  rig.link(1);
  rig.link(2);
  rig.ready(7, 7, 1, 70, 2);
  rig.ready(8, 8, 2, 80, 2);
  rig.open(9, 9);
  EXPECT_THAT(
      rig.down(1),
      ElementsAre("note decode rank d1 is lost: connection reset", "close session 1 peer_lost: connection reset @d1",
                  "handle 7 is failed peer_lost: connection reset @d1", "handle 7 released", "close mover session 1"));
  EXPECT_THAT(rig.send(8, {1, 2}), Contains(HasSubstr("move 2 transfer 80")));
  EXPECT_THAT(rig.down(1), IsEmpty());
}

TEST(sender_session, a_concluded_room_does_not_mind_a_lost_session) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.send(7, {1});
  rig.pushed(1, 70, 0);
  rig.hear(1, protocol::Confirm{TransferId{70}});
  EXPECT_THAT(rig.down(1), Not(Contains(HasSubstr("handle 7"))));
}

TEST(sender_session, what_a_lost_session_says_is_counted_and_dropped) {
  SenderRig rig;
  rig.link(1);
  rig.down(1);
  EXPECT_THAT(rig.grant(1, 7, 70, 4), IsEmpty());
  EXPECT_EQ(rig.core().counters().late_messages, 1u);
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(sender_session, the_process_that_started_later_is_the_rank) {
  SenderRig rig;
  auto old = SenderRig::identity(1);
  auto young = old;
  young.incarnation = Incarnation{{0, 99}};
  young.start_number = old.start_number + 1;
  rig.link_as(1, old);
  rig.ready(7, 7, 1, 70, 2);
  EXPECT_THAT(rig.link_as(2, young), Contains("handle 7 is failed peer_lost: the peer's process was restarted @d1"));
  EXPECT_EQ(rig.core().counters().sessions_live, 1u);
  EXPECT_THAT(rig.link_as(3, old),
              ElementsAre("close session 3 peer_lost: a process of this rank that started later is linked @d3",
                          "close mover session 3"));
  EXPECT_THAT(rig.grant(2, 8, 80, 2), IsEmpty());
  EXPECT_THAT(rig.open(8, 8), Contains("handle 8 is waiting_for_input"));
}

TEST(sender_session, a_second_link_of_one_process_replaces_the_first) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  EXPECT_THAT(rig.link_as(2, SenderRig::identity(1)),
              Contains("handle 7 is failed peer_lost: the peer linked anew @d1"));
}

TEST(sender_session, a_replaced_rank_fails_its_rooms_and_begins_nothing_any_more) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  rig.open(8, 8);
  const auto said = rig.on(event::Replaced{Error{Code::closed, "another rank has its place"}});
  EXPECT_THAT(said, Contains("handle 7 is failed closed: another rank has its place"));
  EXPECT_THAT(said, Contains("handle 8 is failed closed: another rank has its place"));
  EXPECT_THAT(said, Contains(HasSubstr("close session 1")));
  EXPECT_THAT(rig.link(2), ElementsAre("close session 2 closed: another rank has its place", "close mover session 2"));
  EXPECT_THAT(rig.open(9, 9), Contains("handle 9 is failed closed: another rank has its place"));
  EXPECT_THAT(rig.on(event::Replaced{Error{Code::closed, "again"}}), IsEmpty());
}

TEST(sender_session, ranks_of_one_place_in_two_instances_are_two_ranks) {
  SenderRig rig;
  rig.link_as(1, SenderRig::identity(1, "decode"));
  EXPECT_THAT(rig.link_as(2, SenderRig::identity(1, "decode-2")), IsEmpty());
  EXPECT_EQ(rig.core().counters().sessions_live, 2u);
}

TEST(sender_session, a_silent_peer_is_lost_after_its_pings) {
  Limits limits = no_inline();
  limits.ping_interval = seconds(1);
  limits.ping_misses_max = 2;
  SenderRig rig(limits);
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  EXPECT_THAT(rig.wait(seconds(10)), IsEmpty()) << "it answers";
  rig.silent = true;
  EXPECT_THAT(rig.wait(seconds(2)), ElementsAre("send 1: ping 11", "send 1: ping 12"));
  EXPECT_THAT(rig.wait(seconds(1)),
              Contains("handle 7 is failed peer_lost: answered none of 2 pings (ping interval 1 s): hung, stopped or "
                       "unreachable @d1"));
}

TEST(sender_session, pings_are_answered) {
  SenderRig rig;
  rig.link(1);
  EXPECT_THAT(rig.hear(1, protocol::Ping{5}), ElementsAre("send 1: pong 5"));
  EXPECT_THAT(rig.hear(1, protocol::Pong{5}), IsEmpty());
}

TEST(sender_session, a_message_that_no_decode_rank_says_ends_the_session) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  EXPECT_THAT(rig.hear(1, protocol::Offer{}),
              Contains("handle 7 is failed protocol: sent Offer, which no decode rank says @d1"));
}

TEST(sender_session, rooms_that_have_not_ended_are_spoken_of) {
  Limits limits = no_inline();
  limits.queued_interval = seconds(30);
  SenderRig rig(limits);
  rig.link(1);
  rig.ready(7, 7, 1, 70, 1);
  rig.ready(8, 8, 1, 80, 1);
  EXPECT_THAT(rig.wait(seconds(30)), ElementsAre("send 1: queued 70 80"));
  rig.abort(7);
  EXPECT_THAT(rig.wait(seconds(30)), ElementsAre("send 1: queued 80"));
  rig.abort(8);
  EXPECT_THAT(rig.wait(seconds(60)), IsEmpty());
}

TEST(sender_session, a_movers_lost_session_is_a_lost_session) {
  SenderRig rig;
  rig.link(1);
  rig.ready(7, 7, 1, 70, 2);
  const MoverEvent lost{SessionLost{SessionId{1}, Error{Code::peer_lost, "stream ended"}}};
  EXPECT_THAT(rig.on(lost), Contains("handle 7 is failed peer_lost: stream ended @d1"));
  EXPECT_THAT(rig.on(lost), IsEmpty());
}

TEST(sender_session, events_of_what_is_not_there_change_nothing) {
  SenderRig rig;
  EXPECT_THAT(rig.down(9), IsEmpty());
  EXPECT_THAT(rig.on(event::PeerExited{Incarnation{{0, 9}}}), IsEmpty());
  EXPECT_THAT(rig.on(MoverEvent{SessionClosed{SessionId{9}}}), IsEmpty());
  EXPECT_THAT(rig.on(MoverEvent{Placed{SessionId{9}, TransferId{9}, {}}}), IsEmpty());
  EXPECT_THAT(rig.on(MoverEvent{WindowClosed{SessionId{9}, TransferId{9}}}), IsEmpty());
  EXPECT_THAT(rig.on(MoverEvent{Progress{SessionId{9}, TransferId{9}, 1}}), IsEmpty());
  EXPECT_THAT(rig.pushed(9, 9, 0), IsEmpty());
  EXPECT_THAT(rig.abort(9), IsEmpty());
  EXPECT_THAT(rig.clear(9), IsEmpty());
  EXPECT_THAT(rig.late(seconds(1000)), IsEmpty());
}

}  // namespace
}  // namespace kvferry::core
