"""One rank of sglang_control_plane.py: SGLang's manager, senders and receivers, of Mooncake or of kvferry, without the
queues around them. Reads commands from stdin, one a line; answers each with one line of JSON.

    run FIRST COUNT WINDOW    hands rooms over, WINDOW of them open at once
    hold FIRST COUNT LIMIT [send]    brings rooms to where prefill would compute, and with `send` sends them once a line
                              comes; then watches them until all have failed

BACKEND is kvferry, mooncake (whose engine is stood in for), or mooncake+kvferry (with kvferry.mooncake as its engine).
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import pathlib
import socket
import sys
import threading
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python/tests"))

import numpy as np  # noqa: E402
import sglang_harness as harness  # noqa: E402

KVPoll = harness.KVPoll
LAYERS, PAGES, PAGE_BYTES, PAGES_A_ROOM = 2, 4096, 1024, 4
IDLE_S = 0.0002  # a turn of the loop in which nothing changed is followed by so much sleep


class CopyEngine:
    """SGLang's MooncakeTransferEngine, but that it writes into the other process of this host by process_vm_writev."""

    class _Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def get_session_id(self) -> str:
        return f"127.0.0.1:{os.getpid()}"  # SGLang shards by the number behind the colon

    def batch_register(self, pointers, lengths) -> int:
        return 0

    def batch_deregister(self, pointers) -> int:
        return 0

    def batch_transfer_sync(self, session: str, sources, targets, lengths) -> int:
        pid = int(session.rpartition(":")[2])
        for begin in range(0, len(sources), 1024):
            end = min(begin + 1024, len(sources))
            parts = [
                (self._Part * (end - begin))(*zip(pointers[begin:end], lengths[begin:end]))
                for pointers in (sources, targets)
            ]
            done = self._libc.process_vm_writev(pid, parts[0], end - begin, parts[1], end - begin, 0)
            if done != sum(lengths[begin:end]):
                return -1
        return 0

    def transfer_sync(self, session: str, source: int, target: int, length: int) -> int:
        return self.batch_transfer_sync(session, [source], [target], [length])


def mooncake_on_kvferry():
    """SGLang's own wrapper around `mooncake.engine`, which is kvferry's here."""
    import kvferry.mooncake

    kvferry.mooncake.install()
    from sglang.srt.distributed.device_communicators.mooncake_transfer_engine import init_mooncake_transfer_engine

    os.environ["MC_FORCE_TCP"] = "1"  # no RDMA devices are looked for
    return init_mooncake_transfer_engine("127.0.0.1", 0, None)


def classes_of(backend: str) -> types.SimpleNamespace:
    kinds, look_up = harness.utils.KVClassType, harness.utils.get_kv_class
    if backend.startswith("mooncake"):
        from sglang.srt.disaggregation.mooncake import conn

        conn.get_mooncake_transfer_engine = CopyEngine if backend == "mooncake" else mooncake_on_kvferry
    chosen = harness.utils.TransferBackend(backend.partition("+")[0])
    return types.SimpleNamespace(**{kind.value: look_up(chosen, kind) for kind in kinds})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    def __init__(self, role: str, backend: str, port: int) -> None:
        self.role, self.classes = role, classes_of(backend)
        harness.context(role, port)
        harness.runtime_context.process_model_config = lambda: harness.Model(LAYERS, 4)
        self.server = None
        if role == "prefill":
            self.server = self.classes.bootstrap_server("127.0.0.1", port)
            self._await_server(port)
        self.memory = np.zeros((2 * LAYERS, PAGES, PAGE_BYTES), np.uint8)
        self.aux = np.zeros((PAGES, 64), np.uint8)
        if role == "prefill":
            self.memory[:] = np.arange(PAGES, dtype=np.uint8)[None, :, None]
        mode = harness.utils.DisaggregationMode(role)
        self.manager = self.classes.manager(self._args(), mode, harness.nothing, False)
        self.address = f"127.0.0.1:{port}"

    @staticmethod
    def _await_server(port: int) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.01)
        raise TimeoutError("the bootstrap server does not listen")

    def _args(self):
        args = self.classes.kvargs()
        for name in (
            "state_types",
            "state_data_ptrs",
            "state_data_lens",
            "state_item_lens",
            "state_dim_per_tensor",
            "state_slice_outer_counts",
            "state_layer_ids",
            "state_conv_shard_groups",
            "kv_layer_ids",
        ):
            setattr(args, name, [])
        args.engine_rank = args.pp_rank = args.gpu_id = args.prefill_start_layer = args.system_dp_rank = 0
        args.kv_cache_dtype_str, args.page_size, args.ib_device, args.rust_http_port = "bfloat16", 16, "", None
        args.kv_head_num = args.total_kv_head_num = 4
        args.swa_kv_cache_layout = args.mla_compression_ratios = args.prefill_end_layer = None
        args.is_hybrid_mla_backend = False
        args.kv_data_ptrs = [layer.ctypes.data for layer in self.memory]
        args.kv_data_lens = [layer.nbytes for layer in self.memory]
        args.kv_item_lens = [layer[0].nbytes for layer in self.memory]
        args.aux_data_ptrs, args.aux_data_lens, args.aux_item_lens = [self.aux.ctypes.data], [self.aux.nbytes], [64]
        return args

    def pages(self, room: int) -> np.ndarray:
        first = room * PAGES_A_ROOM % PAGES
        return np.arange(first, first + PAGES_A_ROOM, dtype=np.int32)

    def open(self, room: int):
        """A room as the scheduler first has it. Calls of one turn each, up to where prefill computes."""
        if self.role == "prefill":
            handle = self.classes.sender(self.manager, self.address, room)
        else:
            handle = self.classes.receiver(self.manager, self.address, room)
            while not self.manager.try_ensure_parallel_info(self.address):
                time.sleep(0.01)
            handle.init(0)
        handle.stage = "opened"
        return handle

    def grant(self, handle) -> None:
        room = handle.bootstrap_room
        if self.role == "prefill":
            handle.init(PAGES_A_ROOM, room % PAGES)
        else:
            handle.send_metadata(self.pages(room), room % PAGES, [])
        handle.stage = "granted"

    def send(self, handle) -> None:
        if self.role == "prefill" and handle.stage == "granted":
            handle.send(self.pages(handle.bootstrap_room), [])
            handle.stage = "sent"

    def run(self, first: int, count: int, window: int) -> dict:
        """What an event loop does, turn by turn; every room's pages are looked at once it has succeeded."""
        live, opened, latencies, failed = {}, {}, [], 0
        following = first
        cpu, begin = time.process_time(), time.monotonic()
        while following < first + count or live:
            changed = False
            while len(live) < window and following < first + count:
                opened[following] = time.monotonic()
                live[following] = self.open(following)
                following += 1
                changed = True
            for room, handle in list(live.items()):
                state = handle.poll()
                if state == KVPoll.WaitingForInput and handle.stage == "opened":
                    self.grant(handle)
                    self.send(handle)
                    changed = True
                elif state in (KVPoll.Success, KVPoll.Failed):
                    latencies.append(time.monotonic() - opened[room])
                    failed += state == KVPoll.Failed or not self.is_right(room)
                    handle.clear()
                    del live[room]
                    changed = True
            if not changed:
                time.sleep(IDLE_S)
        return {
            "begin": begin,
            "end": time.monotonic(),
            "cpu_s": time.process_time() - cpu,
            "failed": int(failed),
            "p50_s": float(np.median(latencies)),
        }

    def is_right(self, room: int) -> bool:
        pages = self.pages(room)
        if self.role == "prefill":
            return True
        right = bool((self.memory[:, pages] == pages.astype(np.uint8)[None, :, None]).all())
        self.memory[:, pages] = 0
        return right

    def hold(self, first: int, count: int, limit_s: float, then: str = "") -> dict:
        rooms = [self.open(room) for room in range(first, first + count)]
        while any(handle.stage == "opened" for handle in rooms):
            for handle in rooms:
                if handle.stage == "opened" and handle.poll() == KVPoll.WaitingForInput:
                    self.grant(handle)
            time.sleep(IDLE_S)
        print(json.dumps({"held": len(rooms)}), flush=True)
        if then == "send":
            sys.stdin.readline()
            for handle in rooms:
                self.send(handle)
        failed: dict[int, float] = {}
        deadline = time.monotonic() + limit_s
        while len(failed) < count and time.monotonic() < deadline:
            for handle in rooms:
                if handle.bootstrap_room not in failed and handle.poll() == KVPoll.Failed:
                    failed[handle.bootstrap_room] = time.monotonic()
            time.sleep(IDLE_S)
        return {"failed": len(failed), "last": max(failed.values(), default=None)}


def main(role: str, backend: str, port: str) -> None:
    logging.disable(logging.CRITICAL)
    ctypes.CDLL(None).prctl(
        0x59616D61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0
    )  # may be written into by the other rank
    number = int(port) or free_port()
    rank = Rank(role, backend, number)
    print(json.dumps({"port": number, "threads": threading.active_count()}), flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        answer = (
            rank.run(*map(int, words))
            if command == "run"
            else rank.hold(int(words[0]), int(words[1]), float(words[2]), *words[3:])
        )
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
