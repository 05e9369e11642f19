// Random lives of a small instance against what must always hold.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "net/bootstrap_table.h"

namespace kvferry::net {
namespace {

struct Known {
  Instant expires{};
  bool leased = false;
  Bits128 lease;
};

// What the table may answer, kept in the most stupid way: everything of the present instance that has not run out.
struct Model {
  std::string instance;
  std::map<Place, Known> known;
};

Registration draw_registration() {
  Registration registration;
  registration.instance = *rc::gen::element<std::string>("a", "b");
  registration.parallel = {.tp = 2, .dp = *rc::gen::inRange<std::uint32_t>(1, 3), .pp = 1};
  registration.place = {.dp = *rc::gen::inRange<std::uint32_t>(0, registration.parallel.dp),
                        .tp = *rc::gen::inRange<std::uint32_t>(0, 2),
                        .pp = 0};
  registration.address = {"10.0.0.1", *rc::gen::inRange<std::uint16_t>(1, 60'000)};
  registration.leased = *rc::gen::inRange(0, 4) != 0;
  registration.ttl = std::chrono::seconds(*rc::gen::inRange(1, 20));
  return registration;
}

void check_routes(BootstrapTable& table, const Model& model, Instant now) {
  for (std::uint32_t dp = 0; dp < 2; ++dp) {
    for (std::uint32_t tp = 0; tp < 2; ++tp) {
      const auto route = table.route({.dp = dp, .tp = tp}, now);
      if (!route) continue;
      const auto known = model.known.find(Place{.dp = dp, .tp = tp, .pp = 0});
      RC_ASSERT(known != model.known.end());
      RC_ASSERT(!known->second.leased || known->second.expires > now);
      RC_ASSERT(route->instance == model.instance);
    }
  }
}

TEST(BootstrapTableProperties, generations_grow_and_no_route_outlives_its_lease) {
  rc::check([] {
    BootstrapTable table;
    Model model;
    std::map<Place, std::uint64_t> generations;
    std::vector<std::pair<Registration, Bits128>> given;
    Instant now{};
    std::uint64_t leases = 0;
    const int steps = *rc::gen::inRange(1, 60);
    for (int step = 0; step < steps; ++step) {
      now += std::chrono::seconds(*rc::gen::inRange(0, 8));
      Registration registration = draw_registration();
      if (!given.empty() && *rc::gen::arbitrary<bool>()) {
        const auto& earlier = *rc::gen::elementOf(given);
        registration = earlier.first;
        registration.lease = earlier.second;
      }
      const Bits128 fresh{1, ++leases};
      const auto answer = table.put(registration, fresh, now);
      if (answer) {
        const bool renewed = answer->lease != fresh;
        std::uint64_t& last = generations[registration.place];
        RC_ASSERT((renewed ? answer->generation == last : answer->generation > last));
        last = answer->generation;
        if (renewed) RC_ASSERT(model.known.at(registration.place).lease == *registration.lease);
        if (table.instance() != model.instance || table.ranks() == 1) model = {table.instance(), {}};
        model.known[registration.place] = {now + registration.ttl, registration.leased, answer->lease};
        registration.lease.reset();
        given.emplace_back(registration, answer->lease);
      }
      check_routes(table, model, now);
      check_routes(table, model, now + std::chrono::seconds(3));
      now += std::chrono::seconds(3);
    }
  });
}

TEST(BootstrapTableProperties, a_replaced_lease_never_comes_back_while_its_successor_lives) {
  rc::check([] {
    BootstrapTable table;
    Instant now{};
    Registration registration = draw_registration();
    registration.leased = true;
    const auto old = table.put(registration, Bits128{1, 1}, now);
    RC_ASSERT(old.has_value());
    const int successors = *rc::gen::inRange(1, 4);
    for (int i = 0; i < successors; ++i) {
      RC_ASSERT(table.put(registration, Bits128{2, static_cast<std::uint64_t>(i)}, now).has_value());
    }
    now += std::chrono::milliseconds(*rc::gen::inRange(0, 30'000));
    registration.lease = old->lease;
    const auto renewal = table.put(registration, Bits128{3, 3}, now);
    RC_ASSERT(!renewal.has_value());
    RC_ASSERT(renewal.error().code == Code::already_exists);
  });
}

}  // namespace
}  // namespace kvferry::net
