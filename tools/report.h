// What a subcommand found: figures (name -> number) and rows, printed as a table or as one JSON object.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tools/context.h"

namespace kvferry::tools {

// A number, a word or a yes/no. Doubles that are no numbers are written as null.
class Value {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Value(T number) {
    if constexpr (std::same_as<T, bool>) {
      held_ = number;
    } else if constexpr (std::floating_point<T>) {
      held_ = static_cast<double>(number);
    } else if constexpr (std::is_signed_v<T>) {
      held_ = static_cast<std::int64_t>(number);
    } else {
      held_ = static_cast<std::uint64_t>(number);
    }
  }
  Value(std::string text) : held_(std::move(text)) {}
  Value(std::string_view text) : held_(std::string(text)) {}
  Value(const char* text) : held_(std::string(text)) {}

  bool is_number() const;
  std::string json() const;
  std::string text() const;  // for people: "yes", 1,234,567, 12.35
 private:
  std::variant<bool, std::int64_t, std::uint64_t, double, std::string> held_;
};

using Row = std::vector<std::pair<std::string, Value>>;

class Report {
 public:
  explicit Report(std::string title) : title_(std::move(title)) {}

  // A figure is set once; setting it again replaces its value. `unit` is for people only.
  void figure(std::string name, Value number, std::string unit = {});
  // Neighbouring rows with the same names make one table.
  void row(Row row);
  // The column is in the JSON only.
  void hide_column(std::string name) { hidden_.push_back(std::move(name)); }
  // A line for people, printed under the figures; not in the JSON.
  void note(std::string line);
  // The result is not good. The reason is printed last, and as "problems" in the JSON.
  void fail(std::string reason);
  bool ok() const { return problems_.empty(); }

  void write_text(std::ostream& out, bool colour) const;
  std::string json() const;  // {"ok":...,"figures":{...},"rows":[...]}, one line
  // Prints to stdout in the form that was asked for; answers exit_ok or exit_not_ok.
  int finish(const Context& context) const;

 private:
  struct Figure {
    std::string name;
    Value number;
    std::string unit;
  };
  std::string title_;
  std::vector<Figure> figures_;
  std::vector<Row> rows_;
  std::vector<std::string> hidden_;
  std::vector<std::string> notes_;
  std::vector<std::string> problems_;
};

// The command could not run: one line on stderr, and with --json {"ok":false,...} on stdout. Answers exit_environment.
int cannot_run(const Context& context, std::string_view reason);

// True where text may carry colours: the descriptor is a terminal and NO_COLOR is unset.
bool is_terminal(int fd);

}  // namespace kvferry::tools
