// kvferry bench idle: what a linked pair of managers costs while nothing happens.
#include <poll.h>

#include <memory>

#include "base/try.h"
#include "tools/bench.h"
#include "tools/bench_handoff_pair.h"
#include "tools/bench_handoff_source.h"
#include "tools/report.h"

namespace kvferry::tools {

namespace {

struct Options {
  double seconds = 10;
};

struct Idle {
  double wall_seconds = 0;
  double cpu_seconds = 0;
};

// CPU of a process so far, from the outside, so that the idle one need not wake to tell.
Result<double> cpu_of(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &used) != 0) {
    return Error{.text = "cannot read the CPU time of the prefill process"};
  }
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

Result<Idle> measure(const Options& options) {
  KVF_TRY(child, bench::Child::start(run_handoff_source));
  KVF_TRY(pair, HandoffPair::make(child, Way::samehost));
  KVF_TRY(ours_before, cpu_of(::getpid()));
  KVF_TRY(theirs_before, cpu_of(child.pid()));
  const double start = bench::now_seconds();
  // The time itself is what is measured here; the child's end would end the wait.
  pollfd channel{.fd = child.channel().fd(), .events = POLLIN, .revents = 0};
  if (::poll(&channel, 1, static_cast<int>(options.seconds * 1000)) > 0) {
    return Error{.code = Code::peer_lost, .text = "the prefill process ended while it should have been idle"};
  }
  KVF_TRY(ours, cpu_of(::getpid()));
  KVF_TRY(theirs, cpu_of(child.pid()));
  return Idle{.wall_seconds = bench::now_seconds() - start,
              .cpu_seconds = (ours - ours_before) + (theirs - theirs_before)};
}

int run(const Context& context, const Options& options) {
  auto idle = measure(options);
  if (!idle) return cannot_run(context, idle.error().message());
  Report report("bench idle");
  report.figure("cpu_percent", 100 * idle->cpu_seconds / idle->wall_seconds, "% of one core, both processes together");
  report.figure("seconds", idle->wall_seconds);
  return report.finish(context);
}

}  // namespace

void add_bench_idle(CLI::App& bench, Context& context) {
  CLI::App* command = add_command(bench, context, "idle", "CPU use of a linked pair of managers while nothing happens",
                                  "The bootstrap server runs in the decode process and is counted too.\n\n"
                                  "Example:\n"
                                  "  kvferry bench idle --seconds 30");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--seconds", options->seconds, "How long to watch")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
