#include "engine/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

namespace kvferry::engine {
namespace {

std::vector<float> random_norm(std::size_t size, Random& random) {
  std::vector<float> weight(size);
  for (float& value : weight) value = 1.0F + 0.25F * random.symmetric();
  return weight;
}

void add(const std::vector<float>& from, std::size_t size, std::vector<float>& to) {
  for (std::size_t i = 0; i < size; ++i) to[i] += from[i];
}

}  // namespace

Result<void> ModelConfig::check() const {
  const auto wrong = [](const char* name, std::uint64_t value, const char* expected) {
    return Error{Code::invalid_argument,
                 std::string(name) + " is " + std::to_string(value) + "; it must be " + expected};
  };
  for (const auto& [name, value] : {std::pair{"hidden", hidden},
                                    {"heads * head_dim", heads * head_dim},
                                    {"kv_heads * head_dim", kv_heads * head_dim},
                                    {"ffn", ffn},
                                    {"vocab", vocab}}) {
    if (value == 0 || value % Matrix::panel_columns != 0) return wrong(name, value, "a multiple of 16, not 0");
  }
  if (head_dim < 4 || !std::has_single_bit(head_dim)) return wrong("head_dim", head_dim, "a power of two from 4 on");
  if (heads % kv_heads != 0) return wrong("heads", heads, "a multiple of kv_heads");
  if (layers == 0) return wrong("layers", layers, "at least 1");
  if (page_tokens == 0) return wrong("page_tokens", page_tokens, "at least 1");
  if (positions_max == 0) return wrong("positions_max", positions_max, "at least 1");
  return {};
}

KvFormat ModelConfig::format() const {
  return {.dtype = "float32", .page_tokens = page_tokens, .layers = layers, .kv_heads = kv_heads, .head_dim = head_dim};
}

CacheShape ModelConfig::cache_shape(std::uint32_t pages, std::uint32_t aux_items) const {
  return {.layers = layers,
          .page_tokens = page_tokens,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .pages = pages,
          .aux_items = aux_items};
}

Model::Model(const ModelConfig& config, std::uint64_t seed)
    : config_(config), rotary_(config.positions_max, config.head_dim) {
  Random random(seed);
  const std::size_t hidden = config.hidden;
  const std::size_t q_size = std::size_t{config.heads} * config.head_dim;
  const std::size_t kv_size = std::size_t{config.kv_heads} * config.head_dim;
  embedding_.resize(config.vocab * hidden);
  for (float& value : embedding_) value = random.symmetric();
  // Keys and queries above unit size make the attention choose instead of average, and a large value path makes what it
  // chose matter: an answer then changes when one page of the cache is wrong.
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    Layer layer;
    layer.attention_norm = random_norm(hidden, random);
    layer.q = random_matrix(hidden, q_size, 2.0F, random);
    layer.k = random_matrix(hidden, kv_size, 2.0F, random);
    layer.v = random_matrix(hidden, kv_size, 2.0F, random);
    layer.o = random_matrix(q_size, hidden, 1.0F, random);
    layer.ffn_norm = random_norm(hidden, random);
    layer.gate = random_matrix(hidden, config.ffn, 1.0F, random);
    layer.up = random_matrix(hidden, config.ffn, 1.0F, random);
    layer.down = random_matrix(config.ffn, hidden, 1.0F, random);
    layers_.push_back(std::move(layer));
  }
  final_norm_ = random_norm(hidden, random);
  head_ = random_matrix(hidden, config.vocab, 1.0F, random);
}

void Model::forward(std::span<const Row> rows, const KvCache& cache, Workspace& work) const {
  const std::size_t hidden = config_.hidden;
  const std::size_t q_size = std::size_t{config_.heads} * config_.head_dim;
  work.x.resize(rows.size() * hidden);
  work.normed.resize(rows.size() * hidden);
  work.projected.resize(rows.size() * hidden);
  work.q.resize(rows.size() * q_size);
  work.mixed.resize(rows.size() * q_size);
  work.k.resize(rows.size() * cache.shape().token_floats());
  work.v.resize(rows.size() * cache.shape().token_floats());
  work.gate.resize(rows.size() * config_.ffn);
  work.up.resize(rows.size() * config_.ffn);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float* source = embedding_.data() + static_cast<std::size_t>(rows[i].token) * hidden;
    std::copy_n(source, hidden, work.x.data() + i * hidden);
  }
  for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
    attention(layer, rows, cache, work);
    feed_forward(layers_[layer], rows.size(), work);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].logits.empty()) continue;
    rms_norm(work.x.data() + i * hidden, final_norm_.data(), hidden, work.normed.data());
    multiply(head_, work.normed.data(), 1, rows[i].logits.data());
  }
}

void Model::attention(std::uint32_t index, std::span<const Row> rows, const KvCache& cache, Workspace& work) const {
  const Layer& layer = layers_[index];
  const CacheShape& shape = cache.shape();
  const std::size_t token_floats = shape.token_floats();
  const std::size_t q_size = std::size_t{config_.heads} * config_.head_dim;
  normalise(layer.attention_norm, rows.size(), work);
  multiply(layer.q, work.normed.data(), rows.size(), work.q.data());
  multiply(layer.k, work.normed.data(), rows.size(), work.k.data());
  multiply(layer.v, work.normed.data(), rows.size(), work.v.data());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    float* q = work.q.data() + i * q_size;
    float* k = work.k.data() + i * token_floats;
    for (std::uint32_t head = 0; head < config_.heads; ++head)
      rotary_.rotate(q + head * config_.head_dim, row.position);
    for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
      rotary_.rotate(k + head * config_.head_dim, row.position);
    }
    const std::int32_t page = row.pages[row.position / shape.page_tokens];
    const std::size_t slot = row.position % shape.page_tokens * token_floats;
    std::copy_n(k, token_floats, cache.k(index, page) + slot);
    std::copy_n(work.v.data() + i * token_floats, token_floats, cache.v(index, page) + slot);
    attend(index, row, cache, q, work.mixed.data() + i * q_size, work.scores);
  }
  multiply(layer.o, work.mixed.data(), rows.size(), work.projected.data());
  add(work.projected, rows.size() * config_.hidden, work.x);
}

// One row against all positions up to its own, read from the cache in ascending order. Cached keys carry their rotation
// with them, so attention alone would not notice two pages that changed places; the bias by position makes it notice.
void Model::attend(std::uint32_t layer, const Row& row, const KvCache& cache, const float* q, float* out,
                   std::vector<float>& scores) const {
  const CacheShape& shape = cache.shape();
  const std::size_t head_dim = config_.head_dim;
  const std::size_t token_floats = shape.token_floats();
  const std::uint32_t group = config_.heads / config_.kv_heads;
  const std::uint32_t context = row.position + 1;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  scores.resize(context);
  for (std::uint32_t head = 0; head < config_.heads; ++head) {
    const std::size_t offset = head / group * head_dim;
    for (std::uint32_t t = 0; t < context;) {
      const float* k = cache.k(layer, row.pages[t / shape.page_tokens]) + offset;
      const std::uint32_t end = std::min(context, t + shape.page_tokens);
      for (; t < end; ++t, k += token_floats)
        scores[t] = dot(q + head * head_dim, k, head_dim) * scale + rotary_.cosine(t, head);
    }
    softmax(scores);
    float* mixed = out + head * head_dim;
    std::fill_n(mixed, head_dim, 0.0F);
    for (std::uint32_t t = 0; t < context;) {
      const float* v = cache.v(layer, row.pages[t / shape.page_tokens]) + offset;
      const std::uint32_t end = std::min(context, t + shape.page_tokens);
      for (; t < end; ++t, v += token_floats) add_scaled(v, scores[t], head_dim, mixed);
    }
  }
}

void Model::feed_forward(const Layer& layer, std::size_t rows, Workspace& work) const {
  normalise(layer.ffn_norm, rows, work);
  multiply(layer.gate, work.normed.data(), rows, work.gate.data());
  multiply(layer.up, work.normed.data(), rows, work.up.data());
  swiglu(work.gate.data(), work.up.data(), rows * config_.ffn);
  multiply(layer.down, work.gate.data(), rows, work.projected.data());
  add(work.projected, rows * config_.hidden, work.x);
}

void Model::normalise(const std::vector<float>& weight, std::size_t rows, Workspace& work) const {
  for (std::size_t i = 0; i < rows; ++i) {
    rms_norm(work.x.data() + i * config_.hidden, weight.data(), config_.hidden,
             work.normed.data() + i * config_.hidden);
  }
}

}  // namespace kvferry::engine
