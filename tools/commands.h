// The list of subcommands.
#pragma once

#include "tools/context.h"

namespace kvferry::tools {

void add_commands(CLI::App& app, Context& context);

void add_bootstrap(CLI::App& app, Context& context);
void add_chaos(CLI::App& app, Context& context);
void add_demo(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_simulate(CLI::App& app, Context& context);

// The example engine as a process of its own: `kvferry engine ...`, which the other subcommands start. Answers the exit
// code.
int run_engine(int argc, char** argv);

}  // namespace kvferry::tools
