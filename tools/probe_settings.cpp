#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/match.h"
#include "base/settings_table.h"
#include "base/settings_value.h"
#include "tools/probes.h"

namespace kvferry::tools {
namespace {

std::string transport_text(Transport transport) {
  switch (transport) {
    case Transport::automatic:
      return "auto";
    case Transport::tcp:
      return "tcp";
    case Transport::samehost:
      return "samehost";
  }
  return "unknown";
}

std::string value_text(const Settings& settings, const Field& field) {
  return std::visit(
      match{[&](std::string Settings::*text) {
              const std::string& value = settings.*text;
              // A secret is never shown, only that it is there.
              if (text == &Settings::token) return value.empty() ? std::string("(none)") : "(set)";
              return value.empty() ? std::string("(found by itself)") : value;
            },
            [&](bool Settings::*yes) { return std::string(settings.*yes ? "1" : "0"); },
            [&](Transport Settings::*transport) { return transport_text(settings.*transport); },
            [&](Verify Settings::*verify) { return std::string(settings.*verify == Verify::off ? "off" : "crc32c"); },
            [&](const Range<Settings::Millis>& range) { return duration_text(settings.*range.field); },
            [&](const Range<std::uint32_t>& range) { return fmt::to_string(settings.*range.field); },
            [&](const Range<std::uint64_t>& range) { return fmt::to_string(settings.*range.field); }},
      field);
}

bool is_set(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0';
}

}  // namespace

std::vector<SettingInForce> settings_in_force(const Settings& settings) {
  std::vector<SettingInForce> out;
  for (const SettingRow& row : settings_table) {
    std::string ours = std::string("KVFERRY_") + row.name;
    std::string theirs = row.sglang_name == nullptr ? "" : std::string("SGLANG_DISAGGREGATION_") + row.sglang_name;
    std::string source = "default";
    if (is_set(ours)) {
      source = "environment";
    } else if (!theirs.empty() && is_set(theirs)) {
      source = theirs;
    }
    out.push_back({.name = ours, .value = value_text(settings, row.field), .source = source});
  }
  return out;
}

void probe_variables(Findings& out) {
  std::set<std::string, std::less<>> known{"KVFERRY_LOG"};
  for (const SettingRow& row : settings_table) known.insert(std::string("KVFERRY_") + row.name);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view name(*entry);
    name = name.substr(0, name.find('='));
    if (!name.starts_with("KVFERRY_") || known.contains(name)) continue;
    out.push_back({.area = "setting",
                   .name = std::string(name),
                   .state = Finding::State::warning,
                   .found = "set, but no setting has this name",
                   .advice = "correct or unset it; the names are listed by `kvferry doctor`"});
  }
}

}  // namespace kvferry::tools
