#include "tools/bench.h"

#include "tools/bench_worker.h"

namespace kvferry::tools {

void add_bench(CLI::App& app, Context& context) {
  CLI::App* bench = app.add_subcommand("bench", "Measure kvferry beside the raw limits of this machine");
  bench->footer(
      "Every measurement starts processes of its own and ends within 45 seconds unless told otherwise. Where there is\n"
      "a raw limit, it is measured in the same processes, memory and minute.");
  bench->require_subcommand(1);
  add_bench_copy(*bench, context);
  add_bench_handoff(*bench, context);
  add_bench_idle(*bench, context);
  add_bench_failover(*bench, context);
  add_bench_memory(*bench, context);
  add_bench_races(*bench, context);
  add_bench_slice(*bench, context);
  add_bench_stall(*bench, context);
  add_bench_worker(app, context);
}

}  // namespace kvferry::tools
