#include "bench/memory.h"

#include <sys/mman.h>

#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "bench/system_error.h"

namespace kvferry::bench {

namespace {
constexpr std::uint64_t step = 0x9E3779B97F4A7C15;
constexpr std::size_t spoiled_every_bytes = 4096;

std::uint64_t word_at(std::size_t offset) { return (offset / sizeof(std::uint64_t) + 1) * step; }

bool page_is_right(const std::byte* page, std::size_t page_bytes, std::size_t source_offset) {
  std::uint64_t expected = word_at(source_offset);
  std::uint64_t differences = 0;
  for (std::size_t at = 0; at < page_bytes; at += sizeof expected, expected += step) {
    std::uint64_t word;
    std::memcpy(&word, page + at, sizeof word);
    differences |= word ^ expected;
  }
  return differences == 0;
}
}  // namespace

Result<Buffer> Buffer::allocate(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return system_error("mapping " + std::to_string(bytes) + " bytes to measure with");
  std::memset(at, 7, bytes);
  return Buffer(static_cast<std::byte*>(at), bytes);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

std::vector<std::int32_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  // By hand: std::shuffle may differ between libraries, and two processes must agree.
  std::mt19937_64 random(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

void fill_pattern(std::span<std::byte> memory) {
  std::uint64_t word = word_at(0);
  for (std::size_t at = 0; at + sizeof word <= memory.size(); at += sizeof word, word += step) {
    std::memcpy(memory.data() + at, &word, sizeof word);
  }
}

void spoil(std::span<std::byte> memory) {
  for (std::size_t at = 0; at < memory.size(); at += spoiled_every_bytes) memory[at] = ~memory[at];
}

std::size_t wrong_pages(const std::byte* target, const Scatter& scatter) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < scatter.from.size(); ++i) {
    const auto from = static_cast<std::size_t>(scatter.from[i]) * scatter.page_bytes;
    const auto to = static_cast<std::size_t>(scatter.to[i]) * scatter.page_bytes;
    if (!page_is_right(target + to, scatter.page_bytes, from)) ++wrong;
  }
  return wrong;
}

}  // namespace kvferry::bench
