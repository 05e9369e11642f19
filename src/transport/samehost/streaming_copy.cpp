#include "transport/samehost/streaming_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvferry::transport {

#if defined(__x86_64__)
namespace {

constexpr std::size_t line_bytes = 64;
// The processor's own prefetcher stops at the end of a page of memory and does not know which one is next.
constexpr std::size_t ahead_bytes = 4096;

// Whole lines to a target that begins on one. What is read `ahead_bytes` later, here or at `next`, is fetched already.
__attribute__((target("avx2"))) void stream_lines(std::byte* target, const std::byte* source, std::size_t lines,
                                                  const std::byte* next) {
  const std::size_t bytes = lines * line_bytes;
  const std::size_t turn = bytes > ahead_bytes ? bytes - ahead_bytes : 0;
  for (std::size_t i = 0; i < lines; ++i) {
    const std::size_t at = i * line_bytes;
    _mm_prefetch(at < turn ? source + at + ahead_bytes : next + (at - turn), _MM_HINT_NTA);
    const auto* from = reinterpret_cast<const __m256i*>(source + i * line_bytes);
    auto* to = reinterpret_cast<__m256i*>(target + i * line_bytes);
    const __m256i low = _mm256_loadu_si256(from);
    const __m256i high = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, low);
    _mm256_stream_si256(to + 1, high);
  }
}

const bool can_stream = __builtin_cpu_supports("avx2") != 0;

}  // namespace

void streaming_copy(std::byte* target, const std::byte* source, std::size_t bytes, const std::byte* next) {
  if (!can_stream || bytes < streaming_bytes_min) {
    std::memcpy(target, source, bytes);
    return;
  }
  const std::size_t head = (line_bytes - reinterpret_cast<std::uintptr_t>(target) % line_bytes) % line_bytes;
  std::memcpy(target, source, head);
  const std::size_t lines = (bytes - head) / line_bytes;
  stream_lines(target + head, source + head, lines, next);
  const std::size_t done = head + lines * line_bytes;
  std::memcpy(target + done, source + done, bytes - done);
}

void streaming_fence() { _mm_sfence(); }
#else
void streaming_copy(std::byte* target, const std::byte* source, std::size_t bytes, const std::byte* /*next*/) {
  std::memcpy(target, source, bytes);
}
void streaming_fence() {}
#endif

}  // namespace kvferry::transport
