#include "tools/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "base/try.h"
#include "tools/progress.h"
#include "tools/replay_balancer.h"
#include "tools/replay_worker.h"
#include "tools/report.h"
#include "tools/stats.h"

namespace kvferry::tools {

namespace {

struct Options {
  std::string trace;
  std::size_t limit = 1000;
  std::string model = "llama-8b";
  std::uint32_t layers = 0;
  ReplayPlan plan{.memory_bytes = std::uint64_t{6} << 30};
};

Result<std::vector<TraceRequest>> load(const Options& options) {
  std::ifstream file(options.trace);
  if (!file) return Error{.code = Code::invalid_argument, .text = options.trace + ": cannot be opened"};
  return read_trace(file, options.trace, options.limit);
}

// Every request must fit a worker of either role, or it would wait for pages for ever.
Result<void> check_fits(const ReplayPlan& plan, const std::vector<TraceRequest>& requests) {
  const auto& longest = *std::ranges::max_element(requests, {}, &TraceRequest::input_tokens);
  const std::uint64_t needed = (longest.input_tokens + plan.page_tokens - 1) / plan.page_tokens;
  const std::uint64_t there = std::min(plan.prefill_pages(), plan.decode_pages());
  if (needed <= there) return {};
  return Error{.code = Code::invalid_argument,
               .text = fmt::format("trace line {} has {} tokens, {} pages of {} bytes, but a worker has {}: give more "
                                   "--memory, fewer --layers or fewer workers",
                                   longest.line, longest.input_tokens, needed, plan.page_bytes(), there)};
}

Result<ReplayResult> replay(const ReplayPlan& plan, const std::vector<TraceRequest>& requests) {
  Progress progress("replay", requests.size());
  KVF_TRY(balancer, ReplayBalancer::start(plan));
  return balancer.run(requests, [&](std::uint64_t done) { progress.set(done); });
}

void fill(Report& report, const ReplayPlan& plan, const ReplayResult& result, std::size_t requests) {
  report.figure("rooms", result.rooms);
  report.figure("succeeded", result.succeeded);
  report.figure("failed", result.failed);
  report.figure("wrong", result.wrong, "rooms with an item that has not its CRC32C");
  report.figure("seconds", result.seconds, "s");
  report.figure("rooms_per_s", static_cast<double>(result.rooms) / result.seconds);
  report.figure("bytes", result.bytes);
  report.figure("gbps", static_cast<double>(result.bytes) / result.seconds / 1e9, "GB/s, made, moved and checked");
  report.figure("handoff_us_p50", percentile(result.handoff_us, 50), "us from Receiver::init to Success and checked");
  report.figure("handoff_us_p99", percentile(result.handoff_us, 99), "us");
  report.figure(
      "prefix_percent",
      100 * static_cast<double>(result.prefix_tokens) / static_cast<double>(std::max<std::uint64_t>(1, result.tokens)),
      "% of the tokens that decode held already");
  report.note(fmt::format("{} with {} layers, {} bytes a token, pages of {} tokens; {} prefill and {} decode processes",
                          plan.model.name, plan.model.layers, plan.model.token_bytes(), plan.page_tokens, plan.prefill,
                          plan.decode));
  for (const std::string& reason : result.reasons) report.note(reason);
  if (result.failed != 0) report.fail(fmt::format("{} rooms failed", result.failed));
  if (result.wrong != 0) report.fail(fmt::format("{} rooms arrived wrong", result.wrong));
  if (result.rooms != requests) report.fail(fmt::format("{} of {} requests ended", result.rooms, requests));
}

int run(const Context& context, Options options) {
  auto model = model_shape(options.model, options.layers);
  if (!model) return cannot_run(context, model.error().text);
  options.plan.model = *model;
  auto requests = load(options);
  if (!requests) return cannot_run(context, requests.error().text);
  if (auto fits = check_fits(options.plan, *requests); !fits) return cannot_run(context, fits.error().text);
  auto result = replay(options.plan, *requests);
  if (!result) return cannot_run(context, result.error().message());
  Report report("replay");
  fill(report, options.plan, *result, requests->size());
  return report.finish(context);
}

void add_options(CLI::App& command, Options& options) {
  ReplayPlan& plan = options.plan;
  command.add_option("trace", options.trace, "The trace, one JSON object a line")->required()->check(CLI::ExistingFile);
  command.add_option("--limit", options.limit, "Requests to replay, from the first on")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--speed", plan.speed, "1 is the trace's own pace; 0 as fast as pages allow")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--prefill", plan.prefill, "Prefill processes")->check(CLI::Range(1, 16))->capture_default_str();
  command.add_option("--decode", plan.decode, "Decode processes")->check(CLI::Range(1, 16))->capture_default_str();
  command.add_option("--model", options.model, "KV shape: " + model_names())->capture_default_str();
  command.add_option("--layers", options.layers, "Layers; 0 scales the model to about 4 KiB a token")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  command.add_option("--page-tokens", plan.page_tokens, "Tokens of one page")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32, 64, 128, 256, 512}))
      ->capture_default_str();
  command.add_option("--transport", plan.transport, "auto, tcp, samehost or shared")
      ->check(CLI::IsMember({"auto", "tcp", "samehost", "shared"}))
      ->capture_default_str();
  command.add_option("--memory", plan.memory_bytes, "KV memory of all processes together, for example 6GiB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command.add_option("--window", plan.window, "Rooms in flight a decode process")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
}

}  // namespace

void add_replay(CLI::App& app, Context& context) {
  CLI::App* command = add_command(
      app, context, "replay", "Replay a trace of real requests between real processes, every byte checked",
      "Reads the FAST'25 format: timestamp (ms), input_length and output_length (tokens), hash_ids (one for each 512\n"
      "input tokens). Decode keeps the blocks it got, and is sent what it lacks. Each page's bytes follow from its\n"
      "block, so that decode checks all of them by CRC32C.\n\n"
      "Example:\n"
      "  kvferry replay conversation.jsonl --limit 2000 --decode 3 --transport tcp");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  add_options(*command, *options);
  on_run(command, context, [&context, options] { return run(context, *options); });

  CLI::App* worker = app.add_subcommand("replay-worker", "A process of `kvferry replay`")->group("");
  on_run(worker, context, run_replay_worker);
}

}  // namespace kvferry::tools
