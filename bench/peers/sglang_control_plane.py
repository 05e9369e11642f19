"""SGLang's own control plane (Mooncake's manager, sender and receiver from PyPI) and kvferry's, through the same Python
classes, with the same rooms, in one run: rooms a second, latency, CPU a room, and how long a killed peer stays unseen.

    pip install --no-deps sglang==0.5.23; pip install . numpy pyzmq requests aiohttp msgspec prometheus-client
    python bench/peers/sglang_control_plane.py [--rooms 2000] [--window 64] [--json]

Prefill and decode are two processes. Mooncake's engine is replaced by one that writes into the other process with
process_vm_writev: what is compared is everything around the bytes. A room is 4 pages of 1 KiB in each of 4 buffers, and
one record; decode looks at every byte. SGLang's heavy dependencies are stood in for (bindings/python/tests).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time

RANK = pathlib.Path(__file__).resolve().with_name("sglang_rank.py")
BACKENDS = ("mooncake", "kvferry")


class Rank:
    def __init__(self, role: str, backend: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(RANK), role, backend, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.port = self.read()["port"]

    def tell(self, *words) -> None:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a rank has ended; run bench/peers/sglang_rank.py by hand to see why")
        return json.loads(line)

    def kill(self) -> float:
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at


def both(ranks: list[Rank], *command) -> list[dict]:
    for rank in ranks:
        rank.tell(*command)
    return [rank.read() for rank in ranks]


def pair(backend: str) -> list[Rank]:
    prefill = Rank("prefill", backend)
    return [prefill, Rank("decode", backend, prefill.port)]


def rates(backend: str, rooms: int, window: int) -> dict:
    ranks = pair(backend)
    both(ranks, "run", 1, 20, 4)  # links, caches
    alone = both(ranks, "run", 1_000, 200, 1)
    many = both(ranks, "run", 100_000, rooms, window)
    for rank in ranks:
        rank.kill()
    wall = max(side["end"] for side in many) - min(side["begin"] for side in many)
    return {
        "rooms": rooms,
        "window": window,
        "rooms_a_second": rooms / wall,
        "p50_ms": many[1]["p50_s"] * 1e3,
        "cpu_us_a_room": sum(side["cpu_s"] for side in many) / rooms * 1e6,
        "alone_p50_ms": alone[1]["p50_s"] * 1e3,
        "failed": sum(side["failed"] for side in many + alone),
    }


def noticing(backend: str, killed: str, rooms: int, limit_s: float) -> float | None:
    """Seconds from SIGKILL of one side until all rooms of the other have failed; None where they have not by then."""
    ranks = pair(backend)
    both(ranks, "run", 1, 20, 4)
    assert all(side["held"] == rooms for side in both(ranks, "hold", 1_000, rooms, limit_s))
    victim, watcher = ranks if killed == "prefill" else ranks[::-1]
    at = victim.kill()
    seen = watcher.read()
    watcher.kill()
    return seen["last"] - at if seen["failed"] == rooms else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rooms", type=int, default=2_000)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--held", type=int, default=20, help="rooms that wait when a side is killed")
    parser.add_argument("--limit", type=float, default=30, help="seconds after which a death counts as not noticed")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = {backend: rates(backend, args.rooms, args.window) for backend in BACKENDS}
    for backend in BACKENDS:
        for killed in ("prefill", "decode"):
            found[backend][f"{killed}_killed_s"] = noticing(backend, killed, args.held, args.limit)
    ratio = found["kvferry"]["rooms_a_second"] / found["mooncake"]["rooms_a_second"]
    show(found, ratio, args)
    failed = sum(side["failed"] for side in found.values())
    return 0 if failed == 0 else 1


def show(found: dict, ratio: float, args: argparse.Namespace) -> None:
    theirs, ours = (found[backend] for backend in BACKENDS)
    rows = [
        ("rooms a second", "rooms_a_second", "{:.0f}"),
        (f"a room, {args.window} open at once, median", "p50_ms", "{:.2f} ms"),
        ("a lone room, median", "alone_p50_ms", "{:.2f} ms"),
        ("CPU a room, both processes", "cpu_us_a_room", "{:.0f} us"),
        ("rooms failed or wrong", "failed", "{}"),
        (f"prefill killed: decode's {args.held} rooms failed after", "prefill_killed_s", "{:.3f} s"),
        (f"decode killed: prefill's {args.held} rooms failed after", "decode_killed_s", "{:.3f} s"),
    ]
    print(f"{'':48}{'SGLang, Mooncake':>18}{'kvferry':>12}")
    for title, name, form in rows:
        cells = [
            form.format(side[name]) if side[name] is not None else f"> {args.limit:g} s" for side in (theirs, ours)
        ]
        print(f"{title:48}{cells[0]:>18}{cells[1]:>12}")
    print(f"kvferry hands over {ratio:.1f} times the rooms a second")
    if args.json:
        print(json.dumps({**found, "ratio": ratio}))


if __name__ == "__main__":
    raise SystemExit(main())
