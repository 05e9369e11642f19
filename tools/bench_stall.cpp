// kvferry bench stall: a peer whose memory the kernel does not serve, and what the others notice of it.
#include <fmt/format.h>
#include <signal.h>

#include <memory>

#include "base/try.h"
#include "bench/unserved.h"
#include "tools/bench.h"
#include "tools/bench_failover_rig.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stats.h"

namespace kvferry::tools {

namespace {

// From the moment that a call hangs until another thread does its work, with much to spare.
constexpr double settle_seconds = 0.3;

struct Options {
  unsigned repeats = 7;
  double window_seconds = 1;
  std::size_t rooms = 8;
};

struct Measured {
  std::vector<double> ratios;  // rooms of the healthy pairs with peers that stall, over those before
  std::vector<double> rooms_per_s;
  std::uint64_t stalled_rooms = 0;
  std::uint64_t released = 0;  // of those, once their processes had gone
  std::uint64_t healthy_failures = 0;
  std::uint64_t wrong = 0;
};

// Rooms of the healthy pairs in that time.
Result<double> count(FailoverRig& rig, double seconds) {
  const std::uint64_t before = rig.loop_rooms();
  KVF_CHECK(rig.run_until(bench::now_seconds() + seconds));
  return static_cast<double>(rig.loop_rooms() - before);
}

Result<void> measure(const Options& options, FailoverRig& rig, BenchPrefill& stalled, Measured& out) {
  KVF_CHECK(rig.hold(stalled));
  KVF_CHECK(stalled.ask("stall"));
  KVF_TRY(before, count(rig, options.window_seconds));
  KVF_CHECK(stalled.ask("push"));
  KVF_CHECK(rig.run_until(bench::now_seconds() + settle_seconds));
  KVF_TRY(during, count(rig, options.window_seconds));
  out.rooms_per_s.push_back(before / options.window_seconds);
  if (before > 0) out.ratios.push_back(during / before);
  KVF_TRY(loss, rig.lose(stalled, SIGKILL));
  out.stalled_rooms += options.rooms;
  out.wrong += loss.wrong;
  KVF_CHECK(rig.wait_released());
  out.released += options.rooms;
  rig.drop_held();
  return {};
}

Result<Measured> measure_all(const Options& options) {
  Measured measured;
  KVF_TRY(rig, FailoverRig::make({.way = Way::samehost, .rooms = options.rooms, .pings = std::nullopt}));
  KVF_TRY(first, rig.prefill("healthy-0"));
  KVF_TRY(second, rig.prefill("healthy-1"));
  KVF_TRY(stalled, rig.prefill("stalled"));
  KVF_CHECK(rig.start_loop(first));
  KVF_CHECK(rig.start_loop(second));
  Progress progress("stall", options.repeats);
  for (unsigned i = 0; i < options.repeats; ++i) {
    if (i != 0) KVF_CHECK(stalled.start());
    KVF_CHECK(measure(options, rig, stalled, measured));
    progress.set(i + 1);
  }
  measured.healthy_failures = rig.loop_failures();
  for (BenchPrefill* healthy : {&first, &second}) {
    KVF_TRY(ended, healthy->ask("leave"));
    measured.healthy_failures += ended.at(1);
  }
  measured.wrong += rig.loop_wrong();
  return measured;
}

int run(const Context& context, const Options& options) {
  quiet_at_the_end();
  {
    // Said now and in words, not by a process that fails to start.
    auto page = bench::Buffer::allocate(4096);
    if (!page) return cannot_run(context, page.error().message());
    auto unserved = bench::UnservedMemory::make({page->data(), page->size()});
    if (!unserved) return cannot_run(context, unserved.error().message());
  }
  auto measured = measure_all(options);
  if (!measured) return cannot_run(context, measured.error().message());
  Report report("bench stall");
  for (std::size_t i = 0; i < measured->ratios.size(); ++i) {
    report.row({{"rooms_per_s", measured->rooms_per_s[i]}, {"ratio", measured->ratios[i]}});
  }
  report.figure("stall_ratio", percentile(measured->ratios, 50),
                "rooms of the healthy pairs beside a peer whose memory is not served, over those before; median");
  report.figure("healthy_failures", measured->healthy_failures);
  report.figure("stalled_rooms", measured->stalled_rooms, "rooms with the peer that stalls");
  report.figure("released", measured->released, "of those, once its process had gone");
  if (measured->healthy_failures != 0) report.fail(fmt::format("{} healthy rooms failed", measured->healthy_failures));
  if (measured->wrong != 0) report.fail(fmt::format("{} rooms have wrong bytes", measured->wrong));
  return report.finish(context);
}

}  // namespace

void add_bench_stall(CLI::App& bench, Context& context) {
  CLI::App* command = add_command(
      bench, context, "stall", "A peer whose memory the kernel does not serve, and what the others notice of it",
      "One decode manager with three prefill processes. Two hand rooms over without pause; the pages of the third are\n"
      "taken away (userfaultfd), so that whoever reads them waits for ever, and then its rooms are sent. The rooms of\n"
      "the two are counted before and meanwhile. Needs root or vm.unprivileged_userfaultfd=1.\n\n"
      "Example:\n"
      "  kvferry bench stall --repeats 9");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--repeats", options->repeats, "Peers that stall, one after the other")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--window", options->window_seconds, "Seconds to count in")
      ->check(CLI::Range(0.05, 60.0))
      ->capture_default_str();
  command->add_option("--rooms", options->rooms, "Rooms with the peer that stalls")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
