// Every way that the demo's engines can be split, one after the other.
#pragma once

#include "tools/context.h"
#include "tools/demo_cluster.h"

namespace kvferry::tools {

// Prefill and decode tensor-parallel sizes 1, 2 and 4, one or two pipeline stages, one or two data-parallel groups,
// grouped heads and MLA, pages in chunks and layer by layer: each combination answers the same prompts, which must come
// out as from one process. `quick` takes every so many. The rest (transport, shared, seed) is as in `like`.
int run_matrix(const Context& context, const ClusterOptions& like, bool quick);

}  // namespace kvferry::tools
