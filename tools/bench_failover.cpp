// kvferry bench failover: how soon the rooms of a process that goes are given up, and what the others notice of it.
#include "tools/bench_failover.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "base/try.h"
#include "tools/bench.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stats.h"

namespace kvferry::tools {

namespace {

Result<FailoverResult> measure(const FailoverPlan& plan) {
  FailoverResult result;
  unsigned done = 0;
  Progress progress("bench failover",
                    plan.kills + plan.big_kills + plan.forked_kills + plan.stops + plan.healthy_kills + plan.rejoins);
  const FailoverRun run{.plan = plan, .result = result, .step = [&] { progress.set(++done); }};
  for (const auto& scenario : {measure_kills, measure_stops, measure_healthy, measure_rejoins}) {
    auto ran = scenario(run);
    if (ran) continue;
    const Error& error = ran.error();
    if (error.code == Code::invalid_argument || error.code == Code::unsupported) return error;
    result.problems.push_back(error.message());  // rooms that did not go on as they must
  }
  return result;
}

void add_row(Report& report, const char* scenario, const std::string& happened, const Tally& tally) {
  if (tally.times == 0) return;
  report.row({{"scenario", scenario},
              {"happened", happened},
              {"times", tally.times},
              {"rooms", tally.failed_ms.size()},
              {"ms_p50", percentile(tally.failed_ms, 50)},
              {"ms_p99", percentile(tally.failed_ms, 99)},
              {"ms_max", percentile(tally.failed_ms, 100)},
              {"after_close_ms_p99", percentile(tally.after_close_ms, 99)},
              {"reason", tally.reason}});
}

void add_rows(Report& report, const FailoverPlan& plan, const FailoverResult& result) {
  const double gib = static_cast<double>(plan.big_bytes) / static_cast<double>(1 << 30);
  add_row(report, "small", "SIGKILL", result.small);
  add_row(report, "big", fmt::format("SIGKILL, {:.3g} GiB touched", gib), result.big);
  add_row(report, "forked", "SIGKILL, a forked child lives on", result.forked);
  add_row(report, "stop",
          fmt::format("SIGSTOP, pings every {} ms, {} misses", plan.stop_pings.interval.count(),
                      plan.stop_pings.misses_max),
          result.stopped);
  add_row(report, "healthy", "SIGKILL beside two pairs at work", result.healthy);
  add_row(report, "rejoin", "SIGKILL, then started again", result.rejoined);
  for (std::size_t i = 0; i < result.rejoin_ms.size(); ++i) {
    report.row({{"absence_ms", result.absence_ms[i]}, {"rejoin_ms", result.rejoin_ms[i]}});
  }
}

void add_figures(Report& report, const FailoverPlan& plan, const FailoverResult& result) {
  std::vector<double> after_close = result.big.after_close_ms;
  after_close.insert(after_close.end(), result.forked.after_close_ms.begin(), result.forked.after_close_ms.end());
  report.figure("kill_to_failed_ms_p99", percentile(result.small.failed_ms, 99), "ms from SIGKILL to Failed");
  report.figure("kill_big_to_failed_ms_p99", percentile(result.big.failed_ms, 99),
                "ms; the kernel frees the memory first");
  report.figure("after_close_ms_p99", percentile(after_close, 99),
                "ms from the closing of the descriptors to Failed, big and forked");
  report.figure("stop_to_failed_ms_max", percentile(result.stopped.failed_ms, 100), "ms from SIGSTOP to Failed");
  report.figure("stop_limit_ms", plan.stop_pings.limit().count(), "ms of silence that the ping settings allow");
  report.figure("woken_to_success_ms_max", percentile(result.back_ms, 100), "ms from SIGCONT to a new room's Success");
  report.figure("healthy_ratio", percentile(result.ratios, 50), "rooms of healthy pairs after a kill over before");
  report.figure("healthy_rooms_per_s", percentile(result.rooms_per_s, 50), "before a kill");
  report.figure("healthy_failures", result.healthy_failures);
  report.figure("rejoin_ms", percentile(result.rejoin_ms, 50), "ms from registration to the first Success, median");
  report.figure("rejoin_ms_max", percentile(result.rejoin_ms, 100), "ms");
}

int run(const Context& context, const FailoverPlan& plan) {
  quiet_at_the_end();
  auto result = measure(plan);
  if (!result) return cannot_run(context, result.error().message());
  Report report("bench failover");
  add_rows(report, plan, *result);
  add_figures(report, plan, *result);
  if (result->healthy_failures != 0) {
    report.fail(fmt::format("{} rooms of healthy pairs failed", result->healthy_failures));
  }
  for (const std::string& problem : result->problems) report.fail(problem);
  return report.finish(context);
}

void add_options(CLI::App& command, FailoverPlan& plan) {
  const auto count = [&](const char* name, auto& value, const char* what, int least) {
    command.add_option(name, value, what)->check(CLI::Range(least, 10'000))->capture_default_str();
  };
  count("--rooms", plan.rooms, "Rooms in flight with the process that goes", 2);
  count("--kills", plan.kills, "Kills of a small process", 0);
  count("--big-kills", plan.big_kills, "Kills of a process with much memory", 0);
  count("--forked-kills", plan.forked_kills, "Kills of a process whose child lives on", 0);
  count("--stops", plan.stops, "Processes stopped and woken", 0);
  count("--healthy-kills", plan.healthy_kills, "Kills beside healthy pairs", 0);
  count("--rejoins", plan.rejoins, "Processes killed and started again", 0);
  command.add_option("--big", plan.big_bytes, "Memory of the big one, for example 2GiB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command.add_option("--window", plan.window_seconds, "Seconds before and after a kill that are compared")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  command.add_option("--absence", plan.absence_seconds_max, "Longest time between a kill and the new start, seconds")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  command.add_flag_callback(
      "--tcp", [&plan] { plan.way = Way::tcp; }, "Bytes go over TCP instead of same host");
}

}  // namespace

void add_bench_failover(CLI::App& bench, Context& context) {
  CLI::App* command = add_command(
      bench, context, "failover", "Kills and stops prefill processes, and says how soon their rooms fail",
      "This process decodes. A prefill process holds rooms that are all granted, half of them with half of their\n"
      "bytes; then a signal ends it, and the time until each room says Failed is taken, as an engine sees it:\n"
      "  small    SIGKILL to a process with little memory\n"
      "  big      the same with 2 GiB of private memory touched; the kernel frees that before it closes anything,\n"
      "           so what counts is the time from the closing, seen at a pipe that only the victim held\n"
      "  forked   the same after the process has forked a child that lives on\n"
      "  stop     SIGSTOP, so that only pings tell, sent every 200 ms here; then SIGCONT: nothing of the lost rooms\n"
      "           may come back, and a new room must succeed\n"
      "  healthy  SIGKILL while two other prefill processes keep rooms in flight; their rooms are counted over the\n"
      "           same time before and after, and rooms for the dead process go on being opened\n"
      "  rejoin   the process is started again, after a longer absence each time, while rooms for it wait: from the\n"
      "           last moment at which the bootstrap server did not know it to the first room that succeeds\n"
      "Times are shown, not judged. The result is not good where a room of a healthy pair failed, a room never ended,\n"
      "or bytes are wrong.\n\n"
      "Example:\n"
      "  kvferry bench failover --kills 100 --big 4GiB --json");
  auto plan = std::make_shared<FailoverPlan>();  // lives in the callback, which CLI11 copies
  add_options(*command, *plan);
  on_run(command, context, [&context, plan] { return run(context, *plan); });
}

}  // namespace kvferry::tools
