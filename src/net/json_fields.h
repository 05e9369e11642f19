// Typed, bounded access to the fields of one JSON object. Errors name the field, what was there and what is allowed.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "kvferry/result.h"

namespace kvferry::net {

class JsonFields {
 public:
  // `code` for bytes that are no JSON object: an operator's input and a peer's answer are different faults.
  static Result<JsonFields> parse(std::string_view text, Code code);

  bool has(std::string_view name) const { return object_.contains(name); }
  Result<std::uint64_t> number(std::string_view name, std::uint64_t least, std::uint64_t most) const;
  Result<std::uint64_t> number_or(std::string_view name, std::uint64_t least, std::uint64_t most,
                                  std::uint64_t otherwise) const;
  Result<std::string> text(std::string_view name, std::size_t bytes_max) const;
  Result<Bits128> bits(std::string_view name) const;
  // For values of other kinds.
  const boost::json::object& object() const { return object_; }
  Error bad(std::string_view name, const std::string& expected) const;

 private:
  JsonFields(boost::json::object object, Code code) : object_(std::move(object)), code_(code) {}
  boost::json::object object_;
  Code code_;
};

}  // namespace kvferry::net
