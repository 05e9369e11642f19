// Between the values of messages.h and the generated classes of wire.proto. Internal to the codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvferry/result.h"
#include "protocol/messages.h"
#include "wire.pb.h"

namespace kvferry::protocol {

inline Error cannot_be(std::string text) { return Error{Code::protocol, std::move(text)}; }

// Writers: a message from its value. One overload for each alternative of Message; `out` is empty.
void to_wire(const Hello& value, wire::WireMessage& out);
void to_wire(const Challenge& value, wire::WireMessage& out);
void to_wire(const Proof& value, wire::WireMessage& out);
void to_wire(const Welcome& value, wire::WireMessage& out);
void to_wire(const Ready& value, wire::WireMessage& out);
void to_wire(const Linked& value, wire::WireMessage& out);
void to_wire(const Refuse& value, wire::WireMessage& out);
void to_wire(const Join& value, wire::WireMessage& out);
void to_wire(const JoinChallenge& value, wire::WireMessage& out);
void to_wire(const JoinProof& value, wire::WireMessage& out);
void to_wire(const Grant& value, wire::WireMessage& out);
void to_wire(const Inline& value, wire::WireMessage& out);
void to_wire(const Offer& value, wire::WireMessage& out);
void to_wire(const Landed& value, wire::WireMessage& out);
void to_wire(const Confirm& value, wire::WireMessage& out);
void to_wire(const Abort& value, wire::WireMessage& out);
void to_wire(const Closed& value, wire::WireMessage& out);
void to_wire(const Sum& value, wire::WireMessage& out);
void to_wire(const Queued& value, wire::WireMessage& out);
void to_wire(const Ping& value, wire::WireMessage& out);
void to_wire(const Pong& value, wire::WireMessage& out);

// Readers: the value, or why it cannot be.
Result<Message> from_wire(const wire::Hello& in);
Result<Message> from_wire(const wire::Challenge& in);
Result<Message> from_wire(const wire::Proof& in);
Result<Message> from_wire(const wire::Welcome& in);
Result<Message> from_wire(const wire::Ready& in);
Result<Message> from_wire(const wire::Linked& in);
Result<Message> from_wire(const wire::Refuse& in);
Result<Message> from_wire(const wire::Join& in);
Result<Message> from_wire(const wire::JoinChallenge& in);
Result<Message> from_wire(const wire::JoinProof& in);
Result<Message> from_wire(const wire::Grant& in);
Result<Message> from_wire(const wire::Inline& in);
Result<Message> from_wire(const wire::Offer& in);
Result<Message> from_wire(const wire::Landed& in);
Result<Message> from_wire(const wire::Confirm& in);
Result<Message> from_wire(const wire::Abort& in);
Result<Message> from_wire(const wire::Closed& in);
Result<Message> from_wire(const wire::Sum& in);
Result<Message> from_wire(const wire::Queued& in);
Result<Message> from_wire(const wire::Ping& in);
Result<Message> from_wire(const wire::Pong& in);

// Text that is too long is cut by its writer, so that no reason an engine gives can make a frame that its peer refuses.
inline std::string_view cut_text(const std::string& text) { return std::string_view(text).substr(0, text_bytes_max); }
Result<std::string> read_text(const std::string& in, const char* what);
Result<Code> read_code(std::uint32_t in);

template <class T>
void put_list(std::span<const T> values, google::protobuf::RepeatedField<T>& out) {
  out.Add(values.begin(), values.end());
}
template <class T>
std::vector<T> get_list(const google::protobuf::RepeatedField<T>& in) {
  return std::vector<T>(in.begin(), in.end());
}

// Lists of lists travel as their lengths and one flat list.
template <class T>
void put_lists(const std::vector<std::vector<T>>& lists, google::protobuf::RepeatedField<std::uint32_t>& counts,
               google::protobuf::RepeatedField<T>& flat) {
  for (const std::vector<T>& list : lists) {
    counts.Add(static_cast<std::uint32_t>(list.size()));
    put_list<T>(list, flat);
  }
}
template <class T>
Result<std::vector<std::vector<T>>> get_lists(const google::protobuf::RepeatedField<std::uint32_t>& counts,
                                              const google::protobuf::RepeatedField<T>& flat, const char* what) {
  if (static_cast<std::size_t>(counts.size()) > state_lists_max) {
    return cannot_be(std::string(what) + ": " + std::to_string(counts.size()) + " state components; at most " +
                     std::to_string(state_lists_max) + " can be");
  }
  std::uint64_t total = 0;
  for (const std::uint32_t count : counts) total += count;
  if (total != static_cast<std::uint64_t>(flat.size())) {
    return cannot_be(std::string(what) + ": the state components count " + std::to_string(total) + " entries, " +
                     std::to_string(flat.size()) + " are there");
  }
  std::vector<std::vector<T>> lists;
  lists.reserve(static_cast<std::size_t>(counts.size()));
  const T* at = flat.data();
  for (const std::uint32_t count : counts) {
    lists.emplace_back(at, at + count);
    at += count;
  }
  return lists;
}

}  // namespace kvferry::protocol
