#include "tools/html_page.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/utsname.h>

#include <cerrno>
#include <fstream>
#include <thread>

namespace kvferry::tools {

namespace {

constexpr const char* style = R"(
:root { color-scheme: light dark; --line: #8884; --soft: #8888; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child, td.word, th.word { text-align: left; }
.soft { color: var(--soft); } .bad { color: #c22; font-weight: 600; } .good { color: #282; font-weight: 600; }
)";

std::string processor() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown processor";
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string machine_line() {
  utsname system{};
  ::uname(&system);
  return fmt::format("{}, {} cores, {} {}", processor(), std::thread::hardware_concurrency(), system.sysname,
                     system.release);
}

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{0}</title><style>{1}</style></head>\n<body><h1>{0}</h1>\n{2}\n</body>"
      "</html>\n",
      html_escaped(title), style, body);
}

Result<void> write_file(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (file) return {};
  return Error{.code = Code::unsupported, .text = fmt::format("cannot write {}: {}", path, ::strerror(errno))};
}

}  // namespace kvferry::tools
