#include "tools/commands.h"

#include "kvferry/kvferry.h"
#include "tools/bench.h"
#include "tools/replay.h"

namespace kvferry::tools {

void add_commands(CLI::App& app, Context& context) {
  app.description(
      "kvferry hands the KV cache of a request from the prefill engine that computed it\n"
      "to the decode engine that goes on, and keeps every other request running when one of the two dies.");
  app.name("kvferry");
  app.set_version_flag("--version", std::string("kvferry ") + version());
  app.require_subcommand(1);
  app.footer(
      "Start with:\n"
      "  kvferry doctor                what this machine offers, and what to do about what it lacks\n"
      "  kvferry demo                  real prefill and decode processes answer prompts together\n"
      "  kvferry demo --kill decode    the same, and one of them is killed halfway\n\n"
      "Exit codes: 0 the result is good, 1 it is not, 2 the command line is wrong,\n"
      "3 this machine or a setting kept the command from running.\n"
      "Settings come from KVFERRY_<NAME>; `kvferry doctor` shows those in force.");
  add_demo(app, context);
  add_doctor(app, context);
  add_bootstrap(app, context);
  add_replay(app, context);
  add_simulate(app, context);
  add_chaos(app, context);
  add_bench(app, context);
}

}  // namespace kvferry::tools
