// One address type, parsed once: "host:port" with an IPv4 address, a bracketed IPv6 address (scope id included) or a
// name.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvferry/result.h"

namespace kvferry {

struct Address {
  std::string host;  // without brackets
  std::uint16_t port = 0;

  // `invalid_argument` with the text and what is wrong with it. The port must be there, 1 to 65535 (0 where allowed).
  static Result<Address> parse(std::string_view text, bool port_zero_allowed = false);
  // "10.0.0.1:80", "[fe80::1%eth0]:80", "prefill-0.example:80"
  std::string text() const;
  friend auto operator<=>(const Address&, const Address&) = default;
};

// Loopback, RFC 1918, RFC 6598, unique-local and link-local addresses. `ip` is a literal without brackets; a name is
// not.
bool is_private_or_loopback(std::string_view ip);
bool is_ip_literal(std::string_view host);

}  // namespace kvferry
