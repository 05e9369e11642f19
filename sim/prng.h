// Random numbers of our own: those of the standard library differ between libraries.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace kvferry::sim {

class Prng {
 public:
  explicit Prng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // 0 .. n-1; n is at least 1.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool percent(std::uint64_t p) { return below(100) < p; }
  Duration between(Duration low, Duration high) {
    return low + Duration(static_cast<Duration::rep>(below(static_cast<std::uint64_t>((high - low).count()) + 1)));
  }
  // Around `typical`, and with a tail: every seventh value doubles, again and again.
  Duration long_tail(Duration typical) {
    Duration value = between(typical / 2, typical * 3 / 2);
    for (int i = 0; i < 10 && below(7) == 0; ++i) value *= 2;
    return value;
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvferry::sim
