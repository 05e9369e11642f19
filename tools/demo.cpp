// kvferry demo: real prefill and decode processes answer prompts together, and every answer is compared with that of
// one process alone.
#include <fmt/format.h>
#include <stdlib.h>

#include <memory>

#include "base/try.h"
#include "engine/model.h"
#include "tools/commands.h"
#include "tools/demo_cluster.h"
#include "tools/demo_matrix.h"
#include "tools/demo_prompts.h"
#include "tools/demo_report.h"
#include "tools/progress.h"

namespace kvferry::tools {
namespace {

struct Options {
  ClusterOptions cluster{.seed = 1};
  std::size_t requests = 64;
  std::string kill;
  std::string matrix;
};

constexpr std::chrono::milliseconds quit_limit{5000};

Result<std::vector<std::vector<std::int32_t>>> one_process_answers(Cluster& cluster,
                                                                   const std::vector<DemoRequest>& requests) {
  KVF_TRY(alone, cluster.start_alone());
  Progress progress("one process alone", requests.size());
  Balancer balancer({alone}, for_one_engine(requests), {});
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
  alone->quit(quit_limit);
  return answers;
}

Result<DemoResult> play(Cluster& cluster, const Options& options) {
  const engine::ModelConfig model;
  DemoPrompts prompts = make_prompts({.requests = options.requests,
                                      .prefills = options.cluster.prefills,
                                      .decodes = options.cluster.decodes,
                                      .seed = options.cluster.seed,
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
    kill = Kill{.engine = options.kill == "prefill" ? 0 : options.cluster.prefills, .after_done = options.requests / 2};
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

std::string split_text(const Split& split) {
  return split.tp * split.pp * split.dp == 1 ? std::string()
                                             : fmt::format(" (tp {} pp {} dp {})", split.tp, split.pp, split.dp);
}

int run(const Context& context, const Options& options) {
  // All processes are on this machine; an address that others reach would only ask for a token.
  ::setenv("KVFERRY_HOST", "127.0.0.1", 0);
  if (!options.matrix.empty()) return run_matrix(context, options.cluster, options.matrix == "quick");
  auto cluster = Cluster::start(options.cluster);
  if (!cluster) return cannot_run(context, cluster.error().text);
  auto result = play(**cluster, options);
  if (!result) {
    return cannot_run(context, fmt::format("{} (logs are in {})", result.error().text, (*cluster)->keep_logs()));
  }
  Report report(fmt::format("{} prefill{} and {} decode engines{}, {} requests{}", options.cluster.prefills,
                            split_text(options.cluster.prefill), options.cluster.decodes,
                            split_text(options.cluster.decode), options.requests,
                            options.kill.empty() ? "" : ", one " + options.kill + " engine killed"));
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
      "all others must not notice.\n"
      "The engines may be split, each rank a process of its own, differently on the two sides; --matrix tries all\n"
      "ways, and quick 24 of them.\n\n"
      "Example:\n"
      "  kvferry demo --kill decode\n"
      "  kvferry demo --prefill-tp 4 --decode-tp 2 --prefill-pp 2 --dp 2\n"
      "  kvferry demo --matrix quick\n"
      "  kvferry demo --prefill 1 --decode 3 --transport tcp --json | tail -1 | jq .figures");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  ClusterOptions& cluster = options->cluster;
  command->add_option("--prefill", cluster.prefills, "Prefill engines")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command->add_option("--decode", cluster.decodes, "Decode engines")->check(CLI::Range(1, 16))->capture_default_str();
  command->add_option("--requests", options->requests, "Prompts to answer")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--transport", cluster.transport, "auto, tcp or samehost (default: KVFERRY_TRANSPORT, or auto)")
      ->check(CLI::IsMember({"auto", "tcp", "samehost"}));
  command->add_option("--kill", options->kill, "Kill one engine of this side halfway: prefill or decode")
      ->check(CLI::IsMember({"prefill", "decode"}));
  command->add_flag("--shared", cluster.shared, "Keep the KV caches in shared memory");
  command->add_option("--seed", cluster.seed, "Of prompts and weights")->capture_default_str();
  command->add_option("--prefill-tp", cluster.prefill.tp, "Tensor-parallel ranks of a prefill engine")
      ->check(CLI::Range(1, 8));
  command->add_option("--decode-tp", cluster.decode.tp, "Tensor-parallel ranks of a decode engine")
      ->check(CLI::Range(1, 8));
  command->add_option("--prefill-pp", cluster.prefill.pp, "Pipeline stages of a prefill engine")
      ->check(CLI::Range(1, 4));
  command->add_option("--decode-pp", cluster.decode.pp, "Pipeline stages of a decode engine: 1, or as on prefill")
      ->check(CLI::Range(1, 4));
  command
      ->add_option_function<std::uint32_t>(
          "--dp", [options](std::uint32_t dp) { options->cluster.prefill.dp = options->cluster.decode.dp = dp; },
          "Data-parallel groups of every engine")
      ->check(CLI::Range(1, 8));
  command->add_option("--prefill-page-tokens", cluster.prefill.page_tokens, "Tokens of a page on prefill")
      ->capture_default_str();
  command->add_option("--decode-page-tokens", cluster.decode.page_tokens, "Tokens of a page on decode")
      ->capture_default_str();
  command->add_flag("--mla", cluster.mla, "A model with one latent head instead of grouped heads");
  command->add_flag("--layer-wise", cluster.layer_wise, "Send layers while later ones are still computed");
  command->add_option("--matrix", options->matrix, "Try every way of splitting (full), or 24 of them (quick)")
      ->check(CLI::IsMember({"full", "quick"}))
      ->expected(0, 1)
      ->default_str("full");
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
