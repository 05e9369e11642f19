#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tools/chaos_faults.h"
#include "tools/chaos_ledger.h"
#include "tools/chaos_load.h"

namespace kvferry::tools {
namespace {

const std::vector<FaultKind> all_kinds{FaultKind::kill, FaultKind::stop,  FaultKind::pause,
                                       FaultKind::cut,  FaultKind::delay, FaultKind::bootstrap};

TEST(ChaosFaults, every_name_reads_back) {
  for (const FaultKind kind : all_kinds) EXPECT_EQ(fault_named(fault_name(kind)), kind);
  EXPECT_FALSE(fault_named("earthquake"));
}

TEST(ChaosFaults, a_seed_draws_the_same_trouble_again_and_another_seed_other_trouble) {
  FaultPlan plan{.seed = 5, .seconds = 60, .kinds = all_kinds};
  const auto first = draw_faults(plan);
  const auto again = draw_faults(plan);
  ASSERT_EQ(first.size(), again.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].at_s, again[i].at_s);
    EXPECT_EQ(first[i].worker, again[i].worker);
    EXPECT_EQ(first[i].kind, again[i].kind);
  }
  plan.seed = 6;
  EXPECT_NE(draw_faults(plan).front().lasts_s, first.front().lasts_s);
}

TEST(ChaosFaults, trouble_leaves_half_of_each_role_alone_and_is_over_in_time) {
  std::map<FaultKind, std::size_t> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const FaultPlan plan{.seed = seed, .prefill = 4, .decode = 3, .seconds = 30, .every_s = 0.3, .kinds = all_kinds};
    const auto faults = draw_faults(plan);
    for (const Fault& fault : faults) {
      ++seen[fault.kind];
      EXPECT_LE(fault.at_s + fault.lasts_s, plan.seconds);
      ASSERT_LT(fault.worker, plan.prefill + plan.decode);
      const bool first_of_its_role = fault.worker == 0 || fault.worker == plan.prefill;
      EXPECT_FALSE(fault.kind == FaultKind::kill && first_of_its_role);
      EXPECT_FALSE(fault.kind == FaultKind::bootstrap && fault.worker >= plan.prefill);
      std::size_t prefills = 0;
      std::size_t decodes = 0;
      for (const Fault& other : faults) {
        if (other.at_s > fault.at_s || other.at_s + other.lasts_s < fault.at_s) continue;
        ++(other.worker < plan.prefill ? prefills : decodes);
        EXPECT_FALSE(&other != &fault && other.worker == fault.worker);
      }
      EXPECT_LE(prefills, 2u);
      EXPECT_LE(decodes, 1u);
    }
  }
  for (const FaultKind kind : all_kinds) EXPECT_GT(seen[kind], 0u) << fault_name(kind);
}

// Two prefill workers (0, 1) and one decode worker (2).
ChaosLedger ledger() { return ChaosLedger(2, 1, {.orphan_s = 3, .hang_s = 60, .grace_s = 1}); }
RoomOutcome succeeded(std::uint64_t room) { return {.room = room, .bytes = 100}; }
RoomOutcome failed(std::uint64_t room) { return {.room = room, .error = "peer_lost"}; }

TEST(ChaosLedger, a_room_ends_when_both_sides_have_said_so) {
  ChaosLedger book = ledger();
  book.begin(1, 0, 2, 0);
  book.hear(2, succeeded(1), 1);
  EXPECT_EQ(book.live(), 1u);
  EXPECT_EQ(book.in_flight(2), 0u);
  EXPECT_EQ(book.in_flight(0), 1u);
  book.hear(0, succeeded(1), 1);
  EXPECT_EQ(book.live(), 0u);
  EXPECT_EQ(book.totals().succeeded, 1u);
  EXPECT_EQ(book.totals().bytes, 100u);
}

TEST(ChaosLedger, a_room_may_fail_with_who_is_in_trouble_and_with_nobody_else) {
  ChaosLedger book = ledger();
  book.begin(1, 0, 2, 0);
  book.begin(2, 1, 2, 0);
  const std::size_t fault = book.fault_began({.kind = FaultKind::kill, .worker = 0}, 1);
  book.lose(0, 1.1);
  book.hear(2, failed(1), 1.2);
  book.hear(2, failed(2), 1.2);
  book.hear(1, failed(2), 1.2);
  EXPECT_EQ(book.totals().failed, 1u);
  EXPECT_EQ(book.totals().healthy_failures, 1u);
  ASSERT_EQ(book.complaints().size(), 1u);
  EXPECT_NE(book.complaints()[0].find("room 2"), std::string::npos);
  EXPECT_EQ(book.faults()[fault].rooms_failed, 1u);
  EXPECT_DOUBLE_EQ(*book.faults()[fault].noticed_s, 1.2);
}

TEST(ChaosLedger, a_pause_and_a_lost_bootstrap_server_excuse_nothing) {
  for (const FaultKind kind : {FaultKind::pause, FaultKind::bootstrap, FaultKind::delay}) {
    ChaosLedger book = ledger();
    book.begin(1, 0, 2, 0);
    book.fault_began({.kind = kind, .worker = 0}, 1);
    book.hear(2, failed(1), 2);
    book.hear(0, failed(1), 2);
    EXPECT_EQ(book.totals().healthy_failures, 1u) << fault_name(kind);
  }
}

TEST(ChaosLedger, a_sender_that_fails_though_the_bytes_arrived_is_no_success_without_trouble) {
  ChaosLedger book = ledger();
  book.begin(1, 0, 2, 0);
  book.hear(2, succeeded(1), 1);
  book.hear(0, failed(1), 1);
  EXPECT_EQ(book.totals().succeeded, 0u);
  EXPECT_EQ(book.totals().healthy_failures, 1u);
}

TEST(ChaosLedger, a_wrong_byte_is_wrong_whoever_was_in_trouble) {
  ChaosLedger book = ledger();
  book.begin(1, 0, 2, 0);
  book.fault_began({.kind = FaultKind::kill, .worker = 0}, 1);
  RoomOutcome outcome = succeeded(1);
  outcome.wrong_items = 3;
  book.hear(2, outcome, 1);
  book.lose(0, 1);
  EXPECT_EQ(book.totals().wrong, 1u);
  EXPECT_EQ(book.totals().succeeded, 0u);
}

TEST(ChaosLedger, who_was_left_behind_is_told_once) {
  ChaosLedger book = ledger();
  book.begin(1, 0, 2, 0);
  book.fault_began({.kind = FaultKind::kill, .worker = 2}, 1);
  book.lose(2, 1);
  EXPECT_TRUE(book.due(3.9).empty());
  const auto orders = book.due(4.1);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].worker, 0u);
  EXPECT_EQ(orders[0].room, 1u);
  EXPECT_TRUE(book.due(4.2).empty());
  book.hear(0, failed(1), 4.3);
  EXPECT_EQ(book.totals().failed, 1u);
  EXPECT_EQ(book.totals().healthy_failures, 0u);
}

TEST(ChaosLedger, a_room_without_an_end_is_hung_once_its_workers_have_been_calm_for_long) {
  ChaosLedger book = ledger();
  book.begin(1, 0, 2, 0);
  const std::size_t fault = book.fault_began({.kind = FaultKind::stop, .worker = 0}, 1);
  (void)book.due(1000);
  EXPECT_EQ(book.totals().hung, 0u);
  book.fault_ended(fault, 1000);
  (void)book.due(1059);
  EXPECT_EQ(book.totals().hung, 0u);
  (void)book.due(1061);
  EXPECT_EQ(book.totals().hung, 1u);
  EXPECT_EQ(book.in_flight(0), 0u);
  book.begin(2, 1, 2, 1061);
  book.close();
  EXPECT_EQ(book.totals().hung, 2u);
}

TEST(ChaosLedger, recovery_is_the_first_new_room_that_succeeds_after_the_end) {
  ChaosLedger book = ledger();
  book.begin(1, 0, 2, 0);
  const std::size_t fault = book.fault_began({.kind = FaultKind::stop, .worker = 0}, 1);
  book.fault_ended(fault, 3);
  book.hear(2, succeeded(1), 3.1);
  book.hear(0, succeeded(1), 3.1);
  EXPECT_FALSE(book.faults()[fault].recovered_s) << "the room began before the end";
  book.begin(2, 0, 2, 3.2);
  book.hear(2, succeeded(2), 3.4);
  book.hear(0, succeeded(2), 3.4);
  ASSERT_TRUE(book.faults()[fault].recovered_s);
  EXPECT_DOUBLE_EQ(*book.faults()[fault].recovered_s, 3.4);
}

TEST(ChaosLoad, requests_have_a_block_for_each_512_tokens_and_share_prefixes) {
  const auto requests = draw_requests(1, 500);
  ASSERT_EQ(requests.size(), 500u);
  std::map<std::uint64_t, std::size_t> uses;
  for (const TraceRequest& request : requests) {
    EXPECT_EQ(request.hash_ids.size(), (request.input_tokens + trace_block_tokens - 1) / trace_block_tokens);
    for (const std::uint64_t hash : request.hash_ids) ++uses[hash];
  }
  EXPECT_GT(std::ranges::count_if(uses, [](const auto& use) { return use.second > 1; }), 100);
}

}  // namespace
}  // namespace kvferry::tools
