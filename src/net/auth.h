// The shared token, proven both ways without ever being sent: HMAC-SHA256 over both nonces and what is being claimed.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"

namespace kvferry::net {

// Lower-case hex HMAC-SHA256 keyed by the token; the parts are length-prefixed, so that no two lists give one input.
// `purpose` keeps a proof for one message from serving as another ("link-prefill", "link-decode", "stream-prefill",
// ...).
std::string prove(std::string_view token, std::string_view purpose, std::initializer_list<std::string_view> parts);
// Compares in constant time.
bool proof_matches(std::string_view expected, std::string_view given);
// From the kernel's generator.
Bits128 random_bits();

}  // namespace kvferry::net
