#include "engine/arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace kvferry::engine {
namespace {

// Four floats that the compiler keeps in one register; each lane is its own sum, so nothing is reordered.
typedef float Lanes __attribute__((vector_size(16)));

Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}
void store(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof lanes); }
float sum(Lanes lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }

// `Rows` rows times one panel. Rows share the loads of the weights and nothing else.
template <std::size_t Rows>
void multiply_panel(const float* panel, const float* x, std::size_t in, float* y, std::size_t out) {
  Lanes sums[Rows][4] = {};
  for (std::size_t i = 0; i < in; ++i, panel += Matrix::panel_columns) {
    const Lanes w0 = load(panel);
    const Lanes w1 = load(panel + 4);
    const Lanes w2 = load(panel + 8);
    const Lanes w3 = load(panel + 12);
    for (std::size_t row = 0; row < Rows; ++row) {
      const float input = x[row * in + i];
      sums[row][0] += w0 * input;
      sums[row][1] += w1 * input;
      sums[row][2] += w2 * input;
      sums[row][3] += w3 * input;
    }
  }
  for (std::size_t row = 0; row < Rows; ++row) {
    for (std::size_t part = 0; part < 4; ++part) store(y + row * out + part * 4, sums[row][part]);
  }
}

// e^x for x <= 0, by a polynomial of our own: the C library's differs between versions and processors.
float exp_of_negative(float x) {
  const float clamped = x > -87.0F ? x : -87.0F;
  const int power = static_cast<int>(clamped * 1.44269504F - 0.5F);
  const float rest = (clamped - static_cast<float>(power) * 0.693359375F) + static_cast<float>(power) * 2.12194440e-4F;
  float value = 1.9875691500e-4F;
  value = value * rest + 1.3981999507e-3F;
  value = value * rest + 8.3334519073e-3F;
  value = value * rest + 4.1665795894e-2F;
  value = value * rest + 1.6666665459e-1F;
  value = value * rest + 5.0000001201e-1F;
  value = value * (rest * rest) + rest + 1.0F;
  return value * std::bit_cast<float>((power + 127) << 23);
}

constexpr double two_pi = 6.283185307179586476925;

// Sine (start 1) or cosine (start 0) of an angle in [-pi, pi] by its series, again for the sake of equal bits.
double series(double angle, int start) {
  double term = start == 1 ? angle : 1.0;
  double total = term;
  for (int n = start; n < 30; n += 2) {
    term = -term * angle * angle / ((n + 1.0) * (n + 2.0));
    total += term;
  }
  return total;
}

}  // namespace

Matrix random_matrix(std::size_t in, std::size_t out, float gain, Random& random) {
  Matrix m{in, out};
  m.values.resize(in * out);
  const float scale = gain * std::sqrt(3.0F / static_cast<float>(in));
  for (float& value : m.values) value = random.symmetric() * scale;
  return m;
}

void multiply(const Matrix& m, const float* x, std::size_t rows, float* y) {
  for (std::size_t column = 0; column < m.out; column += Matrix::panel_columns) {
    const float* panel = m.values.data() + column * m.in;
    std::size_t row = 0;
    for (; row + 2 <= rows; row += 2) multiply_panel<2>(panel, x + row * m.in, m.in, y + row * m.out + column, m.out);
    if (row < rows) multiply_panel<1>(panel, x + row * m.in, m.in, y + row * m.out + column, m.out);
  }
}

float dot(const float* a, const float* b, std::size_t size) {
  Lanes sums = {};
  for (std::size_t i = 0; i < size; i += 4) sums += load(a + i) * load(b + i);
  return sum(sums);
}

void add_scaled(const float* x, float scale, std::size_t size, float* y) {
  for (std::size_t i = 0; i < size; i += 4) store(y + i, load(y + i) + load(x + i) * scale);
}

void rms_norm(const float* x, const float* weight, std::size_t size, float* y) {
  const float scale = 1.0F / std::sqrt(dot(x, x, size) / static_cast<float>(size) + 1e-5F);
  for (std::size_t i = 0; i < size; ++i) y[i] = x[i] * scale * weight[i];
}

void softmax(std::span<float> scores) {
  float largest = scores[0];
  for (const float score : scores) largest = score > largest ? score : largest;
  for (float& score : scores) score = exp_of_negative(score - largest);
  float total = 0.0F;
  for (const float score : scores) total += score;
  const float scale = 1.0F / total;
  for (float& score : scores) score *= scale;
}

void swiglu(float* gate, const float* up, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    const float decay = exp_of_negative(gate[i] < 0.0F ? gate[i] : -gate[i]);
    const float sigmoid = (gate[i] < 0.0F ? decay : 1.0F) / (1.0F + decay);
    gate[i] = gate[i] * sigmoid * up[i];
  }
}

RotaryTable::RotaryTable(std::size_t positions, std::size_t head_dim) : pairs(head_dim / 2) {
  // 10000^(-1/pairs) by square roots, which are exact to the last bit everywhere; pairs is a power of two.
  double ratio = 1.0 / 10000.0;
  for (std::size_t n = pairs; n > 1; n /= 2) ratio = std::sqrt(ratio);
  cosines.reserve(positions * pairs);
  sines.reserve(positions * pairs);
  for (std::size_t position = 0; position < positions; ++position) {
    double frequency = 1.0;
    for (std::size_t pair = 0; pair < pairs; ++pair, frequency *= ratio) {
      const double angle = static_cast<double>(position) * frequency;
      const double reduced = angle - two_pi * std::floor(angle / two_pi + 0.5);
      cosines.push_back(static_cast<float>(series(reduced, 0)));
      sines.push_back(static_cast<float>(series(reduced, 1)));
    }
  }
}

void RotaryTable::rotate(float* head, std::size_t position) const {
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const float c = cosines[position * pairs + pair];
    const float s = sines[position * pairs + pair];
    const float a = head[pair];
    const float b = head[pair + pairs];
    head[pair] = a * c - b * s;
    head[pair + pairs] = a * s + b * c;
  }
}

std::int32_t argmax(std::span<const float> values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

std::uint64_t checksum(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const float value : values) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3U;
  return hash;
}

}  // namespace kvferry::engine
