// Result and Error: how every call of kvferry says that it failed. The names are those of std::expected (C++23).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "kvferry/export.h"

namespace kvferry {

// What went wrong, for programs. A code exists where somebody reacts differently; the words are in Error::text.
enum class Code : std::uint8_t {
  invalid_argument,  // the call cannot be right: fix the caller
  out_of_range,      // a page, slot or count outside of what was registered or granted
  already_exists,    // the room number is live on this side, or owned by another decode instance
  mismatch,          // the two sides disagree: layout, sizes, prefix or page count
  try_later,         // a bound is reached; nothing was taken, the same call may succeed later
  unreachable,       // no address, no route, or nobody answers there
  timeout,           // a limit passed; the text names the limit
  peer_lost,         // the peer's link, process or data stream is gone
  aborted,           // this side's engine aborted the room
  peer_aborted,      // the other side aborted or failed the room
  protocol,          // a message or frame that cannot be
  unauthorized,      // the shared token is missing or wrong
  unsupported,       // the machine or the peer cannot do it
  closed,            // the manager is shut down, or is used in a forked child
  internal,          // a fault of kvferry itself
  corrupt,           // the end-to-end check found other bytes than were sent
};

// The code's name as written in logs, metrics and documents, for example "peer_lost". Never null; static storage.
KVFERRY_API const char* code_name(Code code) noexcept;

// The reason of a failure. A value; copying it is fine in any thread.
struct KVFERRY_API Error {
  Code code = Code::internal;
  std::string text;                        // what happened, what was expected and found, what to do; one line
  std::optional<std::uint64_t> room = {};  // the room it is about, where it is about one
  std::string peer = {};                   // the peer's address, where one is involved

  // "room 7: peer 10.0.0.1:9000: peer_lost: ...", ready for a log line.
  std::string message() const;
  friend bool operator==(const Error&, const Error&) = default;
};

// A value or the Error that stands in its place. Reading the value of a failed Result throws std::bad_variant_access.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  Error& error() & { return error_.value(); }
  const Error& error() const& { return error_.value(); }

 private:
  std::optional<Error> error_;
};

}  // namespace kvferry
