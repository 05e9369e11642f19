// Small files of /proc and /sys.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace kvferry::tools {

// The file's text without its last line end; nothing where it cannot be read.
inline std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// The value of a line "name:   value" as /proc/meminfo and /proc/self/status have it; empty where it is not there.
inline std::string field_of(std::string_view text, std::string_view name) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) {
      std::size_t value = line.find_first_not_of(" \t", name.size() + 1);
      return value == std::string_view::npos ? std::string() : std::string(line.substr(value));
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace kvferry::tools
