// Any text as an environment ("NAME=value" lines) and as an address: taken within bounds, or refused by name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/address.h"
#include "base/limits_from.h"

namespace {

void check_address(const std::string& text) {
  const auto address = kvferry::Address::parse(text, true);
  if (!address) {
    if (address.error().code != kvferry::Code::invalid_argument) abort();
    return;
  }
  const auto again = kvferry::Address::parse(address->text(), true);
  if (!again || again.value() != address.value()) abort();
  kvferry::is_private_or_loopback(address->host);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::map<std::string, std::string, std::less<>> environment;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      check_address(std::string(line));
    } else {
      environment.insert_or_assign(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
    }
  }
  const auto settings = kvferry::Settings::from_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
  if (settings) {
    if (!settings->check()) abort();
    if (kvferry::limits_from(settings.value()).rooms_max == 0) abort();
  } else if (settings.error().text.find("allowed: ") == std::string::npos) {
    abort();
  }
  return 0;
}
