#include "tools/demo_matrix.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/try.h"
#include "engine/alone.h"
#include "engine/model.h"
#include "tools/balancer.h"
#include "tools/demo_prompts.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace kvferry::tools {
namespace {

constexpr std::chrono::milliseconds quit_limit{5000};
constexpr std::size_t requests = 6;
constexpr std::size_t quick_combinations = 24;

using Answers = std::vector<std::vector<std::int32_t>>;

engine::ModelConfig model_of(bool mla) {
  engine::ModelConfig model;
  model.mla = mla;
  if (mla) model.kv_heads = 1;
  return model;
}

std::vector<ClusterOptions> combinations(const ClusterOptions& like) {
  struct Stages {
    std::uint32_t prefill;
    std::uint32_t decode;
  };
  std::vector<ClusterOptions> all;
  for (const std::uint32_t prefill_tp : {1U, 2U, 4U}) {
    for (const std::uint32_t decode_tp : {1U, 2U, 4U}) {
      for (const Stages pp : {Stages{1, 1}, Stages{2, 1}, Stages{2, 2}}) {
        for (const std::uint32_t dp : {1U, 2U}) {
          for (const bool mla : {false, true}) {
            for (const bool layer_wise : {false, true}) {
              ClusterOptions one = like;
              one.prefills = 1;
              one.decodes = 1;
              one.prefill = {.tp = prefill_tp, .pp = pp.prefill, .dp = dp};
              one.decode = {.tp = decode_tp, .pp = pp.decode, .dp = dp};
              one.mla = mla;
              one.layer_wise = layer_wise;
              one.chunk_tokens = 24;  // not a whole number of pages
              all.push_back(std::move(one));
            }
          }
        }
      }
    }
  }
  return all;
}

// Every so many that each size of each dimension comes up.
std::vector<ClusterOptions> some_of(const std::vector<ClusterOptions>& all) {
  constexpr std::size_t stride = 125;  // without a common factor with the number of combinations
  std::vector<ClusterOptions> some;
  for (std::size_t i = 0; i < quick_combinations; ++i) some.push_back(all[i * stride % all.size()]);
  return some;
}

struct Tried {
  std::size_t identical = 0;
  std::string trouble{};  // the first
  double seconds = 0;
};

Result<Tried> try_one(const ClusterOptions& options, const std::vector<DemoRequest>& prompts, const Answers& expected) {
  const auto began = std::chrono::steady_clock::now();
  KVF_TRY(cluster, Cluster::start(options));
  Balancer balancer(cluster->engines(), prompts, {});
  if (auto ran = balancer.run({}, [](std::size_t) {}); !ran) {
    return Error{ran.error().code, fmt::format("{} (logs are in {})", ran.error().text, cluster->keep_logs())};
  }
  Tried tried;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Outcome& outcome = balancer.outcomes()[i];
    if (outcome.state == Outcome::State::done && outcome.answer.tokens == expected[i]) {
      ++tried.identical;
    } else if (tried.trouble.empty()) {
      tried.trouble = outcome.answer.error.empty() ? "another answer, or none" : outcome.answer.error;
    }
  }
  for (const std::string& late : cluster->quit(quit_limit)) tried.trouble = late + " did not quit when asked";
  if (!tried.trouble.empty()) tried.trouble += fmt::format(" (logs are in {})", cluster->keep_logs());
  tried.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return tried;
}

std::string text_of(const Split& split) { return fmt::format("tp {} pp {} dp {}", split.tp, split.pp, split.dp); }

}  // namespace

int run_matrix(const Context& context, const ClusterOptions& like, bool quick) {
  const engine::ModelConfig model;
  const DemoPrompts prompts = make_prompts({.requests = requests,
                                            .prefills = 1,
                                            .decodes = 1,
                                            .seed = like.seed,
                                            .vocab = model.vocab,
                                            .page_tokens = model.page_tokens,
                                            .beginning_pages = 2,
                                            .tail_tokens_max = 48});
  Answers expected[2];
  for (const bool mla : {false, true}) {
    for (const DemoRequest& request : prompts.requests) {
      expected[mla ? 1 : 0].push_back(
          engine::answer_alone(model_of(mla), like.seed, request.prompt, request.max_tokens));
    }
  }
  const std::vector<ClusterOptions> all = combinations(like);
  const std::vector<ClusterOptions> chosen = quick ? some_of(all) : all;
  Progress progress("combinations", chosen.size());
  Report report(fmt::format("{} ways to split prefill and decode, {} requests each", chosen.size(), requests));
  std::size_t identical = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const ClusterOptions& one = chosen[i];
    auto tried = try_one(one, prompts.requests, expected[one.mla ? 1 : 0]);
    if (!tried) return cannot_run(context, tried.error().text);
    const std::string name = fmt::format("prefill {}, decode {}, {}, {}", text_of(one.prefill), text_of(one.decode),
                                         one.mla ? "mla" : "grouped heads", one.layer_wise ? "layer-wise" : "chunked");
    const bool good = tried->identical == requests && tried->trouble.empty();
    if (good) ++identical;
    if (!good) report.fail(fmt::format("{}: {}", name, tried->trouble));
    seconds += tried->seconds;
    report.row({{"prefill", text_of(one.prefill)},
                {"decode", text_of(one.decode)},
                {"heads", one.mla ? "mla" : "grouped"},
                {"sending", one.layer_wise ? "layer-wise" : "chunked"},
                {"identical", good},
                {"seconds", tried->seconds}});
    progress.set(i + 1);
  }
  report.figure("combinations", chosen.size());
  report.figure("identical", identical, "all answers like those of one process");
  report.figure("seconds", seconds);
  return report.finish(context);
}

}  // namespace kvferry::tools
