// The arithmetic of the model: float32 in one fixed order, so that a row of activations has the same bits whichever
// rows are computed beside it, on every machine and at every optimisation level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvferry::engine {

// SplitMix64: weights and shuffles from a seed. Standard distributions differ between libraries, this does not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  // Below `bound`, which is not 0. The bias of the remainder does not matter here.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // In [-1, 1), a multiple of 2^-23.
  float symmetric() { return static_cast<float>(next() >> 40U) * 0x1p-23F - 1.0F; }

 private:
  std::uint64_t state_;
};

// A matrix of `in` rows and `out` columns, kept in panels of 16 columns so that one pass reads it in order.
struct Matrix {
  static constexpr std::size_t panel_columns = 16;
  std::size_t in = 0;
  std::size_t out = 0;  // a multiple of panel_columns
  std::vector<float> values = {};
};
// Uniform values whose products with unit inputs have a variance of about gain^2.
Matrix random_matrix(std::size_t in, std::size_t out, float gain, Random& random);

// y = x * m for `rows` rows that lie one after the other. Every output is summed over the inputs in ascending order.
void multiply(const Matrix& m, const float* x, std::size_t rows, float* y);

// Four interleaved partial sums, added pairwise; `size` is a multiple of four.
float dot(const float* a, const float* b, std::size_t size);

// y += x * scale; `size` is a multiple of four.
void add_scaled(const float* x, float scale, std::size_t size, float* y);

// y = x / rms(x), times `weight`; `size` is a multiple of four.
void rms_norm(const float* x, const float* weight, std::size_t size, float* y);

// Turns scores into weights that sum to about one, in place.
void softmax(std::span<float> scores);

// gate = silu(gate) * up, in place.
void swiglu(float* gate, const float* up, std::size_t size);

// The cosines and sines of rotary positions: [position][pair], base 10000. `head_dim` is a power of two.
struct RotaryTable {
  RotaryTable(std::size_t positions, std::size_t head_dim);
  // Rotates the pairs (i, i + head_dim / 2) of one head in place.
  void rotate(float* head, std::size_t position) const;

  // The cosine of one pair at a position; pairs beyond the last start again at the first.
  float cosine(std::size_t position, std::size_t pair) const { return cosines[position * pairs + pair % pairs]; }

  std::size_t pairs;
  std::vector<float> cosines;
  std::vector<float> sines;
};

// The index of the largest value; the lowest one of those that are equal.
std::int32_t argmax(std::span<const float> values);

// FNV-1a over the bits of the values.
std::uint64_t checksum(std::span<const float> values);

}  // namespace kvferry::engine
