// Any bytes as a control frame: they are refused, or read as a message that is written and read back as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "protocol/codec.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvferry::protocol;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  if (size < frame_header_bytes) return 0;
  const auto header = read_frame_header(bytes.first<frame_header_bytes>(), handshake_body_bytes_max);
  if (header && (header->body_bytes > handshake_body_bytes_max || header->payload_bytes > payload_bytes_max)) abort();
  // The body is read whatever the header says, so that the search is not held up by magic and sizes.
  const auto message = decode_body(bytes.subspan(frame_header_bytes));
  if (!message) {
    if (message.error().code != kvferry::Code::protocol || message.error().text.empty()) abort();
    return 0;
  }
  std::vector<std::byte> frame;
  append_frame(message.value(), 0, frame);
  const std::span<const std::byte> written(frame);
  const auto again = read_frame_header(written.first<frame_header_bytes>(), body_bytes_max);
  if (!again || again->body_bytes + frame_header_bytes != frame.size()) abort();
  if (!(decode_body(written.subspan(frame_header_bytes)).value() == message.value())) abort();
  return 0;
}
