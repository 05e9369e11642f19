#include "protocol/codec.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/assert.h"
#include "protocol/wire_values.h"

namespace kvferry::protocol {
namespace {

// One message at a time is taken apart or put together in memory that a thread keeps: small messages touch no heap, and
// what a large one took goes back at its end.
class Scratch {
 public:
  Scratch() : arena_(options(block_)) {}
  wire::WireMessage& message() { return *google::protobuf::Arena::CreateMessage<wire::WireMessage>(&arena_); }
  void clear() { arena_.Reset(); }

 private:
  using Block = std::array<char, 4096>;
  static google::protobuf::ArenaOptions options(Block& block) {
    google::protobuf::ArenaOptions options;
    options.initial_block = block.data();
    options.initial_block_size = block.size();
    return options;
  }
  alignas(16) Block block_;
  google::protobuf::Arena arena_;  // after the block, which it uses to its end
};

class Lent {
 public:
  Lent() : message_(scratch().message()) {}
  ~Lent() { scratch().clear(); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  wire::WireMessage& message() { return message_; }

 private:
  static Scratch& scratch() {
    static thread_local Scratch scratch;
    return scratch;
  }
  wire::WireMessage& message_;
};

std::uint32_t get_u32(const std::byte* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::to_integer<std::uint32_t>(bytes[i]) << (8 * i);
  return value;
}

void put_u32(std::byte* bytes, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
}

Error foreign_magic(std::span<const std::byte, frame_header_bytes> bytes) {
  std::array<char, 4> begin{};
  std::memcpy(begin.data(), bytes.data(), begin.size());
  const std::string_view text(begin.data(), begin.size());
  static constexpr std::array<std::string_view, 10> http{"GET ", "PUT ", "POST", "HTTP", "HEAD",
                                                         "DELE", "OPTI", "PATC", "CONN", "TRAC"};
  if (std::ranges::find(http, text) != http.end()) {
    return cannot_be("the peer speaks HTTP (\"" + std::string(text) +
                     "\"), not kvferry's control protocol; is the port a rank's here and a bootstrap server's there?");
  }
  if (begin[0] == 0x16 && begin[1] == 0x03) {
    return cannot_be("the peer speaks TLS, not kvferry's control protocol; control links are not encrypted");
  }
  return cannot_be("a control frame begins with \"KVF1\" (" + std::to_string(frame_magic) + "), this one with " +
                   std::to_string(get_u32(bytes.data())) + "; the peer is no kvferry, or the link is out of step");
}

}  // namespace

Result<FrameHeader> read_frame_header(std::span<const std::byte, frame_header_bytes> bytes, std::uint32_t body_max) {
  if (get_u32(bytes.data()) != frame_magic) return foreign_magic(bytes);
  const FrameHeader header{get_u32(bytes.data() + 4), get_u32(bytes.data() + 8)};
  if (header.body_bytes > body_max) {
    return cannot_be("a control frame announces a body of " + std::to_string(header.body_bytes) + " bytes; at most " +
                     std::to_string(body_max) + " are taken here");
  }
  if (header.payload_bytes > payload_bytes_max) {
    return cannot_be("a control frame announces a payload of " + std::to_string(header.payload_bytes) +
                     " bytes; at most " + std::to_string(payload_bytes_max) + " are taken here");
  }
  return header;
}

void append_frame(const Message& message, std::uint32_t payload_bytes, std::vector<std::byte>& out) {
  KVF_ASSERT(payload_bytes <= payload_bytes_max);
  Lent lent;
  std::visit([&](const auto& value) { to_wire(value, lent.message()); }, message);
  const std::size_t body_bytes = lent.message().ByteSizeLong();
  KVF_ASSERT(body_bytes <= body_bytes_max);  // pair of the check in read_frame_header
  const std::size_t begin = out.size();
  out.resize(begin + frame_header_bytes + body_bytes);
  std::byte* at = out.data() + begin;
  put_u32(at, frame_magic);
  put_u32(at + 4, static_cast<std::uint32_t>(body_bytes));
  put_u32(at + 8, payload_bytes);
  lent.message().SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(at + frame_header_bytes));
}

Result<Message> decode_body(std::span<const std::byte> body) {
  if (body.size() > body_bytes_max) return cannot_be("a body of " + std::to_string(body.size()) + " bytes is too long");
  Lent lent;
  wire::WireMessage& in = lent.message();
  if (!in.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return cannot_be("the " + std::to_string(body.size()) + " bytes of a body are no message");
  }
  using Kind = wire::WireMessage::KindCase;
  switch (in.kind_case()) {
    case Kind::kGrant:
      return from_wire(in.grant());
    case Kind::kInline:
      return from_wire(in.inline_());
    case Kind::kOffer:
      return from_wire(in.offer());
    case Kind::kLanded:
      return from_wire(in.landed());
    case Kind::kConfirm:
      return from_wire(in.confirm());
    case Kind::kAbort:
      return from_wire(in.abort());
    case Kind::kClosed:
      return from_wire(in.closed());
    case Kind::kQueued:
      return from_wire(in.queued());
    case Kind::kPing:
      return from_wire(in.ping());
    case Kind::kPong:
      return from_wire(in.pong());
    case Kind::kSum:
      return from_wire(in.sum());
    case Kind::kHello:
      return from_wire(in.hello());
    case Kind::kChallenge:
      return from_wire(in.challenge());
    case Kind::kProof:
      return from_wire(in.proof());
    case Kind::kWelcome:
      return from_wire(in.welcome());
    case Kind::kReady:
      return from_wire(in.ready());
    case Kind::kLinked:
      return from_wire(in.linked());
    case Kind::kRefuse:
      return from_wire(in.refuse());
    case Kind::kJoin:
      return from_wire(in.join());
    case Kind::kJoinChallenge:
      return from_wire(in.join_challenge());
    case Kind::kJoinProof:
      return from_wire(in.join_proof());
    case Kind::KIND_NOT_SET:
      break;
  }
  return cannot_be("a message without a kind that this version knows");
}

}  // namespace kvferry::protocol
