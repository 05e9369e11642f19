// kvferry chaos: trouble on real processes, drawn from a seed, while rooms go on; every byte of every room is checked.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/try.h"
#include "tools/chaos_load.h"
#include "tools/chaos_page.h"
#include "tools/chaos_run.h"
#include "tools/commands.h"
#include "tools/html_page.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stats.h"

namespace kvferry::tools {

namespace {

struct Options {
  ChaosPlan plan{};
  std::vector<std::string> faults{"kill", "stop", "pause", "bootstrap"};
  std::string trace{};
  std::string model = "small";
  std::uint32_t layers = 1;
  std::string html{};
};

// Workers inherit these. Trouble comes every second or two, so peers are given up sooner than an engine would want.
void set_defaults_of_workers() {
  ::setenv("KVFERRY_LOG", "off", 0);
  ::setenv("KVFERRY_PING_INTERVAL", "250ms", 0);
  ::setenv("KVFERRY_LEASE_TTL", "3s", 0);
}

Result<std::vector<FaultKind>> kinds_of(const std::vector<std::string>& names) {
  std::vector<FaultKind> kinds;
  for (const std::string& name : names) {
    const auto kind = fault_named(name);
    if (!kind) {
      return Error{.code = Code::invalid_argument,
                   .text = fmt::format("fault \"{}\" is not known; known are {}", name, fault_names())};
    }
    kinds.push_back(*kind);
  }
  return kinds;
}

Result<std::vector<TraceRequest>> load(const Options& options) {
  if (options.trace.empty()) return draw_requests(options.plan.faults.seed, 2000);
  std::ifstream file(options.trace);
  if (!file) return Error{.code = Code::invalid_argument, .text = options.trace + ": cannot be opened"};
  return read_trace(file, options.trace, 20'000);
}

// A request that fits no worker would wait for pages for ever.
Result<void> check_fits(const ClusterPlan& plan, const std::vector<TraceRequest>& requests) {
  if (requests.empty()) return Error{.code = Code::invalid_argument, .text = "the trace has no request"};
  const std::uint64_t longest = std::ranges::max_element(requests, {}, &TraceRequest::input_tokens)->input_tokens;
  const std::uint64_t there = std::min(plan.pages(Role::prefill), plan.pages(Role::decode)) * plan.page_tokens;
  if (longest <= there) return {};
  return Error{.code = Code::invalid_argument,
               .text = fmt::format("the longest request has {} tokens, a worker has memory for {}: give more --memory "
                                   "or fewer workers",
                                   longest, there)};
}

double from(std::optional<double> at_s, double began_s) {
  return at_s ? (*at_s - began_s) * 1e3 : std::numeric_limits<double>::quiet_NaN();
}

void add_faults(Report& report, const ChaosResult& result) {
  std::vector<double> noticed_ms;
  std::vector<double> back_ms;
  std::size_t kills = 0;
  for (const FaultRecord& one : result.faults) {
    kills += one.fault.kind == FaultKind::kill ? 1 : 0;
    if (one.fault.kind == FaultKind::kill && one.noticed_s) noticed_ms.push_back(from(one.noticed_s, one.began_s));
    if (one.ended_s && one.recovered_s) back_ms.push_back(from(one.recovered_s, *one.ended_s));
    report.row({{"at_s", one.began_s},
                {"fault", fault_name(one.fault.kind)},
                {"worker", result.workers[one.fault.worker]},
                {"lasted_s", one.ended_s.value_or(result.seconds) - one.began_s},
                {"rooms", one.rooms_with_it},
                {"failed", one.rooms_failed},
                {"noticed_ms", from(one.noticed_s, one.began_s)},
                {"all_failed_ms", from(one.all_failed_s, one.began_s)},
                {"back_ms", from(one.recovered_s, one.ended_s.value_or(0))}});
  }
  report.figure("faults", result.faults.size());
  report.figure("kills", kills);
  report.figure("kill_noticed_ms_p50", percentile(noticed_ms, 50),
                "ms from SIGKILL to the first failed room, as heard");
  report.figure("back_ms_p50", percentile(back_ms, 50), "ms from a fault's end to the first new room's success");
  report.figure("back_ms_max", percentile(back_ms, 100), "ms");
}

void add_memory(Report& report, const ChaosResult& result) {
  double worst = 0;
  for (const Survivor& one : result.survivors) {
    worst = std::max(worst, one.growth_percent());
    report.note(fmt::format("{}: {:.1f} MB resident after {} rooms of all, {:.1f} MB at the end", one.name,
                            static_cast<double>(one.resident_before) / 1e6, result.rooms_before,
                            static_cast<double>(one.resident_after) / 1e6));
  }
  report.figure("rss_growth_percent", worst, "% of the resident size of a worker that was never killed");
}

void fill(Report& report, const Options& options, const ChaosResult& result) {
  const ChaosTotals& totals = result.totals;
  report.figure("rooms", totals.rooms);
  report.figure("succeeded", totals.succeeded);
  report.figure("failed", totals.failed, "with a worker that was in trouble");
  report.figure("wrong", totals.wrong, "rooms with an item that has not its CRC32C");
  report.figure("hung", totals.hung, "rooms without an end");
  report.figure("healthy_failures", totals.healthy_failures, "failed, and nobody in trouble had a part in them");
  report.figure("given_up", totals.given_up, "sides that the balancer told: the other died before they had met");
  report.figure("seconds", result.seconds, "s");
  report.figure("rooms_per_s", static_cast<double>(totals.rooms) / result.seconds);
  report.figure("gbps", static_cast<double>(totals.bytes) / result.seconds / 1e9, "GB/s, made, moved and checked");
  add_faults(report, result);
  add_memory(report, result);
  report.note(fmt::format("seed {}; {} prefill and {} decode processes", options.plan.faults.seed,
                          options.plan.cluster.prefill, options.plan.cluster.decode));
  for (const std::string& words : result.left_out) report.note("left out: " + words);
  for (const std::string& words : result.complaints) report.note(words);
  if (totals.wrong != 0) report.fail(fmt::format("{} rooms arrived wrong", totals.wrong));
  if (totals.hung != 0) report.fail(fmt::format("{} rooms have no end", totals.hung));
  if (totals.healthy_failures != 0) report.fail(fmt::format("{} healthy rooms failed", totals.healthy_failures));
  if (result.complaints.size() > 0 && report.ok()) report.fail(result.complaints.front());
}

Result<ChaosResult> run_chaos(const Options& options, const std::vector<TraceRequest>& requests) {
  std::optional<ChaosNetwork> network;
  if (std::ranges::any_of(options.plan.faults.kinds, needs_network)) {
    KVF_TRY(made, ChaosNetwork::make(options.plan.cluster.prefill + options.plan.cluster.decode));
    network.emplace(std::move(made));
  }
  if (std::ranges::count(options.plan.faults.kinds, FaultKind::delay) != 0) {
    // Found out now, not in the middle of the run.
    KVF_CHECK(network->delay(0, std::chrono::milliseconds(1)));
    KVF_CHECK(network->delay(0, std::chrono::milliseconds(0)));
  }
  Progress progress("chaos", static_cast<std::uint64_t>(options.plan.faults.seconds));
  return tools::run_chaos(options.plan, network ? &*network : nullptr, requests,
                          [&](double seconds, const ChaosTotals& totals) {
                            progress.set(static_cast<std::uint64_t>(seconds),
                                         fmt::format("{} rooms, {} wrong, {} healthy failures", totals.rooms,
                                                     totals.wrong, totals.healthy_failures));
                          });
}

int run(const Context& context, Options options) {
  set_defaults_of_workers();
  auto kinds = kinds_of(options.faults);
  if (!kinds) return cannot_run(context, kinds.error().text);
  options.plan.faults.kinds = *kinds;
  auto model = model_shape(options.model, options.layers);
  if (!model) return cannot_run(context, model.error().text);
  auto settings = Settings::from_environment();
  if (!settings) return cannot_run(context, settings.error().text);
  options.plan.cluster.model = *model;
  options.plan.faults.prefill = options.plan.cluster.prefill;
  options.plan.faults.decode = options.plan.cluster.decode;
  options.plan.faults.silence_max_s =
      static_cast<double>(settings->ping_interval.count()) * (settings->ping_misses_max + 1) / 1e3;
  auto requests = load(options);
  if (!requests) return cannot_run(context, requests.error().text);
  if (auto fits = check_fits(options.plan.cluster, *requests); !fits) return cannot_run(context, fits.error().text);
  auto result = run_chaos(options, *requests);
  if (!result) return cannot_run(context, result.error().message());
  Report report("chaos");
  fill(report, options, *result);
  if (!options.html.empty()) {
    if (auto written = write_file(options.html, chaos_page(options.plan, *result)); !written) {
      return cannot_run(context, written.error().text);
    }
    report.note("the timeline is in " + options.html);
  }
  return report.finish(context);
}

void add_options(CLI::App& command, Options& options) {
  FaultPlan& faults = options.plan.faults;
  ClusterPlan& cluster = options.plan.cluster;
  cluster.memory_bytes = std::uint64_t{768} << 20;
  command.add_option("--seconds", faults.seconds, "How long rooms are handed out")
      ->check(CLI::Range(1.0, 86'400.0))
      ->capture_default_str();
  command
      .add_option("--seed", faults.seed, "Decides which trouble comes when, and the requests where there is no trace")
      ->capture_default_str();
  command.add_option("--faults", options.faults, "Some of " + fault_names() + "; cut and delay need root")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--every", faults.every_s, "Seconds from one fault to the next, on average")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command.add_option("--prefill", cluster.prefill, "Prefill processes")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command.add_option("--decode", cluster.decode, "Decode processes")->check(CLI::Range(1, 16))->capture_default_str();
  command.add_option("--trace", options.trace, "Requests in the FAST'25 format, over and over; drawn when absent")
      ->check(CLI::ExistingFile);
  command.add_option("--model", options.model, "KV shape: " + model_names())->capture_default_str();
  command.add_option("--layers", options.layers, "Layers; 0 scales the model to about 4 KiB a token")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  command.add_option("--transport", cluster.transport, "auto, tcp, samehost or shared")
      ->check(CLI::IsMember({"auto", "tcp", "samehost", "shared"}))
      ->capture_default_str();
  command.add_option("--memory", cluster.memory_bytes, "KV memory of all processes together, for example 1GiB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command.add_option("--window", options.plan.window, "Rooms in flight a decode process")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--html", options.html, "Write the timeline as a page with a picture to this file");
}

}  // namespace

void add_chaos(CLI::App& app, Context& context) {
  CLI::App* command = add_command(
      app, context, "chaos", "Kill, stop, cut and restart real processes under load, and check every byte",
      "Prefill and decode processes hand rooms over without pause, while trouble comes to them, drawn from the seed:\n"
      "  kill       SIGKILL, started again up to 1.5 s later\n"
      "  stop       SIGSTOP for longer than its peers wait, then SIGCONT\n"
      "  pause      SIGSTOP for less than that: nothing may fail\n"
      "  bootstrap  a bootstrap server goes and comes back: nothing may fail\n"
      "  cut        no packet reaches or leaves it for a while (network namespaces: root)\n"
      "  delay      packets to it come 25 ms late: nothing may fail (root, and a kernel with sch_netem)\n"
      "Good is a run without a wrong byte, without a room that has no end, and without a failed room that nobody in\n"
      "trouble had a part in. Peers are given up after a second here; KVFERRY_PING_INTERVAL and the others change "
      "it.\n\n"
      "Example:\n"
      "  kvferry chaos --seconds 600 --faults kill,stop,pause,bootstrap,cut --html chaos.html");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  add_options(*command, *options);
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
