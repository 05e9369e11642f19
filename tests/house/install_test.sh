#!/usr/bin/env bash
# Installs a build into an empty prefix and uses it as a stranger would: the project in examples/embed is built against
# it with find_package and once more with pkg-config, and both programs are run.
#   install_test.sh ROOT BUILD COMPILER
set -euo pipefail
root=$1 build=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "install_test: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; fail "cmake --install failed"; }
mv "$work/first" "$work/prefix" # nothing in an installed tree may remember where it was installed
prefix=$work/prefix
[[ -x $prefix/bin/kvferry ]] || fail "the kvferry command is not in bin/"
"$prefix/bin/kvferry" --version || fail "the installed command does not run"

# The library shows its public classes and nothing of what is behind them.
library=$(find "$prefix" -name libkvferry.so)
[[ -n $library ]] || fail "no libkvferry.so"
shown=$(nm -DC --defined-only "$library" | cut -d' ' -f3-)
grep -q '^kvferry::KvManager::create' <<<"$shown" || fail "KvManager::create is not exported"
inner=$(grep -vE '^kvferry::[A-Za-z_]+(::|\()' <<<"$shown" || true)
inner+=$(grep -E '^kvferry::(core|layout|protocol|net|os|transport|runtime)::' <<<"$shown" || true)
[[ -z $inner ]] || fail "inner names are exported: $(head -3 <<<"$inner")"

# Copied away, so that no relative path can lead back into the source tree.
cp -r "$root/examples/embed" "$work/embed"
cmake -S "$work/embed" -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" >"$work/cmake.log" 2>&1 &&
  cmake --build "$work/by-cmake" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "find_package(kvferry) failed"; }
"$work/by-cmake/embed" || fail "the program built with find_package failed"

pc_dir=$(dirname "$(find "$prefix" -name kvferry.pc)")
export PKG_CONFIG_PATH=$pc_dir
[[ $(pkg-config --modversion kvferry) == "$("$prefix/bin/kvferry" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')" ]] ||
  fail "pkg-config and the command name different versions"
# shellcheck disable=SC2046  # the flags are meant to be split
"$compiler" -std=c++20 -Wall -Wextra -Werror "$work/embed/main.cpp" $(pkg-config --cflags --libs kvferry) \
  -Wl,-rpath,"$(dirname "$library")" -o "$work/by-pkg-config"
"$work/by-pkg-config" || fail "the program built with pkg-config failed"
echo "install_test: installed, moved, embedded twice"
