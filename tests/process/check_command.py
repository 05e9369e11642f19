#!/usr/bin/env python3
"""Runs a command and checks what scripts rely on: exit code 0, and as the last line of stdout one JSON object
{"ok": true, "figures": {...}, "rows": [...]} that has the named figures.

  check_command.py FIGURE[=VALUE],FIGURE... COMMAND [ARGUMENT...]     VALUE is what the figure must be

A list of figures that begins with "?" is of a command that needs more than every machine permits: where it says so (exit
code 3), the test is skipped.
"""
import json
import subprocess
import sys

SKIPPED = 77  # as ctest is told in CMakeLists.txt


def main() -> int:
    may_lack = sys.argv[1].startswith("?")
    wanted = [name.partition("=") for name in sys.argv[1].lstrip("?").split(",")]
    command = sys.argv[2:]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=280)
    lines = run.stdout.strip().splitlines()
    print("\n".join(lines[:-1]))
    if may_lack and run.returncode == 3:
        return SKIPPED
    if run.returncode != 0 or not lines:
        print(lines[-1] if lines else "", f"\n{command}: exit code {run.returncode}")
        return 1
    answer = json.loads(lines[-1])
    faults = []
    if answer.get("ok") is not True or not isinstance(answer.get("rows"), list):
        faults.append(f"the last line is no good answer: {lines[-1]}")
    for name, _, value in wanted:
        figure = answer.get("figures", {}).get(name)
        if not isinstance(figure, (int, float)):
            faults.append(f"no figure {name}")
        elif value and float(value) != figure:
            faults.append(f"{name} is {figure}, expected {value}")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
