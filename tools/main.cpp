// The kvferry command. Each subcommand lives in the file of its name.
#include <signal.h>

#include <exception>
#include <iostream>

#include "tools/commands.h"
#include "tools/report.h"

int main(int argc, char** argv) {
  namespace tools = kvferry::tools;
  ::signal(SIGPIPE, SIG_IGN);  // a child or a pager that went away is an error of one write, not the end
  CLI::App app;
  tools::Context context;
  tools::add_commands(app, context);
  // The engine's options are its own; the rest of the command line is not ours to read.
  if (argc > 1 && std::string_view(argv[1]) == "engine") return tools::run_engine(argc - 1, argv + 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? tools::exit_ok : tools::exit_usage;
  } catch (const std::exception& error) {
    return tools::cannot_run(context, error.what());
  }
  return context.exit_code;
}
