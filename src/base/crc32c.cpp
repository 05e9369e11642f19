#include "base/crc32c.h"

#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace kvferry {

namespace {

constexpr std::uint32_t polynomial = 0x82F63B78;  // reflected

// Eight tables: table[k][b] is the CRC of byte b followed by k zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
    }
  }
  return tables;
}
constexpr Tables tables = make_tables();

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)
bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t so_far) {
  std::uint64_t crc = ~so_far;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) crc = _mm_crc32_u64(crc, word_at(bytes.data() + at));
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; at < bytes.size(); ++at) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(bytes[at]));
  return ~narrow;
}

__attribute__((target("sse4.2"))) std::array<std::uint32_t, 3> three_by_instruction(
    const std::array<const std::byte*, 3>& ranges, std::size_t bytes) {
  std::uint64_t a = 0xffffffff;
  std::uint64_t b = 0xffffffff;
  std::uint64_t c = 0xffffffff;
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    a = _mm_crc32_u64(a, word_at(ranges[0] + at));
    b = _mm_crc32_u64(b, word_at(ranges[1] + at));
    c = _mm_crc32_u64(c, word_at(ranges[2] + at));
  }
  const std::array whole{~static_cast<std::uint32_t>(a), ~static_cast<std::uint32_t>(b),
                         ~static_cast<std::uint32_t>(c)};
  std::array<std::uint32_t, 3> crcs{};
  for (std::size_t i = 0; i < 3; ++i) crcs[i] = by_instruction({ranges[i] + at, bytes - at}, whole[i]);
  return crcs;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t so_far) {
  std::uint32_t crc = ~so_far;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      const std::uint32_t before = k < 4 ? crc >> (8 * k) : 0;
      next ^= tables[7 - k][(before ^ static_cast<std::uint32_t>(bytes[at + k])) & 0xff];
    }
    crc = next;
  }
  for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<std::uint32_t>(bytes[at])) & 0xff];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t so_far) {
#if defined(__x86_64__)
  if (has_instruction()) return by_instruction(bytes, so_far);
#endif
  return crc32c_by_table(bytes, so_far);
}

std::array<std::uint32_t, 3> crc32c_of_three(const std::array<const std::byte*, 3>& ranges, std::size_t bytes) {
#if defined(__x86_64__)
  if (has_instruction()) return three_by_instruction(ranges, bytes);
#endif
  std::array<std::uint32_t, 3> crcs{};
  for (std::size_t i = 0; i < 3; ++i) crcs[i] = crc32c_by_table({ranges[i], bytes});
  return crcs;
}

}  // namespace kvferry
