#include "base/codes.h"

#include <array>

#include "kvferry/kvferry.h"

namespace kvferry {

const char* code_name(Code code) noexcept {
  for (const CodeRow& row : codes) {
    if (row.code == code) return row.name;
  }
  return "unknown";
}

const char* poll_name(Poll state) noexcept {
  static constexpr std::array names{"failed", "bootstrapping", "waiting_for_input", "transferring", "success"};
  return names[static_cast<std::size_t>(state)];
}

std::string Error::message() const {
  std::string line;
  if (room) line += "room " + std::to_string(*room) + ": ";
  if (!peer.empty()) line += "peer " + peer + ": ";
  return line + code_name(code) + ": " + text;
}

}  // namespace kvferry
