"""Compiles every header alone: none may live by what happened to be included before it.

    headers.py ROOT public|internal COMPILER [FLAG...]

Public headers see include/ only and must be free of warnings under -Wpedantic; internal ones see src/ and what the build
generated (FLAG: the include paths of that and of the libraries).
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys


def main():
    root, kind, compiler, flags = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    folder = root / ("include" if kind == "public" else "src")
    headers = sorted(folder.rglob("*.h"))
    if not headers:
        sys.exit(f"no header under {folder}")
    paths = [f"-I{root / 'include'}"] + ([] if kind == "public" else [f"-I{root / 'src'}"])

    def check(header):
        command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror",
                   *paths, *flags, "-include", str(header), "-x", "c++", os.devnull]
        return header, subprocess.run(command, capture_output=True, text=True)

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, done in pool.map(check, headers):
            if done.returncode != 0:
                bad += 1
                print(f"{header.relative_to(root)} does not compile alone with {compiler}:\n{done.stderr}")
    print(f"{len(headers)} {kind} headers, {bad} do not compile alone")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
