// kvferry bench handoff: rooms a second and the latency of a lone room, for rooms of one page.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/try.h"
#include "tools/bench.h"
#include "tools/bench_handoff_pair.h"
#include "tools/bench_handoff_source.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stats.h"

namespace kvferry::tools {

namespace {

constexpr std::uint64_t trial_rooms = 4000;
constexpr std::uint64_t lone_rooms_a_turn = 500;
constexpr unsigned pings_a_turn = 2000;
constexpr unsigned turns = 8;

struct Options {
  double seconds = 10;
  std::uint64_t window = 512;
  std::string transport = "auto";
};

struct Measured {
  StreamResult stream;
  std::uint64_t rooms = 0;
  std::vector<double> lone_us;
  std::vector<double> ping_us;
};

Result<Way> way_of(const std::string& transport) {
  if (transport == "tcp") return Way::tcp;
  return Way::samehost;
}

Result<Measured> measure(const Options& options) {
  // Forked before this process has a thread, so that the child starts as a process of its own would.
  KVF_TRY(child, bench::Child::start(run_handoff_source));
  KVF_TRY(way, way_of(options.transport));
  KVF_TRY(pair, HandoffPair::make(child, way));
  Progress progress("bench handoff", turns + 2);
  Measured measured;
  // Both sides must know beforehand when to stop, so a trial says how many rooms fill the time.
  KVF_TRY(trial, pair.stream(trial_rooms, options.window));
  const double rate = static_cast<double>(trial_rooms) / trial.seconds;
  measured.rooms = std::max(trial_rooms, static_cast<std::uint64_t>(rate * options.seconds));
  progress.set(1);
  KVF_TRY(stream, pair.stream(measured.rooms, options.window));
  measured.stream = stream;
  progress.set(2);
  // In turns, so that a noisy minute meets both.
  for (unsigned turn = 0; turn < turns; ++turn) {
    KVF_TRY(pings, pair.ping_us(pings_a_turn));
    KVF_TRY(lone, pair.lone_us(lone_rooms_a_turn));
    measured.ping_us.insert(measured.ping_us.end(), pings.begin(), pings.end());
    measured.lone_us.insert(measured.lone_us.end(), lone.begin(), lone.end());
    progress.set(turn + 3);
  }
  return measured;
}

int run(const Context& context, const Options& options) {
  auto measured = measure(options);
  if (!measured) return cannot_run(context, measured.error().message());
  const auto rooms = static_cast<double>(measured->rooms);
  const double lone_p50 = percentile(measured->lone_us, 50);
  const double ping_p50 = percentile(measured->ping_us, 50);
  Report report("bench handoff");
  report.figure("rooms_per_s", rooms / measured->stream.seconds, fmt::format("{} in flight", options.window));
  report.figure("cpu_us_per_room", measured->stream.cpu_seconds * 1e6 / rooms, "us, both processes together");
  report.figure("lone_us_p50", lone_p50, "us from Receiver::init to Success");
  report.figure("lone_us_p99", percentile(measured->lone_us, 99), "us");
  report.figure("pingpong_us_p50", ping_p50, "us there and back, epoll over loopback");
  report.figure("pingpong_us_p99", percentile(measured->ping_us, 99), "us");
  report.figure("lone_over_pingpong", lone_p50 / ping_p50);
  report.figure("rooms", measured->rooms);
  report.figure("lone_rooms", measured->lone_us.size());
  return report.finish(context);
}

}  // namespace

void add_bench_handoff(CLI::App& bench, Context& context) {
  CLI::App* command =
      add_command(bench, context, "handoff", "Rooms a second and latency, for rooms of one page of 4 KiB",
                  "First a closed loop with --window rooms in flight, then single rooms whose sender waits already,\n"
                  "in turns with an epoll ping-pong between the same two processes.\n\n"
                  "Example:\n"
                  "  kvferry bench handoff --seconds 20 --window 256 --json");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--seconds", options->seconds, "Length of the closed loop")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_option("--window", options->window, "Rooms in flight")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{4000}))
      ->capture_default_str();
  command->add_option("--transport", options->transport, "auto, samehost or tcp")
      ->check(CLI::IsMember({"auto", "samehost", "tcp"}))
      ->capture_default_str();
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
