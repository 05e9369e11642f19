// One value of a setting, from the text of an environment variable and back.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvferry/settings.h"

namespace kvferry {

// Digits only.
std::optional<std::uint64_t> parse_count(std::string_view text);
// Seconds, or a number with ms, s, m or h; rounded to whole milliseconds.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
// 1, true, yes, on and 0, false, no, off, in any case.
std::optional<bool> parse_bool(std::string_view text);
std::optional<Transport> parse_transport(std::string_view text);
std::optional<Verify> parse_verify(std::string_view text);

// "1.5s", "200ms": what parse_duration reads back as the same.
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace kvferry
