// The engine's command line, shared by kvferry-engine and the kvferry command.
#pragma once

namespace kvferry::engine {
int engine_main(int argc, char** argv);
}  // namespace kvferry::engine
