#include "layout/joins.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvferry::layout {

void find_joins_portable(const std::int32_t* source, const std::int32_t* target, std::size_t blocks,
                         std::uint64_t* words) {
  for (std::size_t b = 0; b < blocks; ++b, source += join_block, target += join_block) {
    std::uint64_t word = 0;
#if defined(__SSE2__)
    const __m128i one = _mm_set1_epi32(1);
    const auto four = [one](const std::int32_t* p) {
      const __m128i at = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 1));
      return _mm_cmpeq_epi32(_mm_sub_epi32(next, at), one);
    };
    for (std::size_t i = 0; i < join_block; i += 4) {
      const __m128i both = _mm_and_si128(four(source + i), four(target + i));
      word |= static_cast<std::uint64_t>(_mm_movemask_ps(_mm_castsi128_ps(both))) << i;
    }
#else
    for (std::size_t i = 0; i < join_block; ++i) {
      const bool both = joined(source[i], source[i + 1]) & joined(target[i], target[i + 1]);
      word |= static_cast<std::uint64_t>(both) << i;
    }
#endif
    words[b] = word;
  }
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void find_joins_avx2(const std::int32_t* source, const std::int32_t* target,
                                                     std::size_t blocks, std::uint64_t* words) {
  const __m256i one = _mm256_set1_epi32(1);
  for (std::size_t b = 0; b < blocks; ++b, source += join_block, target += join_block) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < join_block; i += 8) {
      const __m256i s = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i));
      const __m256i s_next = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i + 1));
      const __m256i t = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(target + i));
      const __m256i t_next = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(target + i + 1));
      const __m256i both = _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_sub_epi32(s_next, s), one),
                                            _mm256_cmpeq_epi32(_mm256_sub_epi32(t_next, t), one));
      const auto bits = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(both)));
      word |= static_cast<std::uint64_t>(bits) << i;
    }
    words[b] = word;
  }
}

bool can_avx2() { return __builtin_cpu_supports("avx2") != 0; }

#else

void find_joins_avx2(const std::int32_t* source, const std::int32_t* target, std::size_t blocks, std::uint64_t* words) {
  find_joins_portable(source, target, blocks, words);
}
bool can_avx2() { return false; }

#endif

FindJoins find_joins() {
  static const FindJoins best = can_avx2() ? find_joins_avx2 : find_joins_portable;
  return best;
}

}  // namespace kvferry::layout
