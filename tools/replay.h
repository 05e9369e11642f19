// kvferry replay: a trace of real requests between real processes, every byte checked.
#pragma once

#include "tools/context.h"

namespace kvferry::tools {

// Declares `replay`, and the hidden `replay-worker` that it starts.
void add_replay(CLI::App& app, Context& context);

}  // namespace kvferry::tools
