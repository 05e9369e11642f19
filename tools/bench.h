// kvferry bench: what kvferry moves beside what this machine can move, measured in one run.
#pragma once

#include "tools/context.h"

namespace kvferry::tools {

void add_bench(CLI::App& app, Context& context);

// One a measurement; `bench` is the parent command.
void add_bench_copy(CLI::App& bench, Context& context);
void add_bench_failover(CLI::App& bench, Context& context);
void add_bench_handoff(CLI::App& bench, Context& context);
void add_bench_idle(CLI::App& bench, Context& context);
void add_bench_memory(CLI::App& bench, Context& context);
void add_bench_races(CLI::App& bench, Context& context);
void add_bench_slice(CLI::App& bench, Context& context);
void add_bench_stall(CLI::App& bench, Context& context);

}  // namespace kvferry::tools
