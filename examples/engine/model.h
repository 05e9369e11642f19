// A small decoder-only transformer: grouped KV heads, rotary positions, RMSNorm, SwiGLU, weights from a seed. It says
// nothing sensible; it exists because its answer depends on every byte of its KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/arithmetic.h"
#include "engine/kv_cache.h"
#include "kvferry/result.h"

namespace kvferry::engine {

struct ModelConfig {
  std::uint32_t layers = 4;
  std::uint32_t hidden = 128;
  std::uint32_t heads = 8;
  std::uint32_t kv_heads = 4;
  std::uint32_t head_dim = 16;
  std::uint32_t ffn = 256;
  std::uint32_t vocab = 512;
  std::uint32_t page_tokens = 16;
  std::uint32_t positions_max = 2048;  // prompt and answer together
  bool mla = false;                    // one latent head that every query head looks at, keys and values in one

  // `invalid_argument` naming the first size the arithmetic cannot work with.
  Result<void> check() const;
  KvFormat format() const;
  // The cache of one rank of an engine that is split like this; of a whole engine by default.
  CacheShape cache_shape(std::uint32_t pages, std::uint32_t aux_items, Parallel split = {}, Place place = {}) const;
  // `invalid_argument` where layers or heads do not divide by the sizes.
  Result<void> check_split(const Parallel& split) const;
  std::uint32_t pages_for(std::size_t tokens) const {
    return static_cast<std::uint32_t>((tokens + page_tokens - 1) / page_tokens);
  }
};

// One token to compute. Rows of one request in ascending position, rows of several requests in any mix.
struct Row {
  std::int32_t token = 0;
  std::uint32_t position = 0;
  std::span<const std::int32_t> pages;  // of the request, from its first token on; cover `position`
  std::span<float> logits = {};         // vocab floats to fill, or empty where nobody asks
};

// What the ranks of a split engine do together while they compute the same rows. A call waits for the others.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // The keys and values of all rows are in this rank's cache, which has the layer.
  virtual void stored(std::uint32_t layer) = 0;
  // `mixed` has heads * head_dim floats a row, of which this rank has filled those of its query heads where it has the
  // layer. Fills in those of the others.
  virtual void all_gather(std::uint32_t layer, std::span<float> mixed) = 0;
};

// Immutable once made; any number of threads may compute with one model, each with its own workspace.
class Model {
 public:
  struct Workspace {
    std::vector<float> x, normed, q, k, v, mixed, projected, gate, up, scores;
  };

  // `config` has passed its check.
  Model(const ModelConfig& config, std::uint64_t seed);
  const ModelConfig& config() const { return config_; }

  // Computes the rows and stores their keys and values in the cache. A row reads what the cache holds of the earlier
  // positions and what the rows before it stored; its bits do not depend on how a prompt is cut into calls, nor on how
  // layers and heads are split over ranks that call this at once with the same rows. `others` may be null where the
  // cache has everything.
  void forward(std::span<const Row> rows, const KvCache& cache, Workspace& work, Exchange* others = nullptr) const;

 private:
  struct Layer {
    std::vector<float> attention_norm, ffn_norm;
    Matrix q, k, v, o, gate, up, down;
  };

  void attention(std::uint32_t layer, std::span<const Row> rows, const KvCache& cache, Workspace& work) const;
  void store(std::uint32_t layer, const Row& row, const KvCache& cache, float* k, const float* v) const;
  void attend(std::uint32_t layer, const Row& row, const KvCache& cache, const float* q, float* out,
              std::vector<float>& scores) const;
  void feed_forward(const Layer& layer, std::size_t rows, Workspace& work) const;
  void normalise(const std::vector<float>& weight, std::size_t rows, Workspace& work) const;

  ModelConfig config_;
  RotaryTable rotary_;
  std::vector<float> embedding_;
  std::vector<Layer> layers_;
  std::vector<float> final_norm_;
  Matrix head_;
};

}  // namespace kvferry::engine
