#include "draw_messages.h"

#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/codes.h"

namespace kvferry::protocol {
namespace {

template <class T>
T any() {
  return *rc::gen::oneOf(rc::gen::arbitrary<T>(),
                         rc::gen::element<T>(0, 1, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()));
}
bool any_bool() { return *rc::gen::arbitrary<bool>(); }
// All bytes, zero and what is no UTF-8 included.
std::string any_text() { return *rc::gen::container<std::string>(rc::gen::arbitrary<char>()); }
template <class T>
std::vector<T> any_list() {
  return *rc::gen::arbitrary<std::vector<T>>();
}
template <class T>
std::vector<std::vector<T>> any_lists() {
  return *rc::gen::arbitrary<std::vector<std::vector<T>>>();
}
Bits128 any_bits() { return {any<std::uint64_t>(), any<std::uint64_t>()}; }
Incarnation any_incarnation() {
  Incarnation incarnation;
  incarnation.high = any<std::uint64_t>();
  incarnation.low = any<std::uint64_t>();
  return incarnation;
}
Code any_code() { return codes[*rc::gen::inRange<std::size_t>(0, codes.size())].code; }

Identity any_identity() {
  return {.instance = any_text(),
          .place = {any<std::uint32_t>(), any<std::uint32_t>(), any<std::uint32_t>()},
          .incarnation = any_incarnation(),
          .start_number = any<std::uint64_t>()};
}
// As many names and marks as there are components; a name holds no comma.
std::vector<layout::StateShape> any_states() {
  std::vector<layout::StateShape> states;
  auto lists = any_lists<std::uint64_t>();
  for (auto& item_bytes : lists) {
    std::string name = any_text();
    std::ranges::replace(name, ',', ';');
    states.push_back({std::move(item_bytes), std::move(name), any_bool()});
  }
  return states;
}
layout::Shape any_shape() {
  return {.format = {any_text(), any<std::uint32_t>(), any<std::uint32_t>(), any<std::uint32_t>(), any<std::uint32_t>(),
                     any_bool()},
          .parallel = {any<std::uint32_t>(), any<std::uint32_t>(), any<std::uint32_t>()},
          .kv_item_bytes = any_list<std::uint64_t>(),
          .aux_item_bytes = any_list<std::uint64_t>(),
          .state = any_states()};
}
std::vector<std::string> any_transports() {
  std::vector<std::string> names;
  const int count = *rc::gen::inRange(0, static_cast<int>(transports_max) + 1);
  for (int i = 0; i < count; ++i) {
    std::string name = any_text() + "x";
    std::ranges::replace(name, ',', ';');
    names.push_back(std::move(name));
  }
  return names;
}
SameHost any_same_host() { return {any<std::uint64_t>(), any<std::uint64_t>(), any_bits()}; }
std::vector<RemoteRegion> any_regions() {
  std::vector<RemoteRegion> regions(*rc::gen::inRange<std::size_t>(0, 20));
  for (RemoteRegion& region : regions) {
    region = {any<std::uint32_t>(), any<std::uint64_t>(), any<std::uint64_t>(),
              any<std::uint64_t>(), any<std::int32_t>(),  any<std::uint64_t>()};
  }
  return regions;
}
ChunkSpan any_span() {
  const auto positions = std::minmax({any<std::uint64_t>(), any<std::uint64_t>()});
  const auto regions = std::minmax({any<std::uint32_t>(), any<std::uint32_t>()});
  return {.number = any<std::uint32_t>(),
          .position_begin = positions.first,
          .position_end = positions.second,
          .region_begin = regions.first,
          .region_end = regions.second,
          .last = any_bool()};
}

Message any_handshake_message(std::size_t kind) {
  switch (kind) {
    case 0:
      return Hello{any<std::uint32_t>(), any<std::uint32_t>(), any_identity(), any_bits()};
    case 1:
      return Challenge{any<std::uint32_t>(), any_identity(), any_bits(), any_text(), any_shape()};
    case 2:
      return Proof{any_text(), any_shape(), any_transports(), any_same_host()};
    case 3:
      return Welcome{any_transports(), any_bits(), any_same_host(), any_text(), any_regions()};
    case 4:
      return Ready{any_text(), any_text()};
    case 5:
      return Linked{};
    case 6:
      return Refuse{any_code(), any_text()};
    case 7:
      return Join{any_incarnation(), any_incarnation(), any_bits()};
    case 8:
      return JoinChallenge{any_bits(), any_text()};
    default:
      return JoinProof{any_text()};
  }
}
}  // namespace

Message any_message_of(std::size_t kind) {
  const auto transfer = [] { return TransferId{any<std::uint64_t>()}; };
  const auto room = [] { return RoomId{any<std::uint64_t>()}; };
  switch (kind) {
    case 10:
      return Grant{room(),
                   transfer(),
                   any<std::uint64_t>(),
                   any<std::uint64_t>(),
                   any_bool(),
                   any_list<std::uint64_t>(),
                   any<std::uint32_t>(),
                   any_bool(),
                   any_bool(),
                   any_bool()};
    case 11:
      return Inline{transfer(), any_span()};
    case 12:
      return Offer{transfer(), any_span(), any_list<std::int32_t>(), any<std::int32_t>(), any_lists<std::int32_t>()};
    case 13:
      return Landed{transfer(), any<std::uint32_t>()};
    case 14:
      return Confirm{transfer()};
    case 15:
      return Abort{room(), transfer(), any_code(), any_text()};
    case 16:
      return Closed{transfer()};
    case 17: {
      Queued queued;
      for (const std::uint64_t id : any_list<std::uint64_t>()) queued.transfers.push_back({id});
      return queued;
    }
    case 18:
      return Ping{any<std::uint64_t>()};
    case 19:
      return Pong{any<std::uint64_t>()};
    case 20:
      return Sum{transfer(), any<std::uint32_t>()};
    default:
      return any_handshake_message(kind);
  }
}
Message any_message() { return any_message_of(*rc::gen::inRange<std::size_t>(0, std::variant_size_v<Message>)); }

}  // namespace kvferry::protocol
