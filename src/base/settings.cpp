#include "kvferry/settings.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/address.h"
#include "base/limits_from.h"
#include "base/match.h"
#include "base/settings_table.h"
#include "base/settings_value.h"
#include "base/try.h"

namespace kvferry {
namespace {

constexpr std::size_t token_bytes_max = 4'096;

// A variable and what it says; a value that was set in code says nothing.
struct Given {
  std::string name;
  std::string value;
};

Error refused(const std::string& name, const std::string& value, const std::string& allowed) {
  return Error{Code::invalid_argument, name + "=\"" + value + "\" is not allowed; allowed: " + allowed};
}

std::string text_of(Settings::Millis value) { return duration_text(value); }
std::string text_of(std::uint64_t value) { return std::to_string(value); }

template <class T>
std::string allowed_of(const Range<T>& range) {
  std::string kind = "a whole number";
  if constexpr (std::is_same_v<T, Settings::Millis>) kind = "seconds, or a number with ms, s, m or h,";
  return kind + " from " + text_of(range.min) + " to " + text_of(range.max);
}

template <class T>
Result<void> check_range(const Given& given, const Range<T>& range, const Settings& settings) {
  const T value = settings.*range.field;
  if (value >= range.min && value <= range.max) return {};
  return refused(given.name, given.value.empty() ? text_of(value) : given.value, allowed_of(range));
}

Result<void> check_text(const std::string& name, std::string Settings::*field, const Settings& settings) {
  const std::string& text = settings.*field;
  if (field == &Settings::token) {
    if (text.size() <= token_bytes_max) return {};
    return refused(name, "(" + std::to_string(text.size()) + " bytes, not shown)",
                   "up to " + std::to_string(token_bytes_max) + " bytes");
  }
  if (text.empty() || is_ip_literal(text) || (text.front() != '[' && Address::parse(text + ":1"))) return {};
  return refused(name, text, "an IPv4 address, an IPv6 address or a host name, without a port");
}

Result<void> check_field(const SettingRow& row, const Settings& settings, const Given& given) {
  return std::visit(
      match{[&](std::string Settings::*field) { return check_text(given.name, field, settings); },
            [&](bool Settings::*) { return Result<void>(); },
            [&](Transport Settings::*field) {
              if (settings.*field <= Transport::samehost) return Result<void>();
              return Result<void>(
                  refused(given.name, std::to_string(static_cast<unsigned>(settings.*field)), "auto, tcp or samehost"));
            },
            [&](Verify Settings::*field) {
              if (settings.*field <= Verify::crc32c) return Result<void>();
              return Result<void>(
                  refused(given.name, std::to_string(static_cast<unsigned>(settings.*field)), "off or crc32c"));
            },
            [&](const Range<Settings::Millis>& range) { return check_range(given, range, settings); },
            [&](const Range<std::uint32_t>& range) { return check_range(given, range, settings); },
            [&](const Range<std::uint64_t>& range) { return check_range(given, range, settings); }},
      row.field);
}

template <class T>
Result<void> store_count(const Given& given, const Range<T>& range, Settings& settings) {
  const auto value = parse_count(given.value);
  if (!value || *value > std::numeric_limits<T>::max()) return refused(given.name, given.value, allowed_of(range));
  settings.*range.field = static_cast<T>(*value);
  return {};
}

std::string without_brackets(const std::string& host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
  return host;
}

Result<void> store(const SettingRow& row, const Given& given, Settings& settings) {
  return std::visit(
      match{[&](std::string Settings::*field) {
              settings.*field = field == &Settings::host ? without_brackets(given.value) : given.value;
              return Result<void>();
            },
            [&](bool Settings::*field) {
              const auto value = parse_bool(given.value);
              if (!value)
                return Result<void>(refused(given.name, given.value, "1, true, yes, on, 0, false, no or off"));
              settings.*field = *value;
              return Result<void>();
            },
            [&](Transport Settings::*field) {
              const auto value = parse_transport(given.value);
              if (!value) return Result<void>(refused(given.name, given.value, "auto, tcp or samehost"));
              settings.*field = *value;
              return Result<void>();
            },
            [&](Verify Settings::*field) {
              const auto value = parse_verify(given.value);
              if (!value) return Result<void>(refused(given.name, given.value, "off or crc32c"));
              settings.*field = *value;
              return Result<void>();
            },
            [&](const Range<Settings::Millis>& range) {
              const auto value = parse_duration(given.value);
              if (!value) return Result<void>(refused(given.name, given.value, allowed_of(range)));
              settings.*range.field = *value;
              return Result<void>();
            },
            [&](const Range<std::uint32_t>& range) { return store_count(given, range, settings); },
            [&](const Range<std::uint64_t>& range) { return store_count(given, range, settings); }},
      row.field);
}

// An empty variable is an unset one.
std::optional<Given> find(const Settings::Lookup& lookup, const char* prefix, const char* name) {
  if (name == nullptr) return std::nullopt;
  Given given{std::string(prefix) + name, {}};
  std::optional<std::string> value = lookup(given.name);
  if (!value || value->empty()) return std::nullopt;
  given.value = std::move(*value);
  return given;
}

// Two of SGLang's sizes mean something else there and are common below what is useful here: its pool may have one
// thread, and its queue size counts queues (4 by default) where ours counts chunks. They only ever raise.
void raise_sglang_sizes(const SettingRow& row, Settings& settings) {
  const auto* range = std::get_if<Range<std::uint32_t>>(&row.field);
  if (range == nullptr) return;
  std::uint32_t& value = settings.*range->field;
  if (value == 0) return;  // is nowhere allowed, and refused by the check
  if (range->field == &Settings::data_threads) value = std::max(value, range->min);
  if (range->field == &Settings::chunks_queued_max) value = std::max(value, Settings{}.chunks_queued_max);
}

}  // namespace

Result<Settings> Settings::from_environment(const Lookup& lookup) {
  Settings settings;
  for (const SettingRow& row : settings_table) {
    const auto ours = find(lookup, "KVFERRY_", row.name);
    const auto given = ours ? ours : find(lookup, "SGLANG_DISAGGREGATION_", row.sglang_name);
    if (!given) continue;
    KVF_CHECK(store(row, *given, settings));
    if (!ours) raise_sglang_sizes(row, settings);
    KVF_CHECK(check_field(row, settings, *given));
  }
  return settings;
}

Result<Settings> Settings::from_environment() {
  return from_environment([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

Result<void> Settings::check() const {
  for (const SettingRow& row : settings_table) {
    KVF_CHECK(check_field(row, *this, {std::string("KVFERRY_") + row.name, {}}));
  }
  return {};
}

Limits limits_from(const Settings& settings) {
  Limits limits;
  limits.bootstrap_timeout = settings.bootstrap_timeout;
  limits.send_timeout = settings.send_timeout;
  limits.progress_timeout = settings.progress_timeout;
  limits.waiting_timeout = settings.waiting_timeout;
  limits.early_grant_ttl = settings.bootstrap_timeout;
  limits.ping_interval = settings.ping_interval;
  limits.ping_misses_max = settings.ping_misses_max;
  limits.queued_interval = std::min<Duration>(limits.queued_interval, limits.waiting_timeout / 3);
  limits.rooms_max = settings.rooms_max;
  limits.orphan_grants_max = settings.orphan_grants_max;
  limits.chunks_queued_max = settings.chunks_queued_max;
  limits.inline_bytes_max = settings.inline_bytes_max;
  limits.verify = settings.verify != Verify::off;
  return limits;
}

}  // namespace kvferry
