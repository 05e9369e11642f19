#!/usr/bin/env bash
# Puts the parts of SGLang and vLLM that the tests run beside each other:  fetch_engines.sh DIR [PYTHON]
# Wheels from PyPI without what they need; prints the environment that the tests look at.
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd)
python=${2:-python3}
fetch() { # PACKAGE==VERSION PATTERN...
  local name=$1
  shift
  [[ -e $dir/$name/.whole ]] && return
  rm -rf "${dir:?}/$name" "$dir/wheels/$name"
  "$python" -m pip download -q --no-deps -d "$dir/wheels/$name" "$name"
  "$python" - "$dir/wheels/$name" "$dir/$name" "$@" <<'PYTHON'
import fnmatch, pathlib, sys, zipfile

wheels, into, *patterns = sys.argv[1:]
(wheel,) = pathlib.Path(wheels).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            archive.extract(name, into)
PYTHON
  rm -rf "$dir/wheels/$name"
  touch "$dir/$name/.whole"
}
fetch sglang==0.5.23 'sglang/*.py'
fetch sglang==0.4.7.post1 'sglang/*.py'
fetch vllm==0.34.0 'vllm/*.py'
echo "export PYTHONPATH=$dir/sglang==0.5.23\${PYTHONPATH:+:\$PYTHONPATH}"
echo "export KVFERRY_TEST_SGLANG_047=$dir/sglang==0.4.7.post1 KVFERRY_TEST_VLLM=$dir/vllm==0.34.0"
