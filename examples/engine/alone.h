// The reference: one process answers a prompt without any hand-off.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model.h"

namespace kvferry::engine {

// Greedy tokens after `prompt`; `max_tokens` of them. The prompt is not empty, its tokens are in the vocabulary, and
// prompt and answer fit into positions_max.
std::vector<int> answer_alone(const Model& model, std::span<const std::int32_t> prompt, std::uint32_t max_tokens);
// Makes the model first, which takes some milliseconds.
std::vector<int> answer_alone(const ModelConfig& config, std::uint64_t seed, std::span<const std::int32_t> prompt,
                              std::uint32_t max_tokens);

// What makes a request impossible for the model, in words; `pages` is what the whole cache holds. No error where the
// request can be answered.
Result<void> check_request(const ModelConfig& config, std::span<const std::int32_t> prompt, std::uint32_t max_tokens,
                           std::uint32_t pages);

}  // namespace kvferry::engine
