#!/usr/bin/env bash
# Every check of the house, in order, stopping at the first that fails; `make test` and continuous integration run it.
#   scripts/test.sh            all parts
#   scripts/test.sh PART...    these parts alone; scripts/test.sh --list names them
# JOBS sets how many compilers and tests run at once (default: one a core).
set -euo pipefail
cd "$(dirname "$0")/.."
export JOBS=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-20} # for each fuzz target

all_parts=(deps format release tests asan asan-tests tsan tsan-tests lint fuzz)
declare -A what=(
  [deps]="Debian packages"
  [format]="format of every source file"
  [release]="optimised build"
  [tests]="unit, property, simulator, process and house tests"
  [asan]="build with address and undefined-behaviour sanitizers"
  [asan-tests]="unit and process tests in it"
  [tsan]="build with the thread sanitizer"
  [tsan-tests]="unit and process tests in it"
  [lint]="clang-tidy"
  [fuzz]="fuzz targets, $fuzz_seconds s each"
)

logs=build/test-logs
summaries=() # ctest's own closing lines, repeated under the table

# Runs ctest on a build and keeps its closing lines. What ctest prints goes to the terminal as it is.
run_ctest() {
  local preset=$1
  shift
  local log=$logs/ctest-$preset.log
  mkdir -p "$logs"
  "${wrapper[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$JOBS" "$@" 2>&1 | tee "$log"
  summaries+=("$preset:" "$(grep -E '^[0-9]+% tests passed|^Total Test time' "$log")")
}

sanitizer_tests() {
  local preset=$1
  # The house tests look at the tree and not at the build: once is enough. Test times differ by an order under
  # sanitizers, hence the longer limit.
  run_ctest "$preset" -L '^(unit|process)$' -LE '^house$' --timeout 600
}

wrapper=()
part_deps() { scripts/deps.sh; }
part_format() { scripts/format.sh --check; }
part_release() { scripts/build.sh release; }
part_tests() { run_ctest release; }
part_asan() { scripts/build.sh asan tests_all; }
part_asan-tests() {
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=0
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  sanitizer_tests asan
}
part_tsan() { scripts/build.sh tsan tests_all; }
part_tsan-tests() {
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  # g++ 12's thread sanitizer does not know the address layouts of kernels that randomise more than 28 bits.
  if setarch -R true 2>/dev/null; then wrapper=(setarch -R); fi
  sanitizer_tests tsan
  wrapper=()
}
part_lint() {
  [[ -f build/release/compile_commands.json ]] || scripts/build.sh release
  scripts/lint.py build/release
}
part_fuzz() {
  # One target a source, by the same name: a fuzzer that is not built stops here, it is not passed over.
  local names name log
  mapfile -t names < <(find tests/fuzz -name 'fuzz_*.cpp' -exec basename {} .cpp ';' | sort)
  if ((${#names[@]} == 0)); then
    echo "fuzz: no fuzzer in tests/fuzz" >&2
    return 1
  fi
  scripts/build.sh fuzz "${names[@]}"
  mkdir -p "$logs"
  for name in "${names[@]}"; do
    mkdir -p "build/fuzz/found/$name"
    log=$logs/$name.log
    if ! "build/fuzz/fuzz/$name" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/" "build/fuzz/found/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
      tail -60 "$log"
      echo "fuzz: $name found something; the input is named above, the whole log is $log" >&2
      return 1
    fi
    echo "fuzz: $name: $(awk '/number_of_executed_units/ {print $2}' "$log") inputs in $fuzz_seconds s, nothing found"
  done
}

table=()
started_all=$SECONDS
print_table() {
  echo
  printf '%-12s %-55s %8s\n' part 'what it is' minutes
  printf '%s\n' "${table[@]}"
  printf '%-12s %-55s %8s\n' all '' "$(minutes $((SECONDS - started_all)))"
}
minutes() { printf '%d.%02d' $(($1 / 60)) $(($1 % 60 * 100 / 60)); }

if [[ ${1:-} == --list ]]; then
  for part in "${all_parts[@]}"; do printf '%-12s %s\n' "$part" "${what[$part]}"; done
  exit 0
fi
parts=("${@:-${all_parts[@]}}")
if (($# == 0)); then parts=("${all_parts[@]}"); fi
for part in "${parts[@]}"; do
  if [[ -z ${what[$part]:-} ]]; then
    echo "test.sh: there is no part '$part'; the parts are: ${all_parts[*]}" >&2
    exit 2
  fi
done

current=
on_exit() {
  local status=$?
  if ((status != 0)) && [[ -n $current ]]; then
    table+=("$(printf '%-12s %-55s %8s  FAILED' "$current" "${what[$current]}" "$(minutes $((SECONDS - started)))")")
    print_table
    echo
    echo "make test: part '$current' failed (${what[$current]}); its words are above."
    echo "To run it alone:  scripts/test.sh $current"
  fi
}
trap on_exit EXIT

for part in "${parts[@]}"; do
  current=$part
  started=$SECONDS
  echo
  echo "=== $part: ${what[$part]}"
  "part_$part"
  table+=("$(printf '%-12s %-55s %8s' "$part" "${what[$part]}" "$(minutes $((SECONDS - started)))")")
done
current=

print_table
if ((${#summaries[@]} > 0)); then
  echo
  printf '%s\n' "${summaries[@]}"
fi
echo "make test: all parts passed"
