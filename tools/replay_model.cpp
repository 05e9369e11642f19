#include "tools/replay_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kvferry::tools {

namespace {

constexpr std::size_t scaled_token_bytes = 4096;

const std::array<ModelShape, 7>& models() {
  static const std::array<ModelShape, 7> all{{
      {.name = "llama-8b", .layers = 32, .kv_heads = 8, .head_dim = 128, .mla = false},
      {.name = "llama-70b", .layers = 80, .kv_heads = 8, .head_dim = 128, .mla = false},
      {.name = "mistral-7b", .layers = 32, .kv_heads = 8, .head_dim = 128, .mla = false},
      {.name = "qwen2-7b", .layers = 28, .kv_heads = 4, .head_dim = 128, .mla = false},
      {.name = "qwen2-72b", .layers = 80, .kv_heads = 8, .head_dim = 128, .mla = false},
      {.name = "small", .layers = 16, .kv_heads = 2, .head_dim = 32, .mla = false},
      {.name = "deepseek-v3-mla", .layers = 61, .kv_heads = 1, .head_dim = 576, .mla = true},
  }};
  return all;
}

}  // namespace

KvFormat ModelShape::format(std::uint32_t page_tokens) const {
  return {.page_tokens = page_tokens, .layers = layers, .kv_heads = kv_heads, .head_dim = head_dim, .mla = mla};
}

std::string model_names() {
  std::string names;
  for (const ModelShape& model : models()) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

Result<ModelShape> model_shape(const std::string& name, std::uint32_t layers) {
  const auto found = std::ranges::find(models(), name, &ModelShape::name);
  if (found == models().end()) {
    return Error{.code = Code::invalid_argument,
                 .text = fmt::format("model \"{}\" is not known; known are {}", name, model_names())};
  }
  ModelShape model = *found;
  const std::size_t layer_bytes = model.token_bytes() / model.layers;
  const std::size_t scaled = std::max<std::size_t>(1, (scaled_token_bytes + layer_bytes / 2) / layer_bytes);
  model.layers = layers != 0 ? layers : static_cast<std::uint32_t>(scaled);
  return model;
}

}  // namespace kvferry::tools
