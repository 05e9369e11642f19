#include "tools/demo_prompts.h"

#include <algorithm>
#include <random>

namespace kvferry::tools {
namespace {

constexpr std::size_t beginnings = 4;
constexpr std::uint32_t answer_tokens_min = 4;
constexpr std::uint32_t answer_tokens_max = 16;

// The standard's distributions differ between libraries; a remainder does not.
std::uint64_t below(std::mt19937_64& random, std::uint64_t bound) { return random() % bound; }

std::vector<std::int32_t> random_tokens(std::mt19937_64& random, std::size_t count, std::uint32_t vocab) {
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(below(random, vocab));
  return tokens;
}

}  // namespace

DemoPrompts make_prompts(const PromptPlan& plan) {
  std::mt19937_64 random(plan.seed);
  std::vector<std::vector<std::int32_t>> shared;
  for (std::size_t i = 0; i < beginnings; ++i) {
    shared.push_back(random_tokens(random, plan.beginning_pages * plan.page_tokens, plan.vocab));
  }
  DemoPrompts prompts;
  for (std::size_t i = 0; i < plan.requests; ++i) {
    // Every third prompt is its own from the first token on.
    std::vector<std::int32_t> prompt;
    if (i % 3 != 2) prompt = shared[i % beginnings];
    std::size_t tail = 1 + below(random, plan.tail_tokens_max);
    for (std::int32_t token : random_tokens(random, tail, plan.vocab)) prompt.push_back(token);
    prompts.requests.push_back(
        {.prompt = std::move(prompt),
         .max_tokens =
             answer_tokens_min + static_cast<std::uint32_t>(below(random, answer_tokens_max - answer_tokens_min + 1)),
         .prefill = i % plan.prefills,
         .decode = plan.prefills + i / plan.prefills % plan.decodes,
         .after = {}});
  }
  // The repeated one comes early enough that a kill halfway does not take decode's pages of it away.
  std::size_t repeated = std::max<std::size_t>(plan.requests / 3, 1);
  if (repeated >= plan.requests) return prompts;
  DemoRequest& first = prompts.requests.front();
  first.prompt.resize(plan.beginning_pages * plan.page_tokens);  // whole pages, so that decode holds all of it
  prompts.requests[repeated].prompt = first.prompt;
  prompts.requests[repeated].decode = first.decode;
  prompts.requests[repeated].after = 0;
  prompts.repeated = repeated;
  return prompts;
}

std::vector<DemoRequest> for_one_engine(std::vector<DemoRequest> requests) {
  for (DemoRequest& request : requests) {
    request.prefill.reset();
    request.decode = 0;
    request.after.reset();
  }
  return requests;
}

}  // namespace kvferry::tools
