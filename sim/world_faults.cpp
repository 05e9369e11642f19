#include <algorithm>

#include "base/assert.h"
#include "sim/world.h"

namespace kvferry::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One piece of trouble of a kind that exists in this run.
void World::fault(Prng draw) {
  const bool on[] = {swarm.kill, swarm.stop, swarm.reborn,
                     swarm.cut || swarm.oneway || swarm.reset || swarm.stream || swarm.clog, swarm.outage};
  std::vector<int> kinds;
  for (int kind = 0; kind < 5; ++kind) {
    if (on[kind]) kinds.push_back(kind);
  }
  if (kinds.empty()) return;
  ++faults_;
  const bool prefill = draw.percent(50);
  const std::size_t slot = draw.below(prefill ? options.prefill : options.decode);
  switch (draw.pick(kinds)) {
    case 0:
      return kill_and_restart(prefill, slot, draw);
    case 1:
      return stop_and_go_on(prefill, slot, draw);
    case 2:
      return be_reborn(prefill, slot, draw);
    case 3:
      return trouble_pair(draw);
    default:
      return outage(draw);
  }
}

// Requests of these pairs are excused from succeeding, those there are and those that come while it lasts.
void World::touch(std::optional<std::size_t> prefill, std::optional<std::size_t> decode, Duration lasts,
                  const std::string& why) {
  for (Request& request : engine.requests()) {
    const bool hit = (!prefill || *prefill == request.prefill) && (!decode || *decode == request.decode);
    if (hit && !request.over() && request.excuse.empty()) request.excuse = why;
  }
  for (const auto& [pair, path] : paths_) {
    if ((prefill && *prefill != pair.first) || (decode && *decode != pair.second)) continue;
    auto& [until, text] = trouble_[pair];
    if (until > schedule.now() + lasts) continue;
    until = schedule.now() + lasts;
    text = why;
  }
}

void World::start(bool prefill, std::size_t slot, bool same_address) {
  const std::uint64_t number = ++processes_;
  Address address{(prefill ? "10.1.0." : "10.2.0.") + std::to_string(slot + 1), 9000};
  if (!same_address || listening(address) != nullptr) address.port = static_cast<std::uint16_t>(9000 + number);
  all_.push_back(std::make_unique<Process>(*this, prefill, slot, number, address));
  Process* process = all_.back().get();
  ranks_[{prefill, slot}] = process;
  judge.tell(0, process->name() + " starts at " + address.text());
  if (!prefill) return;
  const std::string instance = instance_of(slot);
  process->run_at(schedule.now() + latency(), [this, process, slot, instance] {
    if (registered_[slot].incarnation > process->identity().incarnation) return;  // its successor stands there
    registered_[slot] = Registration{process->address, process->identity().incarnation, instance, true};
  });
}

void World::kill(Process& process) {
  process.kill();
  engine.died(process);
  if (process.is_prefill) return;
  for (const auto& other : all_) {
    if (other->is_prefill) other->peer_exited(process);
  }
}

void World::kill_and_restart(bool prefill, std::size_t slot, Prng& draw) {
  Process* process = rank(prefill, slot);
  if (process == nullptr) return;
  const Duration away = draw.percent(50) ? draw.between(Duration{}, Duration(milliseconds(5)))
                                         : draw.between(Duration{}, Duration(seconds(3)));
  const auto side = [&](bool wanted) { return prefill == wanted ? std::optional(slot) : std::nullopt; };
  touch(side(true), side(false), away + seconds(5), process->name() + " was killed");
  kill(*process);
  const bool same_address = draw.percent(70);
  const bool other_instance = draw.percent(50);
  schedule.after(away, [this, prefill, slot, same_address, other_instance] {
    if (rank(prefill, slot) != nullptr) return;
    if (prefill && other_instance) ++epoch_[slot];
    start(prefill, slot, same_address);
  });
}

void World::stop_and_go_on(bool prefill, std::size_t slot, Prng& draw) {
  Process* process = rank(prefill, slot);
  if (process == nullptr || process->stopped) return;
  process->stop();
  const Duration away = draw.percent(50) ? draw.between(Duration{}, Duration(milliseconds(500)))
                                         : draw.between(Duration{}, Duration(seconds(10)));
  const auto side = [&](bool wanted) { return prefill == wanted ? std::optional(slot) : std::nullopt; };
  // Short stops are no reason to fail.
  if (away > limits.ping_interval) touch(side(true), side(false), away + seconds(6), process->name() + " was stopped");
  schedule.after(away, [process] { process->go_on(); });
}

// A process stands still, another takes its place, and then it wakes.
void World::be_reborn(bool prefill, std::size_t slot, Prng& draw) {
  Process* old = rank(prefill, slot);
  if (old == nullptr || old->stopped) return;
  old->stop();
  const Duration away = draw.between(Duration(milliseconds(1)), Duration(seconds(6)));
  const auto side = [&](bool wanted) { return prefill == wanted ? std::optional(slot) : std::nullopt; };
  // Who registered without an incarnation is never told that it was replaced.
  const Duration told = draw.between(Duration{}, Duration(seconds(3)));
  const Duration lasts = prefill && swarm.nameless ? std::chrono::hours(1) : away + told + seconds(8);
  touch(side(true), side(false), lasts, old->name() + " has a successor");
  start(prefill, slot, false);
  schedule.after(away, [this, old, told] {
    old->go_on();
    if (!old->is_prefill || swarm.nameless) return;
    old->run_at(schedule.now() + told, [old] {
      old->listens = false;
      old->post(core::event::Replaced{Error{Code::closed, "another process has registered as this rank"}});
    });
  });
}

void World::trouble_pair(Prng& draw) {
  const std::size_t prefill = draw.below(options.prefill);
  const std::size_t decode = draw.below(options.decode);
  const std::string pair = "P" + std::to_string(prefill) + "-D" + std::to_string(decode);
  std::vector<int> kinds;
  const bool on[] = {swarm.cut, swarm.reset, swarm.stream, swarm.clog, swarm.oneway};
  for (int kind = 0; kind < 5; ++kind) {
    if (on[kind]) kinds.push_back(kind);
  }
  const Duration lasts = draw.percent(50) ? draw.between(Duration{}, Duration(milliseconds(300)))
                                          : draw.between(Duration{}, Duration(seconds(8)));
  switch (draw.pick(kinds)) {
    case 0:
      judge.tell(0, "the cable of " + pair + " is cut");
      touch(prefill, decode, lasts + seconds(10), "its cable was cut");
      return network.cut(prefill, decode, schedule.now() + lasts);
    case 1:
      judge.tell(0, "the link of " + pair + " is reset");
      touch(prefill, decode, seconds(2), "its link was reset");
      return network.reset(prefill, decode);
    case 2:
      judge.tell(0, "the data stream of " + pair + " breaks");
      touch(prefill, decode, seconds(2), "its data stream broke");
      return network.break_stream(prefill, decode);
    case 4:
      judge.tell(0, "the link of " + pair + " carries nothing one way");
      touch(prefill, decode, seconds(12), "its link carried nothing one way");
      return network.deafen(prefill, decode, draw.percent(50));
    default:
      judge.tell(0, "the links of " + pair + " are clogged");
      if (lasts > limits.ping_interval) touch(prefill, decode, lasts + seconds(8), "its link was clogged");
      return network.clog(prefill, decode, schedule.now() + lasts);
  }
}

// Rooms wait for the bootstrap server: that is no reason to fail.
void World::outage(Prng& draw) {
  const Address bootstrap = bootstrap_of(draw.below(options.prefill));
  judge.tell(0, "the bootstrap server " + bootstrap.text() + " is away");
  outage_until_[bootstrap] = schedule.now() + draw.between(Duration(milliseconds(1)), Duration(seconds(5)));
}

// From here on everybody is up and linked to everybody.
void World::heal() {
  judge.tell(0, "nothing goes wrong any more");
  network.heal();
  outage_until_.clear();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Process& process = *all_[i];
    if (!process.alive) continue;
    if (ranks_.at({process.is_prefill, process.slot}) != &process) {
      kill(process);  // its successor stands there
    } else {
      process.go_on();
    }
  }
  for (const bool prefill : {true, false}) {
    for (std::size_t slot = 0; slot < (prefill ? options.prefill : options.decode); ++slot) {
      if (rank(prefill, slot) == nullptr) start(prefill, slot, true);
    }
  }
}

}  // namespace kvferry::sim
