#include "protocol/data_frame.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>

namespace kvferry::protocol {
namespace {

using HeaderBytes = std::array<std::byte, data_header_bytes>;

HeaderBytes bytes_of(const DataHeader& header) {
  HeaderBytes bytes{};
  bytes.fill(std::byte{0xee});
  write_data_header(header, bytes);
  return bytes;
}
DataHeader piece() {
  return {.kind = DataKind::bytes,
          .last = true,
          .transfer = {0x1122334455667788},
          .number = 3,
          .component = 1,
          .position_begin = 5,
          .position_end = 9,
          .region_begin = 2,
          .region_end = 4,
          .payload_bytes = 4'096};
}

TEST(data_frame, a_header_comes_back_as_it_went) {
  EXPECT_TRUE(rc::check("read(write(h)) == h", [] {
    DataHeader header;
    header.kind = *rc::gen::element(DataKind::bytes, DataKind::end);
    header.last = *rc::gen::arbitrary<bool>();
    header.transfer.value = *rc::gen::arbitrary<std::uint64_t>();
    header.number = *rc::gen::arbitrary<std::uint32_t>();
    header.component = *rc::gen::arbitrary<std::uint32_t>();
    const bool is_piece = header.kind == DataKind::bytes;
    header.position_begin = *rc::gen::inRange<std::uint64_t>(0, 1ull << 62);
    header.position_end = header.position_begin + *rc::gen::inRange<std::uint64_t>(is_piece ? 1 : 0, 1ull << 62);
    header.region_begin = *rc::gen::inRange<std::uint32_t>(0, 1u << 30);
    header.region_end = header.region_begin + *rc::gen::inRange<std::uint32_t>(is_piece ? 1 : 0, 1u << 30);
    header.payload_bytes = is_piece ? *rc::gen::inRange<std::uint64_t>(1, ~0ull) : 0;
    const auto read = read_data_header(bytes_of(header));
    RC_ASSERT(read.has_value());
    RC_ASSERT(read.value() == header);
  }));
}

TEST(data_frame, every_field_stands_where_the_table_says) {
  const HeaderBytes bytes = bytes_of(piece());
  const std::string expected(
      "KVFD\x01\x01\0\0\x88\x77\x66\x55\x44\x33\x22\x11\x03\0\0\0\x01\0\0\0"
      "\x05\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
      64);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), expected);
}

TEST(data_frame, each_fault_is_refused_in_words) {
  struct Fault {
    std::function<void(HeaderBytes&)> spoil;
    std::string words;
  };
  const auto set = [](std::size_t offset, int value) {
    return [offset, value](HeaderBytes& bytes) { bytes[offset] = static_cast<std::byte>(value); };
  };
  const std::array faults{
      Fault{set(0, 'k'), "not with \"KVFD\""},
      Fault{set(4, 0), "kind 0 is not known"},
      Fault{set(4, 3), "kind 3 is not known"},
      Fault{set(5, 2), "last chunk is 2"},
      Fault{set(6, 1), "must be zero"},
      Fault{set(63, 1), "must be zero"},
      Fault{set(24, 9), "positions [9, 9) is empty"},
      Fault{set(24, 10), "positions [10, 9) is reversed"},
      Fault{set(40, 4), "regions [4, 4) is empty"},
      Fault{set(44, 1), "regions [2, 1) is reversed"},
      Fault{set(49, 0), "without payload"},
      Fault{set(4, 2), "4096 payload bytes; 0 expected"},
  };
  for (const Fault& fault : faults) {
    HeaderBytes bytes = bytes_of(piece());
    fault.spoil(bytes);
    const auto read = read_data_header(bytes);
    ASSERT_FALSE(read) << fault.words;
    EXPECT_EQ(read.error().code, Code::protocol);
    EXPECT_NE(read.error().text.find(fault.words), std::string::npos) << read.error().text;
  }
}

TEST(data_frame, the_end_of_an_empty_chunk_can_be) {
  DataHeader end{.kind = DataKind::end, .last = true, .transfer = {1}, .number = 0};
  EXPECT_EQ(read_data_header(bytes_of(end)).value(), end);
  end.position_begin = 1;
  EXPECT_FALSE(read_data_header(bytes_of(end)));
}

TEST(data_frame, what_is_taken_is_written_back_byte_for_byte) {
  EXPECT_TRUE(rc::check("write(read(b)) == b", [] {
    HeaderBytes bytes = bytes_of(piece());
    const int changes = *rc::gen::inRange(0, 4);
    for (int i = 0; i < changes; ++i) {
      bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] =
          static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
    }
    if (const auto read = read_data_header(bytes)) RC_ASSERT(bytes_of(read.value()) == bytes);
  }));
}

}  // namespace
}  // namespace kvferry::protocol
