// What every subcommand of `kvferry` shares: how it is declared, how it prints, how it ends.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace kvferry::tools {

// Exit codes, for scripts. They are part of the command's interface.
enum Exit : int {
  exit_ok = 0,           // the result is good
  exit_not_ok = 1,       // it ran to its end, and the result is not good
  exit_usage = 2,        // the command line cannot be right
  exit_environment = 3,  // this machine, a setting or another process kept it from running
};

// Lives in main for as long as the command runs; subcommands write what they found into it.
struct Context {
  bool json = false;        // --json: one object as the last line of stdout, nothing else there
  int exit_code = exit_ok;  // what main returns
};

// Declares a subcommand with --json and an example in its --help. The pointer is owned by `parent`.
inline CLI::App* add_command(CLI::App& parent, Context& context, const std::string& name,
                             const std::string& description, const std::string& footer) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->add_flag("--json", context.json, "Print one JSON object {ok, figures, rows} as the last line of stdout");
  command->footer(footer);
  return command;
}

// What runs once the command line was understood; `body` answers the exit code.
inline void on_run(CLI::App* command, Context& context, std::function<int()> body) {
  command->callback([&context, body = std::move(body)] { context.exit_code = body(); });
}

}  // namespace kvferry::tools
