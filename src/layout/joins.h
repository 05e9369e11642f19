// Which neighbours of two index lists belong together: the inner loop of merge_runs and append_pieces.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvferry::layout {

inline constexpr std::size_t join_block = 64;

// Bit i of words[b], for b below `blocks`, says whether pair 64 b + i + 1 goes on where pair 64 b + i ends, in both
// lists. Both have more than 64 * blocks entries. Sums wrap; indices that were checked never come near it.
using FindJoins = void (*)(const std::int32_t* source, const std::int32_t* target, std::size_t blocks,
                           std::uint64_t* words);
// The two ways of doing it, the second only where the processor can. Wider vectors than AVX2's gain nothing: at 40 GB/s
// memory is the limit.
void find_joins_portable(const std::int32_t*, const std::int32_t*, std::size_t, std::uint64_t*);
void find_joins_avx2(const std::int32_t*, const std::int32_t*, std::size_t, std::uint64_t*);
bool can_avx2();
// The faster of them here.
FindJoins find_joins();

inline bool joined(std::int32_t at, std::int32_t next) {
  return static_cast<std::uint32_t>(next) - static_cast<std::uint32_t>(at) == 1;
}

// Calls emit(begin, count) for every run of the `size` pairs in order, after expect(runs) for as many as come at least.
template <class Expect, class Emit>
void for_each_run(const std::int32_t* source, const std::int32_t* target, std::size_t size, FindJoins find,
                  Expect&& expect, Emit&& emit) {
  constexpr std::size_t words_at_once = 32;
  std::uint64_t words[words_at_once];
  std::size_t begin = 0;
  std::size_t at = 0;
  while (size - at > join_block) {
    std::size_t blocks = (size - at - 1) / join_block;
    if (blocks > words_at_once) blocks = words_at_once;
    find(source + at, target + at, blocks, words);
    for (std::size_t b = 0; b < blocks; ++b, at += join_block) {
      std::uint64_t breaks = ~words[b];
      if (breaks == 0) continue;
      expect(static_cast<std::size_t>(std::popcount(breaks)));
      if (words[b] == 0) {  // scattered pages: nothing to look for
        emit(begin, at + 1 - begin);
        for (std::size_t i = at + 1; i < at + join_block; ++i) emit(i, std::size_t{1});
        begin = at + join_block;
        continue;
      }
      for (; breaks != 0; breaks &= breaks - 1) {
        const std::size_t end = at + static_cast<std::size_t>(std::countr_zero(breaks)) + 1;
        emit(begin, end - begin);
        begin = end;
      }
    }
  }
  expect(size - at);
  for (; at + 1 < size; ++at) {
    if (joined(source[at], source[at + 1]) && joined(target[at], target[at + 1])) continue;
    emit(begin, at + 1 - begin);
    begin = at + 1;
  }
  if (begin < size) emit(begin, size - begin);
}

}  // namespace kvferry::layout
