#include "tools/bench.h"

namespace kvferry::tools {

void add_bench(CLI::App& app, Context& context) {
  CLI::App* bench = app.add_subcommand("bench", "Measure kvferry beside the raw limits of this machine");
  bench->footer(
      "Every measurement starts a prefill and a decode process of its own, measures the raw limit in the same\n"
      "processes, memory and minute, and ends within 45 seconds unless told otherwise.");
  bench->require_subcommand(1);
  add_bench_copy(*bench, context);
  add_bench_handoff(*bench, context);
  add_bench_idle(*bench, context);
}

}  // namespace kvferry::tools
