#include "net/json_fields.h"

#include "base/try.h"
#include "net/registration_json.h"

namespace kvferry::net {

namespace json = boost::json;

Result<JsonFields> JsonFields::parse(std::string_view text, Code code) {
  json::error_code failed;
  json::parse_options options;
  options.max_depth = 8;
  json::value value = json::parse(json::string_view(text.data(), text.size()), failed, {}, options);
  if (failed) return Error{code, "the body is not JSON: " + failed.message()};
  if (!value.is_object()) return Error{code, "the body is JSON but not an object"};
  return JsonFields(std::move(value.get_object()), code);
}

Error JsonFields::bad(std::string_view name, const std::string& expected) const {
  const json::value* value = object_.if_contains(name);
  std::string found = "is missing";
  if (value != nullptr) {
    const std::string text = json::serialize(*value);
    found = "is " + (text.size() > 64 ? text.substr(0, 64) + "..." : text);
  }
  return Error{code_, "field \"" + std::string(name) + "\" " + found + "; expected " + expected};
}

Result<std::uint64_t> JsonFields::number(std::string_view name, std::uint64_t least, std::uint64_t most) const {
  const json::value* value = object_.if_contains(name);
  std::optional<std::uint64_t> found;
  if (value != nullptr && value->is_uint64()) found = value->get_uint64();
  if (value != nullptr && value->is_int64() && value->get_int64() >= 0) {
    found = static_cast<std::uint64_t>(value->get_int64());
  }
  if (!found || *found < least || *found > most) {
    return bad(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *found;
}

Result<std::uint64_t> JsonFields::number_or(std::string_view name, std::uint64_t least, std::uint64_t most,
                                            std::uint64_t otherwise) const {
  if (!has(name)) return otherwise;
  return number(name, least, most);
}

Result<std::string> JsonFields::text(std::string_view name, std::size_t bytes_max) const {
  const json::value* value = object_.if_contains(name);
  const bool good =
      value != nullptr && value->is_string() && !value->get_string().empty() && value->get_string().size() <= bytes_max;
  if (!good) return bad(name, "a text of 1 to " + std::to_string(bytes_max) + " bytes");
  return std::string(value->get_string().data(), value->get_string().size());
}

Result<Bits128> JsonFields::bits(std::string_view name) const {
  const json::value* value = object_.if_contains(name);
  std::optional<Bits128> found;
  if (value != nullptr && value->is_string()) {
    found = parse_hex(std::string_view(value->get_string().data(), value->get_string().size()));
  }
  if (!found) return bad(name, "32 hexadecimal digits");
  return *found;
}

}  // namespace kvferry::net
