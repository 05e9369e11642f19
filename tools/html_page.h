// One self-contained HTML file: no scripts, nothing fetched from elsewhere.
#pragma once

#include <string>
#include <string_view>

#include "kvferry/result.h"

namespace kvferry::tools {

std::string html_escaped(std::string_view text);
// The machine in one line: processor, cores, kernel.
std::string machine_line();
// A whole document with this title; the body is HTML.
std::string html_page(std::string_view title, std::string_view body);
// `unsupported` with the system's words.
Result<void> write_file(const std::string& path, std::string_view content);

}  // namespace kvferry::tools
