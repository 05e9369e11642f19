#include "base/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>

namespace kvferry {
namespace {

Error bad(std::string_view text, const char* why) {
  return Error{Code::invalid_argument,
               "address \"" + std::string(text) + "\": " + why +
                   "; expected host:port, for example 10.0.0.1:8998, [fd00::1]:8998 or name:8998"};
}

bool name_is_valid(std::string_view host) {
  return !host.empty() && host.size() <= 253 && std::ranges::all_of(host, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
}

std::optional<std::array<std::uint8_t, 4>> parse_v4(std::string_view ip) {
  std::array<std::uint8_t, 4> bytes{};
  const std::string text(ip);
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) != 1) return std::nullopt;
  return bytes;
}

std::optional<std::array<std::uint8_t, 16>> parse_v6(std::string_view ip) {
  std::array<std::uint8_t, 16> bytes{};
  const std::string text(ip.substr(0, ip.find('%')));
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1) return std::nullopt;
  return bytes;
}

bool v4_is_private(const std::array<std::uint8_t, 4>& b) {
  return b[0] == 127 || b[0] == 10 || (b[0] == 172 && (b[1] & 0xf0) == 16) || (b[0] == 192 && b[1] == 168) ||
         (b[0] == 169 && b[1] == 254) || (b[0] == 100 && (b[1] & 0xc0) == 64);
}

}  // namespace

Result<Address> Address::parse(std::string_view text, bool port_zero_allowed) {
  std::string_view host;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return bad(text, "the bracket is not closed");
    host = text.substr(1, close - 1);
    if (!parse_v6(host)) return bad(text, "no IPv6 address stands in the brackets");
    if (close + 1 >= text.size() || text[close + 1] != ':') return bad(text, "the port is missing");
    port = text.substr(close + 2);
  } else {
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad(text, "the port is missing");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) return bad(text, "an IPv6 address needs brackets");
    if (!name_is_valid(host)) return bad(text, "the host is not an address or a name");
  }
  unsigned value = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (error != std::errc{} || end != port.data() + port.size() || value > 65'535 ||
      (value == 0 && !port_zero_allowed)) {
    return bad(text, "the port is not a number from 1 to 65535");
  }
  return Address{std::string(host), static_cast<std::uint16_t>(value)};
}

std::string Address::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_ip_literal(std::string_view host) { return parse_v4(host) || parse_v6(host); }

bool is_private_or_loopback(std::string_view ip) {
  if (const auto v4 = parse_v4(ip)) return v4_is_private(*v4);
  const auto v6 = parse_v6(ip);
  if (!v6) return false;
  const auto& b = *v6;
  static constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(mapped.begin(), mapped.end(), b.begin())) return v4_is_private({b[12], b[13], b[14], b[15]});
  const bool loopback = std::all_of(b.begin(), b.end() - 1, [](auto x) { return x == 0; }) && b[15] == 1;
  return loopback || (b[0] & 0xfe) == 0xfc || (b[0] == 0xfe && (b[1] & 0xc0) == 0x80);
}

}  // namespace kvferry
