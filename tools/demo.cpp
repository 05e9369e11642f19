// kvferry demo: real prefill and decode processes answer prompts together, and every answer is compared with that of
// one process alone.
#include <fmt/format.h>
#include <stdlib.h>

#include <memory>

#include "base/try.h"
#include "engine/model.h"
#include "tools/commands.h"
#include "tools/demo_cluster.h"
#include "tools/demo_prompts.h"
#include "tools/demo_report.h"
#include "tools/progress.h"

namespace kvferry::tools {
namespace {

struct Options {
  std::size_t prefills = 2;
  std::size_t decodes = 2;
  std::size_t requests = 64;
  std::string transport;
  std::string kill;
  bool shared = false;
  std::uint64_t seed = 1;
};

constexpr std::chrono::milliseconds quit_limit{5000};

Result<std::vector<std::vector<std::int32_t>>> one_process_answers(Cluster& cluster,
                                                                   const std::vector<DemoRequest>& requests) {
  Progress progress("one process alone", requests.size());
  Balancer balancer({&cluster.alone()}, for_one_engine(requests), {});
  KVF_CHECK(balancer.run({}, [&](std::size_t ended) { progress.set(ended); }));
  std::vector<std::vector<std::int32_t>> answers;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Outcome& outcome = balancer.outcomes()[i];
    if (outcome.state != Outcome::State::done) {
      return Error{Code::internal, fmt::format("the one process did not answer request {}: {}", i,
                                               outcome.answer.error.empty() ? "no answer" : outcome.answer.error)};
    }
    answers.push_back(outcome.answer.tokens);
  }
  cluster.alone().quit(quit_limit);
  return answers;
}

Result<DemoResult> play(Cluster& cluster, const Options& options) {
  const engine::ModelConfig model;
  DemoPrompts prompts = make_prompts({.requests = options.requests,
                                      .prefills = options.prefills,
                                      .decodes = options.decodes,
                                      .seed = options.seed,
                                      .vocab = model.vocab,
                                      .page_tokens = model.page_tokens});
  DemoResult result;
  result.requests = prompts.requests;
  result.repeated = prompts.repeated;
  result.kill_wanted = !options.kill.empty();
  for (const EngineProcess* engine : cluster.engines()) result.engine_names.push_back(engine->name());
  KVF_TRY(expected, one_process_answers(cluster, prompts.requests));
  result.expected = std::move(expected);

  std::optional<Kill> kill;
  if (result.kill_wanted) {
    kill = Kill{.engine = options.kill == "prefill" ? 0 : options.prefills, .after_done = options.requests / 2};
  }
  Progress progress("prefill and decode", options.requests);
  Balancer balancer(cluster.engines(), prompts.requests, {});
  KVF_CHECK(balancer.run(kill, [&](std::size_t ended) { progress.set(ended); }));
  result.outcomes = balancer.outcomes();
  result.notices = balancer.notices();
  result.losses = balancer.losses();
  result.killed = balancer.killed();
  result.prefill_open = balancer.prefill_open();
  for (const std::string& late : cluster.quit(quit_limit)) result.losses.push_back(late + " did not quit when asked");
  return result;
}

int run(const Context& context, const Options& options) {
  // All processes are on this machine; an address that others reach would only ask for a token.
  ::setenv("KVFERRY_HOST", "127.0.0.1", 0);
  auto cluster = Cluster::start({.prefills = options.prefills,
                                 .decodes = options.decodes,
                                 .seed = options.seed,
                                 .transport = options.transport,
                                 .shared = options.shared});
  if (!cluster) return cannot_run(context, cluster.error().text);
  auto result = play(**cluster, options);
  if (!result) {
    return cannot_run(context, fmt::format("{} (logs are in {})", result.error().text, (*cluster)->keep_logs()));
  }
  Report report(fmt::format("{} prefill and {} decode engines, {} requests{}", options.prefills, options.decodes,
                            options.requests, options.kill.empty() ? "" : ", one " + options.kill + " engine killed"));
  judge(*result, report);
  if (!report.ok()) report.note("Logs of the processes: " + (*cluster)->keep_logs());
  return report.finish(context);
}

}  // namespace

void add_demo(CLI::App& app, Context& context) {
  CLI::App* command = add_command(
      app, context, "demo", "Let real prefill and decode processes answer prompts together, and check every answer",
      "Starts a bootstrap server a prefill instance and the engines, hands every prompt to one prefill and one\n"
      "decode engine, and compares the tokens with those of one process alone. With --kill one engine is killed\n"
      "(SIGKILL) halfway and started again: requests that needed it fail with a reason and are tried once more,\n"
      "all others must not notice.\n\n"
      "Example:\n"
      "  kvferry demo --kill decode\n"
      "  kvferry demo --prefill 1 --decode 3 --transport tcp --json | tail -1 | jq .figures");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--prefill", options->prefills, "Prefill engines")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command->add_option("--decode", options->decodes, "Decode engines")->check(CLI::Range(1, 16))->capture_default_str();
  command->add_option("--requests", options->requests, "Prompts to answer")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--transport", options->transport, "auto, tcp or samehost (default: KVFERRY_TRANSPORT, or auto)")
      ->check(CLI::IsMember({"auto", "tcp", "samehost"}));
  command->add_option("--kill", options->kill, "Kill one engine of this side halfway: prefill or decode")
      ->check(CLI::IsMember({"prefill", "decode"}));
  command->add_flag("--shared", options->shared, "Keep the KV caches in shared memory");
  command->add_option("--seed", options->seed, "Of prompts and weights")->capture_default_str();
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
