// Any 64 bytes as the header on a data stream: they are refused, or written back byte for byte.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "protocol/data_frame.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvferry::protocol;
  std::array<std::byte, data_header_bytes> bytes{};
  if (size < bytes.size()) return 0;
  std::memcpy(bytes.data(), data, bytes.size());
  const auto header = read_data_header(bytes);
  if (!header) {
    if (header.error().code != kvferry::Code::protocol || header.error().text.empty()) abort();
    return 0;
  }
  if (header->position_begin > header->position_end || header->region_begin > header->region_end) abort();
  std::array<std::byte, data_header_bytes> written{};
  write_data_header(header.value(), written);
  if (written != bytes) abort();
  return 0;
}
