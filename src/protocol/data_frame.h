// The header of a frame on a TCP data stream: 64 bytes, little-endian, followed by `payload_bytes` raw bytes.
// Payload of a data frame: for each region of [region_begin, region_end), the items of [position_begin, position_end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kvferry/result.h"

namespace kvferry::protocol {

inline constexpr std::uint32_t data_magic = 0x4446564b;  // "KVFD"
inline constexpr std::size_t data_header_bytes = 64;
inline constexpr std::uint64_t data_payload_bytes_max = 1u << 20;  // unless a single item is larger

enum class DataKind : std::uint8_t {
  bytes = 1,  // a piece of a chunk
  end = 2,    // the chunk is complete: positions and regions are the whole chunk's; no payload
};

// Offsets: 0 magic u32, 4 kind u8, 5 last u8, 6 zero u16, 8 transfer u64, 16 number u32, 20 component u32,
// 24 position_begin u64, 32 position_end u64, 40 region_begin u32, 44 region_end u32, 48 payload_bytes u64, 56 zero
// u64. For components other than kv, positions count the items of that component's granted list, from 0.
struct DataHeader {
  DataKind kind = DataKind::bytes;
  bool last = false;
  TransferId transfer{};
  std::uint32_t number = 0;  // of the chunk
  std::uint32_t component = 0;
  std::uint64_t position_begin = 0;
  std::uint64_t position_end = 0;
  std::uint32_t region_begin = 0;
  std::uint32_t region_end = 0;
  std::uint64_t payload_bytes = 0;
  friend bool operator==(const DataHeader&, const DataHeader&) = default;
};

void write_data_header(const DataHeader& header, std::span<std::byte, data_header_bytes> out);
// `protocol` for a foreign magic, an unknown kind, an empty or reversed range, or an end frame with a payload.
Result<DataHeader> read_data_header(std::span<const std::byte, data_header_bytes> bytes);

}  // namespace kvferry::protocol
