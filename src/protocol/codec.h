// Messages <-> bytes, and the frame around them. A control frame is, little-endian:
//   u32 magic "KVF1"   u32 body bytes   u32 payload bytes   body (protobuf WireMessage)   payload (raw, only with
//   Inline)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvferry/result.h"
#include "protocol/messages.h"

namespace kvferry::protocol {

inline constexpr std::uint32_t frame_magic = 0x3146564b;  // "KVF1"
inline constexpr std::size_t frame_header_bytes = 12;
inline constexpr std::uint32_t body_bytes_max = (64u << 20) + (64u << 10);  // an Offer of offer_items_max fits
inline constexpr std::uint32_t payload_bytes_max = 16u << 20;               // an Inline chunk
inline constexpr std::uint32_t handshake_body_bytes_max = 16u << 20;  // before the peer is known (100,000 regions fit)

struct FrameHeader {
  std::uint32_t body_bytes = 0;
  std::uint32_t payload_bytes = 0;
};

// Reads a frame's first 12 bytes. `protocol` for a foreign magic (a text that begins like HTTP is named) or a size over
// `body_max` or payload_bytes_max; nothing is allocated for sizes that come from outside before this has passed.
Result<FrameHeader> read_frame_header(std::span<const std::byte, frame_header_bytes> bytes, std::uint32_t body_max);

// Appends header and body; the payload's bytes are the caller's to append after it.
void append_frame(const Message& message, std::uint32_t payload_bytes, std::vector<std::byte>& out);

// `protocol` for bytes that are no message, a message without its kind, or values that cannot be (a Code or a list out
// of range). Unknown fields are skipped: newer peers may add some.
Result<Message> decode_body(std::span<const std::byte> body);

}  // namespace kvferry::protocol
