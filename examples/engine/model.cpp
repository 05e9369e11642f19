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
  if (mla && kv_heads != 1) return wrong("kv_heads", kv_heads, "1 with MLA");
  if (heads % kv_heads != 0) return wrong("heads", heads, "a multiple of kv_heads");
  if (layers == 0) return wrong("layers", layers, "at least 1");
  if (page_tokens == 0) return wrong("page_tokens", page_tokens, "at least 1");
  if (positions_max == 0) return wrong("positions_max", positions_max, "at least 1");
  return {};
}

KvFormat ModelConfig::format() const {
  return {.dtype = "float32",
          .page_tokens = page_tokens,
          .layers = layers,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .mla = mla};
}

Result<void> ModelConfig::check_split(const Parallel& split) const {
  const auto wrong = [](const char* name, std::uint32_t value, const std::string& expected) {
    return Error{Code::invalid_argument,
                 std::string(name) + " is " + std::to_string(value) + "; it must be " + expected};
  };
  if (split.tp == 0 || heads % split.tp != 0) {
    return wrong("tp", split.tp, "a divisor of the model's " + std::to_string(heads) + " heads");
  }
  if (kv_heads % split.tp != 0 && split.tp % kv_heads != 0) {
    return wrong("tp", split.tp, "a divisor or a multiple of the model's " + std::to_string(kv_heads) + " kv heads");
  }
  if (split.pp == 0 || layers % split.pp != 0) {
    return wrong("pp", split.pp, "a divisor of the model's " + std::to_string(layers) + " layers");
  }
  if (split.dp == 0 || split.dp > 64) return wrong("dp", split.dp, "1 to 64");
  if (split.cp != 1) return wrong("cp", split.cp, "1: this engine does not split the context");
  return {};
}

CacheShape ModelConfig::cache_shape(std::uint32_t pages, std::uint32_t aux_items, Parallel split, Place place) const {
  const std::uint32_t stage_layers = layers / split.pp;
  const std::uint32_t queries = heads / split.tp;
  const std::uint32_t group = heads / kv_heads;  // query heads that look at one kv head
  return {.first_layer = place.pp * stage_layers,
          .layers = stage_layers,
          .page_tokens = page_tokens,
          .first_kv_head = place.tp * queries / group,
          .kv_heads = std::max<std::uint32_t>(queries / group, 1),
          .first_query_head = place.tp * queries,
          .query_heads = queries,
          .head_dim = head_dim,
          .mla = mla,
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

void Model::forward(std::span<const Row> rows, const KvCache& cache, Workspace& work, Exchange* others) const {
  const std::size_t hidden = config_.hidden;
  const std::size_t q_size = std::size_t{config_.heads} * config_.head_dim;
  work.x.resize(rows.size() * hidden);
  work.normed.resize(rows.size() * hidden);
  work.projected.resize(rows.size() * hidden);
  work.q.resize(rows.size() * q_size);
  work.mixed.resize(rows.size() * q_size);
  work.k.resize(rows.size() * config_.kv_heads * config_.head_dim);
  work.v.resize(rows.size() * config_.kv_heads * config_.head_dim);
  work.gate.resize(rows.size() * config_.ffn);
  work.up.resize(rows.size() * config_.ffn);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float* source = embedding_.data() + static_cast<std::size_t>(rows[i].token) * hidden;
    std::copy_n(source, hidden, work.x.data() + i * hidden);
  }
  for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
    if (cache.shape().has_layer(layer)) attention(layer, rows, cache, work);
    if (others != nullptr) {
      if (cache.shape().has_layer(layer)) others->stored(layer);
      others->all_gather(layer, work.mixed);
    }
    multiply(layers_[layer].o, work.mixed.data(), rows.size(), work.projected.data());
    add(work.projected, rows.size() * hidden, work.x);
    feed_forward(layers_[layer], rows.size(), work);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].logits.empty()) continue;
    rms_norm(work.x.data() + i * hidden, final_norm_.data(), hidden, work.normed.data());
    multiply(head_, work.normed.data(), 1, rows[i].logits.data());
  }
}

// Of the query heads of this rank, into their places among all heads.
void Model::attention(std::uint32_t index, std::span<const Row> rows, const KvCache& cache, Workspace& work) const {
  const Layer& layer = layers_[index];
  const std::size_t kv_size = std::size_t{config_.kv_heads} * config_.head_dim;
  const std::size_t q_size = std::size_t{config_.heads} * config_.head_dim;
  normalise(layer.attention_norm, rows.size(), work);
  multiply(layer.q, work.normed.data(), rows.size(), work.q.data());
  multiply(layer.k, work.normed.data(), rows.size(), work.k.data());
  multiply(layer.v, work.normed.data(), rows.size(), work.v.data());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    float* q = work.q.data() + i * q_size;
    for (std::uint32_t head = 0; head < config_.heads; ++head) {
      rotary_.rotate(q + head * config_.head_dim, rows[i].position);
    }
    store(index, rows[i], cache, work.k.data() + i * kv_size, work.v.data() + i * kv_size);
    attend(index, rows[i], cache, q, work.mixed.data() + i * q_size, work.scores);
  }
}

// The keys and values of this rank's heads. `k` is rotated in place.
void Model::store(std::uint32_t layer, const Row& row, const KvCache& cache, float* k, const float* v) const {
  const CacheShape& shape = cache.shape();
  for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
    rotary_.rotate(k + head * config_.head_dim, row.position);
  }
  const std::int32_t page = row.pages[row.position / shape.page_tokens];
  const std::size_t slot = row.position % shape.page_tokens * shape.token_floats();
  const std::size_t own = std::size_t{shape.first_kv_head} * shape.head_dim;
  std::copy_n(k + own, shape.token_floats(), cache.k(layer, page) + slot);
  if (!shape.mla) std::copy_n(v + own, shape.token_floats(), cache.v(layer, page) + slot);
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
  for (std::uint32_t head = shape.first_query_head; head < shape.first_query_head + shape.query_heads; ++head) {
    const std::size_t offset = (head / group - shape.first_kv_head) * head_dim;
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
