// From a bootstrap address to linked ranks.
#include "core/rig.h"

namespace kvferry::core {
namespace {

const Error nobody{Code::unreachable, "connection refused"};

TEST(receiver_route, a_room_asks_for_sizes_then_for_its_rank_then_dials_it) {
  ReceiverRig rig;
  EXPECT_THAT(rig.open(7, 7), ElementsAre("fetch sizes 10.0.0.1:80"));
  EXPECT_THAT(rig.sizes(), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
  EXPECT_THAT(rig.route(1), ElementsAre("dial 10.0.0.1:80 dp 0 tp 0 at 10.0.0.9:9000"));
  EXPECT_THAT(rig.up(1, 1), ElementsAre("handle 7 is waiting_for_input"));
}

TEST(receiver_route, rooms_that_come_meanwhile_share_the_asking) {
  ReceiverRig rig;
  rig.open(7, 7);
  EXPECT_THAT(rig.open(8, 8), IsEmpty());
  EXPECT_THAT(rig.sizes(), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
  EXPECT_THAT(rig.open(9, 9), IsEmpty());
  rig.route(1);
  EXPECT_THAT(rig.up(1, 1), ElementsAre("handle 7 is waiting_for_input", "handle 8 is waiting_for_input",
                                        "handle 9 is waiting_for_input"));
  EXPECT_THAT(rig.open(10, 10), ElementsAre("handle 10 is waiting_for_input"));
}

TEST(receiver_route, addresses_are_compared_whole) {
  ReceiverRig rig;
  rig.link(7, 7);
  EXPECT_THAT(rig.open(8, 8, bootstrap_address("10.0.0.1", 8000)), ElementsAre("fetch sizes 10.0.0.1:8000"));
  EXPECT_THAT(rig.open(9, 9, bootstrap_address("10.0.0.11", 80)), ElementsAre("fetch sizes 10.0.0.11:80"));
  EXPECT_THAT(rig.down(1), Not(Contains(HasSubstr("handle 8"))));
}

TEST(receiver_route, the_dp_group_is_the_balancers_choice_or_the_rooms_number) {
  ReceiverRig rig;
  rig.open(7, 7);
  EXPECT_THAT(rig.sizes(bootstrap_address(), 4), ElementsAre("fetch route 10.0.0.1:80 dp 3 tp 0"));
  EXPECT_THAT(rig.open(8, 8, bootstrap_address(), 2), ElementsAre("fetch route 10.0.0.1:80 dp 2 tp 0"));
  EXPECT_THAT(rig.open(9, 9, bootstrap_address(), 4),
              ElementsAre("handle 9 is failed out_of_range: dp group 4 was chosen, the instance has 4 (0 to 3) "
                          "@10.0.0.1:80",
                          "handle 9 released"));
}

TEST(receiver_route, a_bootstrap_server_that_is_not_there_yet_is_asked_again_with_growing_waits) {
  Limits limits = no_inline();
  limits.retry_min = milliseconds(20);
  limits.retry_max = milliseconds(50);
  ReceiverRig rig(limits);
  rig.open(7, 7);
  for (const int wait : {20, 40, 50, 50}) {
    EXPECT_THAT(rig.sizes_failed(nobody), IsEmpty());
    EXPECT_THAT(rig.wait(milliseconds(wait - 1)), IsEmpty());
    EXPECT_THAT(rig.wait(milliseconds(1)), ElementsAre("fetch sizes 10.0.0.1:80"));
  }
  EXPECT_THAT(rig.sizes(), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
}

TEST(receiver_route, nobody_is_asked_for_rooms_that_have_ended) {
  ReceiverRig rig;
  rig.open(7, 7);
  rig.sizes_failed(nobody);
  rig.abort(7);
  EXPECT_THAT(rig.wait(seconds(10)), IsEmpty());
  rig.clear(7);
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(receiver_route, an_answer_that_cannot_get_better_fails_the_rooms_at_once) {
  ReceiverRig rig;
  rig.open(7, 7);
  EXPECT_THAT(rig.sizes_failed(Error{Code::unauthorized, "wrong token"}),
              ElementsAre("handle 7 is failed unauthorized: wrong token @10.0.0.1:80", "handle 7 released"));
  EXPECT_THAT(rig.open(8, 8), ElementsAre("fetch sizes 10.0.0.1:80")) << "the next room asks again";
}

TEST(receiver_route, a_refused_dial_fetches_the_route_anew) {
  ReceiverRig rig;
  rig.open(7, 7);
  rig.sizes();
  rig.route(1);
  EXPECT_THAT(rig.dial_failed(nobody), IsEmpty());
  EXPECT_THAT(rig.wait(milliseconds(20)), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
  EXPECT_THAT(rig.route(2), ElementsAre("dial 10.0.0.1:80 dp 0 tp 0 at 10.0.0.9:9000"));
  EXPECT_THAT(rig.up(1, 2), ElementsAre("handle 7 is waiting_for_input"));
}

TEST(receiver_route, a_mismatch_found_at_link_time_fails_the_rooms_that_wait) {
  ReceiverRig rig;
  rig.open(7, 7);
  rig.open(8, 8);
  rig.sizes();
  rig.route(1);
  EXPECT_THAT(rig.dial_failed(Error{Code::mismatch, "page_tokens: prefill has 16, decode has 32"}),
              ElementsAre("handle 7 is failed mismatch: page_tokens: prefill has 16, decode has 32 @10.0.0.1:80",
                          "handle 7 released",
                          "handle 8 is failed mismatch: page_tokens: prefill has 16, decode has 32 @10.0.0.1:80",
                          "handle 8 released"));
  EXPECT_THAT(rig.open(9, 9), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0")) << "nothing stays barred";
}

TEST(receiver_route, a_missing_route_asks_for_the_sizes_again_too) {
  ReceiverRig rig;
  rig.open(7, 7);
  EXPECT_THAT(rig.sizes(bootstrap_address(), 2), ElementsAre("fetch route 10.0.0.1:80 dp 1 tp 0"));
  EXPECT_THAT(rig.route_failed(Error{Code::unreachable, "no rank 1"}, ReceiverRig::key(bootstrap_address(), 1)),
              IsEmpty());
  EXPECT_THAT(rig.wait(milliseconds(20)), ElementsAre("fetch sizes 10.0.0.1:80"));
  EXPECT_THAT(rig.sizes(bootstrap_address(), 1), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
}

TEST(receiver_route, another_instance_behind_the_address_is_a_restart) {
  ReceiverRig rig;
  rig.open(7, 7);
  rig.sizes(bootstrap_address(), 2, "old");
  EXPECT_THAT(rig.route(1, ReceiverRig::key(bootstrap_address(), 1), "young"), IsEmpty());
  EXPECT_THAT(rig.wait(milliseconds(20)), ElementsAre("fetch sizes 10.0.0.1:80"));
  EXPECT_THAT(rig.sizes(bootstrap_address(), 1, "young"), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
}

TEST(receiver_route, another_rank_at_the_address_is_not_taken_for_the_one_that_was_meant) {
  ReceiverRig rig;
  rig.open(7, 7);
  rig.sizes();
  rig.route(1);
  EXPECT_THAT(rig.on(event::SessionUp{SessionId{1}, ReceiverRig::identity(1, Place{.tp = 3}), "p1", DataPath::push,
                                      ReceiverRig::key(), whole_pairing()}),
              ElementsAre("close session 1 unreachable: another rank answers there: dp 0 tp 3 pp 0 cp 0 @p1",
                          "close mover session 1"));
  rig.session_closed(1);
  EXPECT_THAT(rig.wait(milliseconds(20)), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
}

TEST(receiver_route, one_process_behind_two_bootstrap_addresses_is_linked_once) {
  ReceiverRig rig;
  const Address other = bootstrap_address("10.0.0.2");
  rig.link(7, 7);
  rig.open(8, 8, other);
  rig.sizes(other);
  EXPECT_THAT(rig.route(1, ReceiverRig::key(other)), ElementsAre("handle 8 is waiting_for_input"));
  const Lines lines = rig.down(1);
  EXPECT_THAT(lines, Contains(HasSubstr("handle 7 is failed")));
  EXPECT_THAT(lines, Contains(HasSubstr("handle 8 is failed")));
}

TEST(receiver_route, a_lost_process_is_not_dialled_before_its_windows_are_closed) {
  ReceiverRig rig;
  rig.link(7, 7, DataPath::pull);
  rig.init(7, {1});
  rig.down(1);
  rig.open(8, 8);
  rig.sizes();
  EXPECT_THAT(rig.route(1), IsEmpty());
  EXPECT_THAT(rig.wait(milliseconds(20)), ElementsAre("fetch route 10.0.0.1:80 dp 0 tp 0"));
  EXPECT_THAT(rig.route(1), IsEmpty());
  rig.window_closed(70);
  rig.session_closed(1);
  rig.wait(milliseconds(20));
  EXPECT_THAT(rig.route(1), Contains(HasSubstr("dial")));
}

TEST(receiver_route, a_rank_that_registered_without_incarnation_is_held_back_too) {
  ReceiverRig rig;
  rig.link(7, 7, DataPath::pull);
  rig.init(7, {1});
  rig.down(1);
  rig.open(8, 8);
  rig.sizes();
  EXPECT_THAT(rig.route(0), IsEmpty());
  rig.session_closed(1);
  rig.wait(milliseconds(20));
  EXPECT_THAT(rig.route(0), Contains(HasSubstr("dial")));
}

TEST(receiver_route, the_restarted_process_is_dialled_at_once) {
  ReceiverRig rig;
  rig.link(7, 7);
  rig.init(7, {1});
  rig.down(1);
  rig.open(8, 8);
  rig.sizes();
  EXPECT_THAT(rig.route(2), Contains(HasSubstr("dial")));
}

TEST(receiver_route, the_waiting_timeout_says_what_the_last_try_met) {
  Limits limits = no_inline();
  limits.waiting_timeout = seconds(3);
  limits.retry_min = limits.retry_max = seconds(2);
  {
    ReceiverRig rig(limits);
    rig.open(7, 7);
    rig.sizes_failed(nobody);
    rig.wait(seconds(2));
    EXPECT_THAT(rig.wait(seconds(1)),
                ElementsAre("handle 7 is failed timeout: the prefill ranks were not linked within the waiting timeout "
                            "of 3 s; last answer of the bootstrap server: connection refused @10.0.0.1:80",
                            "handle 7 released"));
  }
  ReceiverRig rig(limits);
  rig.open(7, 7);
  rig.sizes();
  rig.route(1);
  rig.dial_failed(Error{Code::unreachable, "no answer in 5 s"});
  rig.wait(seconds(2));
  EXPECT_THAT(rig.wait(seconds(1)),
              ElementsAre("handle 7 is failed timeout: the prefill ranks were not linked within the waiting timeout of "
                          "3 s; last try: no answer in 5 s @10.0.0.1:80",
                          "handle 7 released"));
}

TEST(receiver_route, a_link_that_nobody_dialled_is_closed) {
  ReceiverRig rig;
  EXPECT_THAT(rig.up(1, 1), ElementsAre("close session 1 peer_lost: the link is not needed", "close mover session 1"));
  rig.session_closed(1);
  EXPECT_EQ(rig.core().held(), std::nullopt);
}

TEST(receiver_route, a_dial_that_succeeds_after_its_room_ended_stays_for_the_next) {
  ReceiverRig rig;
  rig.open(7, 7);
  rig.sizes();
  rig.route(1);
  rig.abort(7);
  EXPECT_THAT(rig.up(1, 1), IsEmpty());
  EXPECT_THAT(rig.open(8, 8), ElementsAre("handle 8 is waiting_for_input"));
}

TEST(receiver_route, answers_that_nobody_asked_for_change_nothing) {
  ReceiverRig rig;
  EXPECT_THAT(rig.sizes(), IsEmpty());
  EXPECT_THAT(rig.route(1), IsEmpty());
  EXPECT_THAT(rig.route_failed(nobody), IsEmpty());
  EXPECT_THAT(rig.dial_failed(nobody), IsEmpty());
  EXPECT_THAT(rig.down(1), IsEmpty());
  EXPECT_THAT(rig.session_closed(1), IsEmpty());
  EXPECT_THAT(rig.wait(seconds(1000)), IsEmpty());
}

}  // namespace
}  // namespace kvferry::core
