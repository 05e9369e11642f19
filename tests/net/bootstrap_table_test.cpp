#include "net/bootstrap_table.h"

#include <gtest/gtest.h>

namespace kvferry::net {
namespace {

using std::chrono::seconds;

constexpr Parallel two_ranks{.tp = 2, .dp = 1, .pp = 1};

Registration rank(std::uint32_t tp, Parallel parallel = two_ranks, const std::string& instance = "a") {
  Registration registration;
  registration.instance = instance;
  registration.parallel = parallel;
  registration.place = {.dp = 0, .tp = tp, .pp = 0};
  registration.address = {"10.0.0.1", static_cast<std::uint16_t>(9'000 + tp)};
  registration.leased = true;
  registration.ttl = seconds(15);
  return registration;
}

class Table : public ::testing::Test {
 protected:
  Result<RegistrationAnswer> put(const Registration& registration) {
    return table.put(registration, Bits128{7, ++leases}, now);
  }
  RegistrationAnswer must_put(const Registration& registration) {
    auto answer = put(registration);
    EXPECT_TRUE(answer) << answer.error().text;
    return answer ? *answer : RegistrationAnswer{};
  }
  Result<RegistrationAnswer> renew(Registration registration, const Bits128& lease) {
    registration.lease = lease;
    return put(registration);
  }
  Code code_of_route(std::uint32_t tp) { return table.route({.dp = 0, .tp = tp, .pp = 0}, now).error().code; }

  BootstrapTable table{16};
  Instant now{};
  std::uint64_t leases = 0;
};

TEST_F(Table, nothing_is_found_before_the_first_registration) {
  EXPECT_EQ(code_of_route(0), Code::try_later);
  EXPECT_EQ(table.sizes(now).error().code, Code::try_later);
}

TEST_F(Table, routes_only_once_every_rank_is_there_and_says_how_many_are) {
  must_put(rank(0));
  EXPECT_EQ(code_of_route(0), Code::try_later);
  EXPECT_NE(table.route({.dp = 0, .tp = 0, .pp = 0}, now).error().text.find("1 of 2"), std::string::npos);
  EXPECT_EQ(code_of_route(2), Code::unreachable) << "no waiting makes this one appear";
  must_put(rank(1));
  EXPECT_EQ(table.route({.dp = 0, .tp = 1, .pp = 0}, now)->address.port, 9'001);
  EXPECT_EQ(table.sizes(now)->parallel, two_ranks);
  EXPECT_EQ(table.sizes(now)->instance, "a");
}

TEST_F(Table, a_rank_that_is_gone_takes_no_other_rank_with_it) {
  must_put(rank(0));
  Registration forever = rank(1);
  forever.leased = false;
  must_put(forever);
  now += seconds(15);
  EXPECT_EQ(code_of_route(0), Code::try_later);
  EXPECT_TRUE(table.route({.dp = 0, .tp = 1, .pp = 0}, now));
  EXPECT_TRUE(table.sizes(now));
}

TEST_F(Table, a_lease_runs_out_unless_it_is_renewed) {
  const auto zero = must_put(rank(0));
  must_put(rank(1));
  now += seconds(14);
  const auto again = renew(rank(0), zero.lease);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->lease, zero.lease);
  EXPECT_EQ(again->generation, zero.generation);
  now += seconds(14);
  EXPECT_TRUE(table.route({.dp = 0, .tp = 0, .pp = 0}, now));
  EXPECT_EQ(code_of_route(1), Code::try_later);
  now += seconds(1);
  EXPECT_EQ(code_of_route(0), Code::try_later);
  EXPECT_EQ(table.ranks(), 0u);
}

TEST_F(Table, a_registration_without_a_lease_never_expires) {
  for (std::uint32_t tp = 0; tp < 2; ++tp) {
    Registration forever = rank(tp);
    forever.leased = false;
    must_put(forever);
  }
  now += std::chrono::hours(10'000);
  EXPECT_TRUE(table.route({.dp = 0, .tp = 0, .pp = 0}, now));
}

TEST_F(Table, a_restarted_rank_replaces_the_old_one_at_once_and_the_old_lease_is_refused) {
  const auto old = must_put(rank(0));
  must_put(rank(1));
  Registration restarted = rank(0);
  restarted.address.port = 9'100;
  const auto fresh = must_put(restarted);
  EXPECT_GT(fresh.generation, old.generation);
  EXPECT_EQ(renew(rank(0), old.lease).error().code, Code::already_exists);
  EXPECT_EQ(table.route({.dp = 0, .tp = 0, .pp = 0}, now)->address.port, 9'100)
      << "the refused renewal changed nothing";
  EXPECT_EQ(table.route({.dp = 0, .tp = 0, .pp = 0}, now)->generation, fresh.generation);
}

TEST_F(Table, a_replaced_lease_stays_refused_after_its_successor_is_gone) {
  const auto old = must_put(rank(0));
  const auto fresh = must_put(rank(0));
  table.remove(fresh.lease);
  EXPECT_EQ(renew(rank(0), old.lease).error().code, Code::already_exists);
}

TEST_F(Table, a_renewal_that_the_server_has_forgotten_registers_anew) {
  const auto answer = renew(rank(0), Bits128{1, 1});
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->lease, (Bits128{1, 1}));
  EXPECT_EQ(answer->generation, 1u);
}

TEST_F(Table, after_a_server_restart_the_later_start_gets_the_place_whoever_comes_first) {
  Registration older = rank(0);
  older.start_number = 10;
  Registration younger = rank(0);
  younger.start_number = 20;
  const auto first = renew(older, Bits128{1, 1});
  const auto second = renew(younger, Bits128{1, 2});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(renew(older, first->lease).error().code, Code::already_exists);
  EXPECT_EQ(put(older).error().code, Code::mismatch) << "waits for the lease of the later one to run out";
  now += seconds(15);
  EXPECT_TRUE(put(older));
}

TEST_F(Table, after_a_server_restart_a_later_instance_is_not_locked_out_by_an_older_one) {
  Registration older = rank(0, two_ranks, "old");
  older.start_number = 10;
  Registration younger = rank(0, two_ranks, "new");
  younger.start_number = 20;
  ASSERT_TRUE(renew(older, Bits128{1, 1}));
  ASSERT_TRUE(renew(younger, Bits128{1, 2}));
  EXPECT_EQ(table.instance(), "new");
  EXPECT_EQ(renew(older, Bits128{1, 1}).error().code, Code::already_exists);
}

TEST_F(Table, generations_grow_through_every_kind_of_replacement) {
  std::uint64_t last = 0;
  for (const auto& [tp_size, instance] : {std::pair{2u, "a"}, {2u, "a"}, {4u, "b"}, {1u, "c"}, {4u, "b"}}) {
    const auto answer = must_put(rank(0, {.tp = tp_size, .dp = 1, .pp = 1}, instance));
    EXPECT_GT(answer.generation, last);
    last = answer.generation;
  }
  const std::uint64_t unseen = must_put(rank(3, {.tp = 4, .dp = 1, .pp = 1}, "b")).generation;
  must_put(rank(0, {.tp = 1, .dp = 1, .pp = 1}, "c"));
  EXPECT_GT(must_put(rank(3, {.tp = 4, .dp = 1, .pp = 1}, "b")).generation, unseen) << "through a forgotten place too";
}

TEST_F(Table, another_instance_name_replaces_everything) {
  const auto old = must_put(rank(0));
  must_put(rank(1));
  must_put(rank(0, two_ranks, "b"));
  EXPECT_EQ(table.instance(), "b");
  EXPECT_EQ(table.ranks(), 1u);
  EXPECT_EQ(code_of_route(1), Code::try_later);
  EXPECT_EQ(renew(rank(0), old.lease).error().code, Code::already_exists);
}

TEST_F(Table, new_sizes_wait_until_nothing_of_the_old_lives) {
  must_put(rank(0));
  const Parallel four{.tp = 4, .dp = 1, .pp = 1};
  const auto refused = put(rank(0, four));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::mismatch);
  EXPECT_NE(refused.error().text.find("tp 2 x dp 1"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find("tp 4 x dp 1"), std::string::npos) << refused.error().text;
  now += seconds(15);
  EXPECT_TRUE(put(rank(0, four)));
}

TEST_F(Table, new_sizes_of_an_engine_without_leases_replace_at_once) {
  Registration forever = rank(1, two_ranks, "");
  forever.leased = false;
  must_put(forever);
  Registration restarted = rank(0, {.tp = 4, .dp = 1, .pp = 1}, "");
  restarted.leased = false;
  must_put(restarted);
  EXPECT_EQ(table.ranks(), 1u);
}

TEST_F(Table, removal_takes_the_named_lease_and_no_other) {
  const auto zero = must_put(rank(0));
  must_put(rank(1));
  table.remove(Bits128{9, 9});
  EXPECT_EQ(table.ranks(), 2u);
  table.remove(zero.lease);
  EXPECT_EQ(table.ranks(), 1u);
  EXPECT_EQ(code_of_route(0), Code::try_later);
}

TEST_F(Table, places_outside_of_the_sizes_and_sizes_that_do_not_fit_are_refused) {
  EXPECT_EQ(put(rank(2)).error().code, Code::invalid_argument);
  EXPECT_EQ(put(rank(0, {.tp = 17, .dp = 1, .pp = 1})).error().code, Code::try_later);
  EXPECT_EQ(put(rank(0, {.tp = 65'536, .dp = 65'536, .pp = 65'536})).error().code, Code::try_later);
  EXPECT_EQ(put(rank(0, {.tp = 2, .dp = 1, .pp = 0})).error().code, Code::invalid_argument);
  EXPECT_EQ(table.ranks(), 0u);
}

TEST_F(Table, groups_and_pipeline_ranks_are_places_of_their_own) {
  const Parallel parallel{.tp = 1, .dp = 2, .pp = 2};
  for (std::uint32_t dp = 0; dp < 2; ++dp) {
    for (std::uint32_t pp = 0; pp < 2; ++pp) {
      Registration registration = rank(0, parallel);
      registration.place = {.dp = dp, .tp = 0, .pp = pp};
      registration.address.port = static_cast<std::uint16_t>(100 + 10 * dp + pp);
      must_put(registration);
    }
  }
  EXPECT_EQ(table.route({.dp = 1, .tp = 0, .pp = 0}, now)->address.port, 110);
  EXPECT_EQ(table.route({.dp = 0, .tp = 0, .pp = 1}, now)->address.port, 101);
}

}  // namespace
}  // namespace kvferry::net
