#include "sim/world.h"

#include <algorithm>

#include "base/assert.h"

namespace kvferry::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr std::uint64_t steps_max = 3'000'000;

Swarm draw_swarm(const SimOptions& options, Prng& prng) {
  Swarm swarm = Swarm::draw(prng);
  if (!options.faults.empty()) swarm.keep_only(options.faults);
  swarm.verify = swarm.verify || options.verify;
  if (swarm.reborn) swarm.jump = false;  // of two that live the higher start number wins, whoever is the younger
  return swarm;
}

bool is_dead(const Process* process) { return process == nullptr || !process->alive; }

}  // namespace

World::World(const SimOptions& given)
    : options(given),
      prng(given.seed),
      swarm(draw_swarm(options, prng)),
      limits(draw_limits(swarm, prng)),
      judge(schedule, given.story),
      network(*this),
      engine(*this),
      registered_(given.prefill),
      epoch_(given.prefill) {
  for (std::size_t prefill = 0; prefill < options.prefill; ++prefill) {
    for (std::size_t decode = 0; decode < options.decode; ++decode) {
      paths_[{prefill, decode}] = swarm.pull && prng.percent(60) ? core::DataPath::pull : core::DataPath::push;
    }
  }
  judge.tell(0, "seed " + std::to_string(options.seed) + ": " + swarm.text());
  for (std::size_t slot = 0; slot < options.prefill; ++slot) start(true, slot, true);
  for (std::size_t slot = 0; slot < options.decode; ++slot) start(false, slot, true);
}

SimResult World::run() {
  const Duration span = milliseconds(prng.between(10, 120)) * options.rooms;
  const auto left_out = [](const std::vector<std::uint32_t>& without, std::uint32_t i) {
    return std::ranges::find(without, i) != without.end();
  };
  for (std::uint32_t i = 0; i < options.rooms; ++i) {
    const Duration when = prng.between(Duration{}, span);
    if (left_out(options.without_requests, i)) continue;
    schedule.after(when, [this, i] { engine.begin(stream(Stream::request, i)); });
  }
  for (std::uint32_t i = 0; i < swarm.fault_count; ++i) {
    const Duration when = prng.between(Duration{}, span);
    if (left_out(options.without_faults, i)) continue;
    schedule.after(when, [this, i] { fault(stream(Stream::fault, i)); });
  }
  // Anything may happen; only the checkers judge.
  run_until(schedule.now() + span);
  engine.winding_down = true;
  // From here on nothing goes wrong any more, and everything must end.
  run_until(schedule.now() + seconds(15));
  heal();
  run_until(schedule.now() + seconds(5));
  last_round();
  SimResult result;
  result.ok = !judge.violated();
  if (!result.ok) {
    result.violation = "seed " + std::to_string(options.seed) + " (" + swarm.text() + "): " + judge.text();
    result.story = judge.story() + "again with: " + command_line(options) + "\n";
  }
  result.swarm = swarm.text();
  result.trace_hash = judge.hash();
  result.steps = schedule.steps();
  result.faults = faults_;
  for (const Request& request : engine.requests()) {
    if (request.receiver.state == Poll::success) ++result.rooms_succeeded;
    if (request.receiver.state == Poll::failed) ++result.rooms_failed;
  }
  return result;
}

Prng World::stream(Stream kind, std::uint64_t number) const {
  Prng mixed(options.seed * 0x2545f4914f6cdd1dull + static_cast<std::uint64_t>(kind));
  return Prng(mixed.next() + number * 0x2545f4914f6cdd1dull);
}

void World::run_until(Instant until) {
  while (!judge.violated() && schedule.next() <= until) {
    schedule.step();
    if (schedule.steps() > steps_max) return judge.violation(0, "the events have no end");
  }
}

// Lets time pass until `wanted` or the bound; whether it came true.
bool World::run_while(Duration bound, const std::function<bool()>& wanted) {
  const Instant until = schedule.now() + bound;
  while (!judge.violated() && !wanted()) {
    const Instant next = std::min(until, schedule.next() + milliseconds(10));
    run_until(next);
    if (schedule.next() > until) return wanted();
  }
  return true;
}

// Every room ends; every pair links again and serves a room of its own; then nothing is held of any room.
void World::last_round() {
  // A lost same-host reader frees pages when it links again or exits, so released senders are asked for later.
  const auto concluded = [this] {
    return std::ranges::all_of(engine.requests(), [](const Request& r) {
      const Side& sender = r.sender;
      return r.receiver.over() && (sender.over() || (sender.concluded && sender.cleared));
    });
  };
  const Duration bound = limits.bootstrap_timeout + limits.send_timeout + limits.progress_timeout +
                         limits.waiting_timeout * 2 + limits.early_grant_ttl + seconds(20);
  if (!run_while(bound, concluded)) {
    auto [request, why] = engine.unfinished();
    for (const auto& process : all_) {
      if (!process->alive) continue;
      if (const auto pending = process->pending()) why += "; " + process->name() + ": " + *pending;
    }
    return judge.violation(request, "has no end: " + why);
  }
  if (judge.violated()) return;
  if (swarm.hostile) {
    for (std::size_t slot = 0; slot < options.decode; ++slot) kill(*rank(false, slot));
  } else {
    for (std::size_t prefill = 0; prefill < options.prefill; ++prefill) {
      for (std::size_t decode = 0; decode < options.decode; ++decode) engine.begin_fresh(prefill, decode);
    }
  }
  const auto all_over = [this] {
    return std::ranges::all_of(engine.requests(), [](const Request& r) { return r.over(); });
  };
  if (!run_while(bound, all_over)) {
    const auto [request, why] = engine.unfinished();
    return judge.violation(request, "is not released: " + why);
  }
  if (judge.violated()) return;
  if (!swarm.hostile) engine.judge_all();
  run_until(schedule.now() + limits.outcome_ttl + limits.early_grant_ttl + seconds(5));
  for (const auto& process : all_) {
    if (!process->alive || judge.violated()) continue;
    if (const auto held = process->held()) judge.violation(0, process->name() + " still holds " + *held);
  }
}

Process* World::listening(const Address& address) const {
  for (const auto& process : all_) {
    if (process->alive && process->listens && process->address == address) return process.get();
  }
  return nullptr;
}

Process* World::rank(bool prefill, std::size_t slot) const {
  const auto entry = ranks_.find({prefill, slot});
  return entry == ranks_.end() || is_dead(entry->second) ? nullptr : entry->second;
}

// Addresses that begin alike.
Address World::bootstrap_of(std::size_t prefill) const {
  if (swarm.one_instance || prefill == 0) return Address{"10.0.0.1", 80};
  return Address{"10.0.0.1", static_cast<std::uint16_t>(8000 + prefill)};
}

std::string World::instance_of(std::size_t prefill) const {
  if (swarm.one_instance) return "prefill";
  return "prefill-" + std::to_string(prefill) + "-" + std::to_string(epoch_[prefill]);
}

void World::bootstrap_sizes(Process& process, const Address& bootstrap) {
  process.run_at(schedule.now() + latency() + latency(), [this, &process, bootstrap] {
    const Error away{Code::unreachable, "the bootstrap server does not answer", {}, bootstrap.text()};
    if (outage_until_[bootstrap] > schedule.now()) {
      return process.post(core::event::SizesFetched{bootstrap, away});
    }
    std::string instance;
    for (std::size_t slot = 0; slot < registered_.size(); ++slot) {
      if (bootstrap_of(slot) != bootstrap) continue;
      if (!registered_[slot].there) {
        return process.post(
            core::event::SizesFetched{bootstrap, Error{Code::unreachable, "a rank has not registered yet"}});
      }
      instance = registered_[slot].instance;
    }
    process.post(core::event::SizesFetched{bootstrap, core::InstanceSizes{Parallel{.dp = dp_size()}, instance}});
  });
}

std::optional<std::size_t> World::registered_slot(const core::PeerKey& key) const {
  for (std::size_t slot = 0; slot < registered_.size(); ++slot) {
    if (bootstrap_of(slot) != key.bootstrap || !registered_[slot].there) continue;
    if (!swarm.one_instance || slot == key.place.dp) return slot;
  }
  return std::nullopt;
}

void World::bootstrap_route(Process& process, const core::PeerKey& key) {
  process.run_at(schedule.now() + latency() + latency(), [this, &process, key] {
    if (outage_until_[key.bootstrap] > schedule.now()) {
      return process.post(
          core::event::RouteFetched{key, Error{Code::unreachable, "the bootstrap server does not answer"}});
    }
    const auto slot = registered_slot(key);
    if (!slot) return process.post(core::event::RouteFetched{key, Error{Code::unreachable, "no such rank"}});
    const Registration& rank = registered_[*slot];
    process.post(core::event::RouteFetched{
        key, core::Route{rank.address, rank.instance, swarm.nameless ? Incarnation{} : rank.incarnation}});
  });
}

std::vector<SessionId> World::sessions_with_prefix_of(const Process& process, SessionId lost) {
  return network.sessions_with_prefix_of(process, lost);
}

void World::tell_message(const Process& process, const protocol::Message& message, const char* verb) {
  TransferId transfer{};
  std::visit(
      [&](const auto& m) {
        if constexpr (requires { m.transfer; }) transfer = m.transfer;
      },
      message);
  const RequestId request = judge.request_of(transfer);
  if (request == 0) return;  // pings and handshakes say nothing to people
  judge.tell(request, process.name() + " " + verb + " " + protocol::message_name(message));
}

std::string World::trouble(std::size_t prefill, std::size_t decode) const {
  const auto entry = trouble_.find({prefill, decode});
  return entry == trouble_.end() || entry->second.first <= schedule.now() ? std::string() : entry->second.second;
}

SimResult run(const SimOptions& options) {
  World world(options);
  return world.run();
}

}  // namespace kvferry::sim
