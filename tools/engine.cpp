#include "engine/engine_main.h"

#include "tools/commands.h"

namespace kvferry::tools {

int run_engine(int argc, char** argv) { return engine::engine_main(argc, argv); }

}  // namespace kvferry::tools
