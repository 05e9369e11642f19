#include "base/settings_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace kvferry {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  if (text.empty() || !std::ranges::all_of(text, is_digit)) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 5> units{
      {{"", 1e3}, {"ms", 1.0}, {"s", 1e3}, {"m", 60e3}, {"h", 3'600e3}}};
  // from_chars alone would take "inf" and "-1" too.
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  double number = 0;
  const char* const stop = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), stop, number, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(stop - end));
  const auto* const row = std::ranges::find(units, unit, &std::pair<std::string_view, double>::first);
  if (row == units.end()) return std::nullopt;
  const double millis = std::round(number * row->second);
  if (!(millis < 1e15)) return std::nullopt;  // 30,000 years, and nothing that does not fit
  return std::chrono::milliseconds(static_cast<std::int64_t>(millis));
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower(text);
  if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
  if (word == "0" || word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::optional<Transport> parse_transport(std::string_view text) {
  const std::string word = lower(text);
  if (word == "auto" || word == "automatic") return Transport::automatic;
  if (word == "tcp") return Transport::tcp;
  if (word == "samehost") return Transport::samehost;
  return std::nullopt;
}

std::optional<Verify> parse_verify(std::string_view text) {
  const std::string word = lower(text);
  if (word == "off") return Verify::off;
  if (word == "crc32c") return Verify::crc32c;
  return std::nullopt;
}

std::string duration_text(std::chrono::milliseconds duration) {
  if (duration.count() % 1'000 == 0) return std::to_string(duration.count() / 1'000) + "s";
  return std::to_string(duration.count()) + "ms";
}

}  // namespace kvferry
