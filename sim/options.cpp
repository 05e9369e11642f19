#include "sim/options.h"

#include <algorithm>
#include <utility>

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
    case Plant::unfair_queue:
      return "unfair_queue";
    case Plant::bits_flipped:
      return "bits_flipped";
  }
  return "unknown";
}

namespace {

struct Kind {
  const char* name;
  bool Swarm::*on;
};
constexpr std::array troubles{Kind{"kill", &Swarm::kill},         Kind{"stop", &Swarm::stop},
                              Kind{"reborn", &Swarm::reborn},     Kind{"jump", &Swarm::jump},
                              Kind{"cut", &Swarm::cut},           Kind{"oneway", &Swarm::oneway},
                              Kind{"reset", &Swarm::reset},       Kind{"stream", &Swarm::stream},
                              Kind{"clog", &Swarm::clog},         Kind{"outage", &Swarm::outage},
                              Kind{"abort", &Swarm::abort},       Kind{"early_clear", &Swarm::early_clear},
                              Kind{"unopened", &Swarm::unopened}, Kind{"duplicate", &Swarm::duplicate},
                              Kind{"hostile", &Swarm::hostile}};
constexpr std::array shapes{Kind{"pull", &Swarm::pull}, Kind{"one_instance", &Swarm::one_instance},
                            Kind{"nameless", &Swarm::nameless}, Kind{"slow", &Swarm::slow},
                            Kind{"verify", &Swarm::verify}};

// 1,2,3,7 as "1-3,7".
std::string ranges(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t begin = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[begin]);
    if (i > begin) text += "-" + std::to_string(numbers[i]);
  }
  return text;
}

}  // namespace

std::vector<std::string> fault_names() {
  std::vector<std::string> names;
  for (const Kind& kind : troubles) names.emplace_back(kind.name);
  return names;
}

Swarm Swarm::draw(Prng& prng) {
  Swarm swarm;
  swarm.pull = prng.percent(60);
  swarm.one_instance = prng.percent(40);
  swarm.nameless = prng.percent(15);
  swarm.slow = prng.percent(30);
  swarm.verify = prng.percent(25);
  const bool calm = prng.percent(10);
  for (const Kind& kind : troubles) swarm.*kind.on = prng.percent(33) && !calm;
  swarm.hostile = prng.percent(60) && swarm.hostile;
  swarm.fault_count = static_cast<std::uint32_t>(prng.between(1, 12));
  return swarm;
}

void Swarm::keep_only(const std::vector<std::string>& faults) {
  for (const Kind& kind : troubles) {
    if (std::ranges::find(faults, kind.name) == faults.end()) this->*kind.on = false;
  }
}

std::string Swarm::text() const {
  std::string text;
  const auto add = [&](const Kind& kind) {
    if (this->*kind.on) text += (text.empty() ? "" : " ") + std::string(kind.name);
  };
  std::ranges::for_each(troubles, add);
  std::ranges::for_each(shapes, add);
  return text.empty() ? "calm" : text;
}

std::string command_line(const SimOptions& options) {
  std::string text = "kvferry simulate --seed " + std::to_string(options.seed) + " --seeds 1 --prefill " +
                     std::to_string(options.prefill) + " --decode " + std::to_string(options.decode) + " --rooms " +
                     std::to_string(options.rooms);
  const char* separator = " --faults ";
  for (const std::string& fault : options.faults) text += std::exchange(separator, ",") + fault;
  if (!options.without_requests.empty()) text += " --without-requests " + ranges(options.without_requests);
  if (!options.without_faults.empty()) text += " --without-faults " + ranges(options.without_faults);
  return text;
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
  limits.verify = swarm.verify;
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
