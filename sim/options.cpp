#include "sim/options.h"

namespace kvferry::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

const char* plant_name(Plant plant) {
  switch (plant) {
    case Plant::none:
      return "none";
    case Plant::window_closed_early:
      return "window_closed_early";
    case Plant::placed_early:
      return "placed_early";
    case Plant::stopped_early:
      return "stopped_early";
    case Plant::session_closed_early:
      return "session_closed_early";
    case Plant::deaf_to_time:
      return "deaf_to_time";
    case Plant::prefix_addresses:
      return "prefix_addresses";
    case Plant::dead_letters:
      return "dead_letters";
    case Plant::transfer_ids_reused:
      return "transfer_ids_reused";
    case Plant::confirm_lost:
      return "confirm_lost";
    case Plant::aux_forgotten:
      return "aux_forgotten";
  }
  return "unknown";
}

Swarm Swarm::draw(Prng& prng) {
  Swarm swarm;
  swarm.pull = prng.percent(60);
  swarm.one_instance = prng.percent(40);
  swarm.nameless = prng.percent(15);
  swarm.slow = prng.percent(30);
  if (prng.percent(10)) return swarm;  // calm
  for (bool Swarm::*fault : {&Swarm::kill, &Swarm::stop, &Swarm::reborn, &Swarm::cut, &Swarm::reset, &Swarm::stream,
                             &Swarm::clog, &Swarm::outage, &Swarm::abort, &Swarm::early_clear, &Swarm::unopened}) {
    swarm.*fault = prng.percent(35);
  }
  swarm.hostile = prng.percent(20);
  swarm.fault_count = static_cast<std::uint32_t>(prng.between(1, 12));
  return swarm;
}

std::string Swarm::text() const {
  std::string text;
  const auto add = [&](bool on, const char* word) {
    if (on) text += (text.empty() ? "" : " ") + std::string(word);
  };
  add(kill, "kill");
  add(stop, "stop");
  add(reborn, "reborn");
  add(cut, "cut");
  add(reset, "reset");
  add(stream, "stream");
  add(clog, "clog");
  add(outage, "outage");
  add(abort, "abort");
  add(early_clear, "early_clear");
  add(unopened, "unopened");
  add(hostile, "hostile");
  add(pull, "pull");
  add(one_instance, "one_instance");
  add(nameless, "nameless");
  add(slow, "slow");
  return text.empty() ? "calm" : text;
}

Limits draw_limits(const Swarm& swarm, Prng& prng) {
  Limits limits;
  limits.bootstrap_timeout = seconds(40);
  limits.send_timeout = seconds(40);
  limits.progress_timeout = seconds(30);
  limits.waiting_timeout = seconds(40);
  limits.early_grant_ttl = seconds(40);
  limits.outcome_ttl = seconds(10);
  limits.queued_interval = seconds(5);
  limits.retry_max = milliseconds(500);
  limits.inline_bytes_max = prng.pick(std::vector<std::uint64_t>{0, 0, 100, 100'000});
  if (!swarm.hostile) return limits;
  for (Duration Limits::*time : {&Limits::bootstrap_timeout, &Limits::send_timeout, &Limits::progress_timeout,
                                 &Limits::waiting_timeout, &Limits::early_grant_ttl, &Limits::outcome_ttl,
                                 &Limits::ping_interval, &Limits::queued_interval, &Limits::retry_max}) {
    if (prng.percent(60)) limits.*time = milliseconds(prng.percent(50) ? prng.between(1, 50) : prng.between(50, 2000));
  }
  limits.ping_misses_max = static_cast<std::uint32_t>(prng.between(0, 3));
  limits.retry_min = std::min(limits.retry_max, Duration(milliseconds(5)));
  limits.orphan_grants_max = prng.between(0, 3);
  limits.outcomes_max = prng.between(0, 3);
  limits.chunks_max = prng.between(1, 3);
  limits.pages_max = prng.between(3, 12);
  return limits;
}

SimResult run_checked(SimOptions options) {
  SimResult result = run(options);
  if (result.ok && options.seed % 20 == 0) {
    const SimResult again = run(options);
    if (again.trace_hash != result.trace_hash || again.steps != result.steps) {
      result.ok = false;
      result.violation = "the same seed ran differently the second time";
    }
  }
  if (!result.ok) {
    options.story = true;
    const SimResult told = run(options);
    result.story = told.story;
  }
  return result;
}

}  // namespace kvferry::sim
