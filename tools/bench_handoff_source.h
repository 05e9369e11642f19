// The prefill process of `bench handoff` and `bench idle`.
#pragma once

#include "bench/child.h"

namespace kvferry::tools {

inline constexpr std::size_t bench_handoff_pages = 65536;

// Runs in the forked child until the leader goes.
int run_handoff_source(const bench::Channel& channel);

}  // namespace kvferry::tools
