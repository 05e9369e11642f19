#include "protocol/data_frame.h"

#include <concepts>
#include <string>

namespace kvferry::protocol {
namespace {

template <std::unsigned_integral T>
void put(std::span<std::byte, data_header_bytes> out, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out[offset + i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T get(std::span<const std::byte, data_header_bytes> bytes, std::size_t offset) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | (std::to_integer<T>(bytes[offset + i]) << (8 * i)));
  }
  return value;
}

Error bad(const std::string& what) { return Error{Code::protocol, "data frame: " + what}; }

std::string range_text(const char* name, std::uint64_t begin, std::uint64_t end) {
  return std::string(name) + " [" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

// A piece holds at least one item of one region; the end of a chunk may speak of an empty one.
Result<void> check_range(const char* name, std::uint64_t begin, std::uint64_t end, DataKind kind) {
  if (begin > end) return bad(range_text(name, begin, end) + " is reversed");
  if (begin == end && kind == DataKind::bytes) return bad(range_text(name, begin, end) + " is empty");
  return {};
}

}  // namespace

void write_data_header(const DataHeader& header, std::span<std::byte, data_header_bytes> out) {
  put(out, 0, data_magic);
  put(out, 4, static_cast<std::uint8_t>(header.kind));
  put(out, 5, static_cast<std::uint8_t>(header.last ? 1 : 0));
  put(out, 6, std::uint16_t{0});
  put(out, 8, header.transfer.value);
  put(out, 16, header.number);
  put(out, 20, header.component);
  put(out, 24, header.position_begin);
  put(out, 32, header.position_end);
  put(out, 40, header.region_begin);
  put(out, 44, header.region_end);
  put(out, 48, header.payload_bytes);
  put(out, 56, std::uint64_t{0});
}

Result<DataHeader> read_data_header(std::span<const std::byte, data_header_bytes> bytes) {
  if (const auto magic = get<std::uint32_t>(bytes, 0); magic != data_magic) {
    return bad("it begins with the number " + std::to_string(magic) + ", not with \"KVFD\"; the stream is out of step");
  }
  const auto kind = get<std::uint8_t>(bytes, 4);
  if (kind != static_cast<std::uint8_t>(DataKind::bytes) && kind != static_cast<std::uint8_t>(DataKind::end)) {
    return bad("kind " + std::to_string(kind) + " is not known; 1 (bytes) and 2 (end) are");
  }
  const auto last = get<std::uint8_t>(bytes, 5);
  if (last > 1) return bad("the mark of the last chunk is " + std::to_string(last) + ", not 0 or 1");
  if (get<std::uint16_t>(bytes, 6) != 0 || get<std::uint64_t>(bytes, 56) != 0) {
    return bad("bytes that must be zero are not");
  }
  DataHeader header;
  header.kind = static_cast<DataKind>(kind);
  header.last = last == 1;
  header.transfer.value = get<std::uint64_t>(bytes, 8);
  header.number = get<std::uint32_t>(bytes, 16);
  header.component = get<std::uint32_t>(bytes, 20);
  header.position_begin = get<std::uint64_t>(bytes, 24);
  header.position_end = get<std::uint64_t>(bytes, 32);
  header.region_begin = get<std::uint32_t>(bytes, 40);
  header.region_end = get<std::uint32_t>(bytes, 44);
  header.payload_bytes = get<std::uint64_t>(bytes, 48);
  if (auto ok = check_range("positions", header.position_begin, header.position_end, header.kind); !ok) {
    return std::move(ok).error();
  }
  if (auto ok = check_range("regions", header.region_begin, header.region_end, header.kind); !ok) {
    return std::move(ok).error();
  }
  if (header.kind == DataKind::end && header.payload_bytes != 0) {
    return bad("the end of a chunk comes with " + std::to_string(header.payload_bytes) + " payload bytes; 0 expected");
  }
  if (header.kind == DataKind::bytes && header.payload_bytes == 0) return bad("a piece without payload bytes");
  return header;
}

}  // namespace kvferry::protocol
