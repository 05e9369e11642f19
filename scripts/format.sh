#!/usr/bin/env bash
# Formats every source file, or with --check says which files would change.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(command -v clang-format-14 || command -v clang-format)
mapfile -t files < <(git ls-files -co --exclude-standard -- '*.h' '*.cpp' | while read -r file; do
  if [[ -f $file ]]; then echo "$file"; fi
done)
if ((${#files[@]} == 0)); then
  echo "format: no source file found" >&2
  exit 1
fi
if [[ ${1:-} == --check ]]; then
  # The findings of a file would fill the screen; its name is enough.
  if ! findings=$("$tool" --dry-run -Werror "${files[@]}" 2>&1); then
    grep -oE '^[^ :]+:[0-9]+:[0-9]+: error' <<<"$findings" | cut -d: -f1 | sort | uniq -c |
      awk '{print "  " $2 " (" $1 " places)"}' >&2
    echo "format: these files are not as clang-format has them; run  make format" >&2
    exit 1
  fi
  echo "format: ${#files[@]} files are as clang-format has them"
else
  "$tool" -i "${files[@]}"
  echo "format: ${#files[@]} files"
fi
