#include "engine/alone.h"

#include <numeric>
#include <string>

namespace kvferry::engine {

std::vector<int> answer_alone(const Model& model, std::span<const std::int32_t> prompt, std::uint32_t max_tokens) {
  const ModelConfig& config = model.config();
  const CacheShape shape = config.cache_shape(config.pages_for(prompt.size() + max_tokens), 0);
  const PrivateMemory memory(shape.total_bytes());
  const KvCache cache(shape, memory.bytes());
  std::vector<std::int32_t> pages(shape.pages);
  std::iota(pages.begin(), pages.end(), 0);
  Model::Workspace work;
  std::vector<float> logits(config.vocab);
  std::vector<Row> rows;
  for (const std::int32_t token : prompt) {
    rows.push_back({.token = token, .position = static_cast<std::uint32_t>(rows.size()), .pages = pages});
  }
  rows.back().logits = logits;
  std::vector<int> answer;
  while (answer.size() < max_tokens) {
    model.forward(rows, cache, work);
    answer.push_back(argmax(logits));
    rows = {{.token = answer.back(), .position = rows.back().position + 1, .pages = pages, .logits = logits}};
  }
  return answer;
}

std::vector<int> answer_alone(const ModelConfig& config, std::uint64_t seed, std::span<const std::int32_t> prompt,
                              std::uint32_t max_tokens) {
  return answer_alone(Model(config, seed), prompt, max_tokens);
}

Result<void> check_request(const ModelConfig& config, std::span<const std::int32_t> prompt, std::uint32_t max_tokens,
                           std::uint32_t pages) {
  const auto wrong = [](std::string text) { return Error{Code::invalid_argument, std::move(text)}; };
  if (prompt.empty()) return wrong("the prompt is empty; send at least one token");
  if (max_tokens == 0) return wrong("max_tokens is 0; ask for at least one token");
  for (const std::int32_t token : prompt) {
    if (token >= 0 && static_cast<std::uint32_t>(token) < config.vocab) continue;
    return wrong("token " + std::to_string(token) + " is not in the vocabulary of " + std::to_string(config.vocab));
  }
  const std::uint64_t positions = prompt.size() + std::uint64_t{max_tokens};
  if (positions > config.positions_max) {
    return wrong("prompt and answer need " + std::to_string(positions) + " positions, the model has " +
                 std::to_string(config.positions_max) + "; send a shorter prompt or start with --positions");
  }
  if (config.pages_for(positions) > pages) {
    return wrong("prompt and answer need " + std::to_string(config.pages_for(positions)) + " pages, the cache has " +
                 std::to_string(pages) + "; start the engine with more --pages");
  }
  return {};
}

}  // namespace kvferry::engine
