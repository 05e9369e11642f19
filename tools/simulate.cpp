// kvferry simulate: the shipping cores under a virtual network, clock and memory; one seed is one schedule.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "sim/options.h"
#include "sim/shrink.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace kvferry::tools {
namespace {

struct Options {
  sim::SimOptions run{.seed = 1, .prefill = 4, .decode = 4, .rooms = 200};
  std::uint64_t seeds = 1000;
  unsigned jobs = 1;
  std::vector<std::string> without_requests;
  std::vector<std::string> without_faults;
};

struct Tally {
  std::uint64_t schedules = 0;
  std::uint64_t steps = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t faults = 0;
  double cpu_seconds = 0;
  std::vector<std::uint64_t> violating{};  // seeds

  void add(const Tally& other) {
    schedules += other.schedules;
    steps += other.steps;
    succeeded += other.succeeded;
    failed += other.failed;
    faults += other.faults;
    cpu_seconds += other.cpu_seconds;
    violating.insert(violating.end(), other.violating.begin(), other.violating.end());
  }
};

double thread_cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// Seeds are taken one by one by whoever is free; each of them is a world of its own.
Tally run_all(const Options& options) {
  constexpr std::size_t violating_max = 10;  // seen that many, nobody needs more
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::size_t> violating{0};
  std::vector<Tally> tallies(options.jobs);
  const auto work = [&](Tally& tally) {
    const double began = thread_cpu_seconds();
    for (std::uint64_t i = next++; i < options.seeds && violating < violating_max; i = next++) {
      sim::SimOptions one = options.run;
      one.seed += i;
      const sim::SimResult result = sim::run(one);
      ++tally.schedules;
      tally.steps += result.steps;
      tally.succeeded += result.rooms_succeeded;
      tally.failed += result.rooms_failed;
      tally.faults += result.faults;
      if (!result.ok) {
        tally.violating.push_back(one.seed);
        ++violating;
      }
      ++done;
    }
    tally.cpu_seconds = thread_cpu_seconds() - began;
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < options.jobs; ++i) others.emplace_back([&, i] { work(tallies[i]); });
  {
    Progress progress("schedules", options.seeds);
    std::thread first([&] { work(tallies[0]); });
    others.push_back(std::move(first));
    while (done < options.seeds && violating < violating_max) {
      progress.set(std::min<std::uint64_t>(done, options.seeds));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  for (std::thread& other : others) other.join();
  Tally all;
  for (const Tally& tally : tallies) all.add(tally);
  std::ranges::sort(all.violating);
  return all;
}

int run(const Context& context, const Options& options) {
  const Tally tally = run_all(options);
  Report report("simulate");
  report.figure("schedules", tally.schedules);
  report.figure("violations", tally.violating.size());
  report.figure("schedules_per_min", static_cast<double>(tally.schedules) / tally.cpu_seconds * 60, "on one core");
  report.figure("rooms_succeeded", tally.succeeded);
  report.figure("rooms_failed", tally.failed);
  report.figure("faults", tally.faults, "pieces of trouble");
  report.figure("events", tally.steps);
  if (!tally.violating.empty()) {
    sim::SimOptions first = options.run;
    first.seed = tally.violating.front();
    const sim::Shrunk shrunk = sim::shrink(first);
    for (const std::uint64_t seed : tally.violating) report.note(fmt::format("Seed {} violates.", seed));
    report.note(fmt::format("The story of seed {}, with all left out that it does not need ({} runs):\n{}", first.seed,
                            shrunk.tried, shrunk.result.story));
    report.fail(shrunk.result.violation);
  }
  return report.finish(context);
}

// "1-3,7" as CLI11 has split it at the commas.
std::optional<std::vector<std::uint32_t>> numbers_of(const std::vector<std::string>& words) {
  std::vector<std::uint32_t> numbers;
  for (const std::string& word : words) {
    unsigned first = 0;
    unsigned last = 0;
    char more = 0;
    const int read = std::sscanf(word.c_str(), "%u-%u%c", &first, &last, &more);
    if (read == 1 && word == std::to_string(first)) last = first;
    if (read < 1 || read > 2 || last < first || last > 1'000'000) return std::nullopt;
    for (unsigned i = first; i <= last; ++i) numbers.push_back(i);
  }
  return numbers;
}

std::string check_numbers(const std::string& word) {
  return numbers_of({word}) ? std::string() : "'" + word + "' is no number and no range like 3-7";
}

}  // namespace

void add_simulate(CLI::App& app, Context& context) {
  CLI::App* command = add_command(
      app, context, "simulate", "The protocol under thousands of schedules of trouble, with what must hold checked",
      "One seed is one schedule, the same every time. After every step the six things that must always hold are\n"
      "checked against a model of what memory must contain. A violation prints its seed and the story of the rooms\n"
      "involved, with everything left out that it does not need.\n\n"
      "Examples:\n"
      "  kvferry simulate --seeds 2000 --jobs 2\n"
      "  kvferry simulate --faults kill,stop,cut --prefill 2 --decode 8\n"
      "  kvferry simulate --seed 4711 --seeds 1");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--seeds", options->seeds, "How many schedules")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_option("--seed", options->run.seed, "The first of them")->capture_default_str();
  command->add_option("--prefill", options->run.prefill, "Prefill ranks")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--decode", options->run.decode, "Decode ranks")->check(CLI::Range(1, 64))->capture_default_str();
  command->add_option("--rooms", options->run.rooms, "Requests in one schedule")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--faults", options->run.faults, "Kinds of trouble, with commas between; all by default")
      ->delimiter(',')
      ->check(CLI::IsMember(sim::fault_names()));
  command->add_option("--jobs", options->jobs, "Schedules at once")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--without-requests", options->without_requests, "Leave out these requests, as in 0-3,7")
      ->delimiter(',')
      ->check(check_numbers);
  command->add_option("--without-faults", options->without_faults, "Leave out these pieces of trouble")
      ->delimiter(',')
      ->check(check_numbers);
  on_run(command, context, [&context, options] {
    options->run.without_requests = *numbers_of(options->without_requests);
    options->run.without_faults = *numbers_of(options->without_faults);
    return run(context, *options);
  });
}

}  // namespace kvferry::tools
