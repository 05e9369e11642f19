#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy: few checks, all required) over the files of a build.

    scripts/lint.py BUILD_DIR [PATH_PART...]

Every file of src, tools, sim and bench that BUILD_DIR compiles is checked, or those whose path contains one of the
parts. As many clang-tidy processes as JOBS says (else one a core) run side by side. Exit 1 on any finding.
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tools", "sim", "bench", "examples")


def files_of(build, parts):
    commands = json.loads((build / "compile_commands.json").read_text())
    files = set()
    for command in commands:
        path = pathlib.Path(command["directory"], command["file"]).resolve()
        if ROOT in path.parents and path.relative_to(ROOT).parts[0] in FOLDERS:
            files.add(path)
    if parts:
        files = {file for file in files if any(part in str(file.relative_to(ROOT)) for part in parts)}
    # The largest first, so that no process is left alone with a long one at the end.
    return sorted(files, key=lambda file: -file.stat().st_size)


def check(tool, build, file):
    started = time.monotonic()
    # Warnings of the compiler are the build's to judge, and clang does not know all of g++'s switches.
    done = subprocess.run([tool, "-p", str(build), "--quiet", "--extra-arg=-Wno-everything", str(file)],
                          capture_output=True, text=True)
    # A clean file's only words are the count of what was suppressed in system headers.
    words = done.stdout.strip()
    if done.returncode != 0 and not words:
        words = done.stderr.strip()
    return file, done.returncode == 0, words, time.monotonic() - started


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        sys.exit("lint: no clang-tidy; run  make deps")
    if not (build / "compile_commands.json").exists():
        sys.exit(f"lint: {build}/compile_commands.json is not there; run  make build")
    files = files_of(build, sys.argv[2:])
    if not files:
        sys.exit("lint: no file to check")
    jobs = int(os.environ.get("JOBS") or os.cpu_count() or 1)
    bad = 0
    slowest = (0.0, "")
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for file, clean, words, seconds in pool.map(lambda file: check(tool, build, file), files):
            name = str(file.relative_to(ROOT))
            slowest = max(slowest, (seconds, name))
            if not clean:
                bad += 1
                print(f"--- {name}\n{words}", flush=True)
    print(f"lint: {len(files)} files, {bad} with findings, {time.monotonic() - started:.0f} s "
          f"(slowest {slowest[1]}, {slowest[0]:.0f} s)")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
