// Sessions at the receiver: who is lost, and with whom.
#include "core/rig.h"

namespace kvferry::core {
namespace {

TEST(receiver_session, a_lost_session_fails_exactly_the_rooms_that_need_it) {
  ReceiverRig rig;
  const Address other = bootstrap_address("10.0.0.2");
  rig.link(7, 7);
  rig.init(7, {4});
  rig.open(8, 8, other);
  rig.sizes(other);
  rig.route(2, ReceiverRig::key(other));
  rig.up(2, 2, DataPath::push, ReceiverRig::key(other));
  rig.init(8, {5});
  EXPECT_THAT(rig.down(1), ElementsAre("note prefill rank p1 is lost: connection reset",
                                       "close session 1 peer_lost: connection reset @p1",
                                       "handle 7 is failed peer_lost: connection reset @p1",
                                       "close window 1 transfer 70", "close mover session 1"));
  EXPECT_THAT(rig.window_closed(70), ElementsAre("handle 7 released")) << "there is nobody to tell";
  EXPECT_EQ(rig.core().pending(), "room 8 is waiting_for_input");
}

TEST(receiver_session, a_room_whose_bytes_have_all_come_succeeds_without_its_session) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4});
  rig.placed(70, ReceiverRig::span(0, 0, 1, true));
  EXPECT_THAT(rig.down(1), Not(Contains(HasSubstr("handle 7"))));
  EXPECT_THAT(rig.window_closed(70), ElementsAre("handle 7 layers 1", "handle 7 is success", "handle 7 released"));
}

TEST(receiver_session, a_closed_session_closes_its_windows) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {4});
  rig.down(1);
  EXPECT_THAT(rig.session_closed(1), ElementsAre("handle 7 released"));
  EXPECT_THAT(rig.window_closed(70), IsEmpty());
}

TEST(receiver_session, rooms_that_come_after_a_loss_link_anew) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.down(1);
  EXPECT_THAT(rig.open(8, 8), ElementsAre("fetch sizes 10.0.0.1:80"))
      << "the next instance behind the address may have other sizes";
  EXPECT_THAT(rig.sizes(), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
}

TEST(receiver_session, a_silent_peer_is_lost_after_its_pings) {
  Limits limits = no_inline();
  limits.ping_interval = seconds(1);
  limits.ping_misses_max = 2;
  ReceiverRig rig(limits);
  rig.link(7, 7);
  EXPECT_THAT(rig.wait(seconds(5)), IsEmpty());
  rig.silent = true;
  EXPECT_THAT(rig.wait(seconds(3)),
              Contains("handle 7 is failed peer_lost: answered none of 2 pings (ping interval 1 s): hung, stopped or "
                       "unreachable @p1"));
}

TEST(receiver_session, a_process_that_was_stopped_asks_before_it_calls_its_peers_dead) {
  Limits limits = no_inline();
  limits.ping_interval = seconds(1);
  limits.ping_misses_max = 1;
  ReceiverRig rig(limits);
  rig.link(7, 7);
  rig.silent = true;
  EXPECT_THAT(rig.wait(seconds(1)), ElementsAre("send 1: ping 1"));
  EXPECT_THAT(rig.late(seconds(30)), ElementsAre("send 1: ping 2"));
  EXPECT_THAT(rig.hear(1, protocol::Pong{1}), IsEmpty()) << "it lay in the socket";
  EXPECT_THAT(rig.wait(seconds(1)), ElementsAre("send 1: ping 3"));
}

TEST(receiver_session, pings_are_answered) {
  ReceiverRig rig;
  rig.link(7, 7);
  EXPECT_THAT(rig.hear(1, protocol::Ping{5}), ElementsAre("send 1: pong 5"));
  EXPECT_THAT(rig.hear(1, protocol::Pong{5}), IsEmpty());
}

TEST(receiver_session, a_message_that_no_prefill_rank_says_ends_the_session) {
  ReceiverRig rig;
  rig.link(7, 7);
  EXPECT_THAT(rig.hear(1, protocol::Confirm{TransferId{70}}),
              Contains("handle 7 is failed protocol: sent Confirm, which no prefill rank says @p1"));
}

TEST(receiver_session, what_a_lost_session_says_is_counted_and_dropped) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.down(1);
  EXPECT_THAT(rig.hear_abort(7, 70), IsEmpty());
  EXPECT_EQ(rig.core().counters().late_messages, 1u);
}

TEST(receiver_session, a_movers_lost_session_is_a_lost_session) {
  ReceiverRig rig;
  rig.link(7, 7);
  const MoverEvent lost{SessionLost{SessionId{1}, Error{Code::peer_lost, "stream ended"}}};
  EXPECT_THAT(rig.on(lost), Contains("handle 7 is failed peer_lost: stream ended @p1"));
  EXPECT_THAT(rig.on(lost), IsEmpty());
}

TEST(receiver_session, wishes_for_a_handle_that_is_gone_change_nothing) {
  ReceiverRig rig;
  EXPECT_THAT(rig.init(9, {1}), IsEmpty());
  EXPECT_THAT(rig.abort(9), IsEmpty());
  EXPECT_THAT(rig.clear(9), IsEmpty());
}

}  // namespace
}  // namespace kvferry::core
