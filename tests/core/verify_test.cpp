// The end-to-end check: sums on both sides, compared before success is shown.
#include "core/rig.h"

namespace kvferry::core {
namespace {

constexpr std::uint32_t good = 0xabcd;

class VerifyingReceiver : public ReceiverRig {
 public:
  explicit VerifyingReceiver(DataPath path = DataPath::push) : ReceiverRig(verifying()) {
    link(7, 7, path);
    init(7, {4, 5}, 3);
  }
  Lines summed(std::uint32_t crc) { return on(MoverEvent{Summed{SessionId{1}, TransferId{70}, crc}}); }
  Lines hear_sum(std::uint32_t crc) { return hear(1, protocol::Sum{TransferId{70}, crc}); }
  Lines whole() {
    placed(70, span(0, 0, 2, true), true);
    return window_closed(70);
  }
};

TEST(verify, the_grant_asks_for_it) {
  ReceiverRig rig(verifying());
  rig.link(7, 7);
  EXPECT_THAT(rig.init(7, {4}), Contains("send 1: grant room 7 transfer 70 pages [0, 1) verify"));
}

TEST(verify, success_waits_for_both_sums) {
  const auto succeeds =
      ElementsAre("send 1: confirm 70", "handle 7 layers 1", "handle 7 is success", "handle 7 released");
  VerifyingReceiver sum_first;
  EXPECT_THAT(sum_first.hear_sum(good), IsEmpty());
  EXPECT_THAT(sum_first.whole(), ElementsAre("sum 1 transfer 70 0:{4 5} 1:{3}"));
  EXPECT_THAT(sum_first.summed(good), succeeds);
  VerifyingReceiver sum_last;
  sum_last.whole();
  EXPECT_THAT(sum_last.summed(good), IsEmpty());
  EXPECT_THAT(sum_last.hear_sum(good), succeeds);
}

TEST(verify, other_bytes_fail_the_room_with_both_sums_and_free_the_senders_pages) {
  VerifyingReceiver rig(DataPath::pull);
  rig.hear_sum(good);
  rig.whole();
  EXPECT_THAT(
      rig.summed(good + 1),
      ElementsAre("handle 7 is failed corrupt: the checksum of what prefill sent is 0000abcd, that of what "
                  "stands here is 0000abce @p1",
                  HasSubstr("send 1: abort room 7 transfer 70 corrupt"), "send 1: closed 70", "handle 7 released"));
}

TEST(verify, pages_are_not_released_while_they_are_summed_up) {
  VerifyingReceiver rig;
  rig.whole();
  EXPECT_THAT(rig.abort(7), Not(Contains("handle 7 released")));
  EXPECT_EQ(rig.core().counters().quarantined_pages, 2u);
  EXPECT_THAT(rig.summed(good), ElementsAre("handle 7 released"));
  EXPECT_EQ(rig.core().counters().quarantined_pages, 0u);
}

TEST(verify, a_room_that_has_not_been_compared_needs_its_session) {
  VerifyingReceiver rig;
  rig.whole();
  EXPECT_THAT(rig.down(1), Contains("handle 7 is failed peer_lost: connection reset @p1"));
  EXPECT_THAT(rig.summed(good), ElementsAre("handle 7 released"));
  VerifyingReceiver aborted;
  aborted.whole();
  EXPECT_THAT(aborted.hear_abort(7, 70), Contains(HasSubstr("handle 7 is failed peer_aborted")));
}

TEST(verify, a_sum_nobody_asked_for_or_a_second_one_changes_nothing) {
  ReceiverRig plain;
  plain.link(7, 7);
  plain.init(7, {4, 5});
  EXPECT_THAT(plain.hear(1, protocol::Sum{TransferId{70}, good}), IsEmpty());
  VerifyingReceiver twice;
  twice.hear_sum(good);
  EXPECT_THAT(twice.hear_sum(good + 1), IsEmpty());
  EXPECT_EQ(twice.core().counters().late_messages, 1u);
  twice.whole();
  EXPECT_THAT(twice.summed(good), Contains("handle 7 is success"));
}

class AskedSender : public SenderRig {
 public:
  explicit AskedSender(DataPath path = DataPath::push) {
    link(1, path);
    open(7, 7);
    auto grant = make_grant(7, 70, 3);
    grant.with_aux = true;
    grant.verify = true;
    hear(1, grant);
    init(7, 3, 5);
  }
  Lines summed(std::uint32_t crc) { return on(MoverEvent{Summed{SessionId{1}, TransferId{70}, crc}}); }
};

TEST(verify, the_sender_sums_up_all_chunks_with_the_last_one) {
  AskedSender rig;
  EXPECT_THAT(rig.send(7, {1, 2}), Not(Contains(HasSubstr("sum"))));
  EXPECT_THAT(rig.send(7, {9}), Contains("sum 1 transfer 70 0:{1 2 9} 1:{5}"));
  EXPECT_THAT(rig.summed(good), ElementsAre("send 1: sum 70 43981"));
}

TEST(verify, the_senders_pages_are_not_released_while_they_are_summed_up) {
  AskedSender rig(DataPath::pull);
  rig.send(7, {1, 2, 9});
  rig.hear(1, protocol::Abort{RoomId{7}, TransferId{70}, Code::aborted, "gone"});
  EXPECT_THAT(rig.hear(1, protocol::Closed{TransferId{70}}), IsEmpty());
  EXPECT_THAT(rig.summed(good), ElementsAre("handle 7 released"));
}

TEST(verify, a_lost_session_gets_no_sum) {
  AskedSender rig;
  rig.send(7, {1, 2, 9});
  rig.down(1);
  rig.on(MoverEvent{SessionClosed{SessionId{1}}});
  EXPECT_THAT(rig.summed(good), ElementsAre("handle 7 released"));
}

}  // namespace
}  // namespace kvferry::core
