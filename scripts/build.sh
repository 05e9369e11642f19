#!/usr/bin/env bash
# Configures a preset and builds targets of it:  scripts/build.sh PRESET [TARGET...]
# JOBS sets how many compilers run at once; a ccache on the machine is used.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi
cmake --preset "$preset" --log-level=WARNING >/dev/null
cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" ${@:+--target "$@"}
