#include "tools/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <iostream>

namespace kvferry::tools {
namespace {

std::string json_text(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

// 1234567 -> "1,234,567"
std::string grouped(std::string digits) {
  std::size_t first = digits.starts_with('-') ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

bool same_names(const Row& a, const Row& b) {
  return std::ranges::equal(a, b, {}, &Row::value_type::first, &Row::value_type::first);
}

// Columns as wide as their widest cell; numbers to the right.
void write_table(std::ostream& out, const Row* begin, const Row* end, bool colour) {
  std::vector<std::size_t> widths;
  for (const auto& [name, value] : *begin) widths.push_back(name.size());
  for (const Row* row = begin; row != end; ++row) {
    for (std::size_t c = 0; c < row->size(); ++c) widths[c] = std::max(widths[c], (*row)[c].second.text().size());
  }
  auto cell = [&](std::string_view text, std::size_t column, bool right, bool last) {
    std::size_t pad = widths[column] - text.size();
    if (right) return fmt::format("  {:{}}{}", "", pad, text);
    return last ? fmt::format("  {}", text) : fmt::format("  {}{:{}}", text, "", pad);
  };
  out << (colour ? "\033[1m" : "");
  for (std::size_t c = 0; c < begin->size(); ++c) {
    const auto& [name, value] = (*begin)[c];
    out << cell(name, c, value.is_number(), c + 1 == begin->size());
  }
  out << (colour ? "\033[0m\n" : "\n");
  for (const Row* row = begin; row != end; ++row) {
    for (std::size_t c = 0; c < row->size(); ++c) {
      const Value& value = (*row)[c].second;
      out << cell(value.text(), c, value.is_number(), c + 1 == row->size());
    }
    out << '\n';
  }
}

}  // namespace

bool Value::is_number() const {
  return !std::holds_alternative<std::string>(held_) && !std::holds_alternative<bool>(held_);
}

std::string Value::json() const {
  if (const auto* text = std::get_if<std::string>(&held_)) return json_text(*text);
  if (const auto* number = std::get_if<double>(&held_))
    return std::isfinite(*number) ? fmt::to_string(*number) : "null";
  if (const auto* yes = std::get_if<bool>(&held_)) return *yes ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&held_)) return fmt::to_string(*number);
  return fmt::to_string(std::get<std::uint64_t>(held_));
}

std::string Value::text() const {
  if (const auto* text = std::get_if<std::string>(&held_)) return *text;
  if (const auto* yes = std::get_if<bool>(&held_)) return *yes ? "yes" : "no";
  const auto* number = std::get_if<double>(&held_);
  if (number == nullptr) return grouped(json());
  if (!std::isfinite(*number)) return "-";
  double size = std::abs(*number);
  if (size >= 1000) return grouped(fmt::format("{:.0f}", *number));
  if (size >= 100) return fmt::format("{:.1f}", *number);
  return fmt::format("{:.{}f}", *number, size >= 1 || size == 0 ? 2 : 4);
}

void Report::figure(std::string name, Value number, std::string unit) {
  auto found = std::ranges::find(figures_, name, &Figure::name);
  if (found != figures_.end()) {
    found->number = std::move(number);
    return;
  }
  figures_.push_back({std::move(name), std::move(number), std::move(unit)});
}

void Report::row(Row row) {
  if (!row.empty()) rows_.push_back(std::move(row));
}

void Report::note(std::string line) { notes_.push_back(std::move(line)); }
void Report::fail(std::string reason) { problems_.push_back(std::move(reason)); }

void Report::write_text(std::ostream& out, bool colour) const {
  auto paint = [&](std::string_view code, std::string_view text) {
    return colour ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
  };
  std::vector<Row> rows = rows_;
  for (Row& row : rows) {
    std::erase_if(row, [&](const auto& cell) { return std::ranges::find(hidden_, cell.first) != hidden_.end(); });
  }
  out << '\n' << paint("1", title_) << '\n';
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && same_names(rows[begin], rows[end])) ++end;
    out << '\n';
    write_table(out, rows.data() + begin, rows.data() + end, colour);
    begin = end;
  }
  if (!figures_.empty()) out << '\n';
  std::size_t name_width = 0;
  std::size_t number_width = 0;
  for (const Figure& figure : figures_) {
    name_width = std::max(name_width, figure.name.size());
    number_width = std::max(number_width, figure.number.text().size());
  }
  for (const Figure& figure : figures_) {
    out << fmt::format("  {:<{}}  {:>{}}", figure.name, name_width, figure.number.text(), number_width);
    out << (figure.unit.empty() ? "" : " ") << figure.unit << '\n';
  }
  if (!notes_.empty()) out << '\n';
  for (const std::string& line : notes_) out << "  " << line << '\n';
  out << '\n';
  for (const std::string& reason : problems_) out << paint("31", "not ok") << ": " << reason << '\n';
  if (ok()) out << paint("32", "ok") << '\n';
}

std::string Report::json() const {
  std::string out = fmt::format("{{\"ok\":{},\"figures\":{{", ok());
  for (const Figure& figure : figures_) {
    out += fmt::format("{}{}:{}", out.ends_with('{') ? "" : ",", json_text(figure.name), figure.number.json());
  }
  out += "},\"rows\":[";
  for (const Row& row : rows_) {
    out += out.ends_with('[') ? "{" : ",{";
    for (const auto& [name, value] : row) {
      out += fmt::format("{}{}:{}", out.ends_with('{') ? "" : ",", json_text(name), value.json());
    }
    out += '}';
  }
  out += ']';
  if (!problems_.empty()) {
    out += ",\"problems\":[";
    for (const std::string& reason : problems_) out += (out.ends_with('[') ? "" : ",") + json_text(reason);
    out += ']';
  }
  return out + '}';
}

int Report::finish(const Context& context) const {
  if (context.json) {
    std::cout << json() << std::endl;
  } else {
    write_text(std::cout, is_terminal(STDOUT_FILENO));
    std::cout.flush();
  }
  return ok() ? exit_ok : exit_not_ok;
}

int cannot_run(const Context& context, std::string_view reason) {
  std::cerr << "kvferry: " << reason << '\n';
  if (context.json) {
    Report report("");
    report.fail(std::string(reason));
    std::cout << report.json() << std::endl;
  }
  return exit_environment;
}

bool is_terminal(int fd) { return ::isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr; }

}  // namespace kvferry::tools
