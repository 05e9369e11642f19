"""kvferry.mooncake: its surface, and SGLang's own Mooncake manager, sender and receiver on it, in two processes."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from kvferry.mooncake import SLOT_BYTES, TransferEngine, install

RANK = pathlib.Path(__file__).resolve().parents[3] / "bench/peers/sglang_rank.py"


@pytest.fixture
def engines():
    made = [TransferEngine() for _ in range(2)]
    assert [each.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") for each in made] == [0, 0]
    yield made
    for each in made:
        each.close()


def session(engine) -> str:
    return f"127.0.0.1:{engine.get_rpc_port()}"


def memory(size: int, seed: int | None = None) -> np.ndarray:
    return np.zeros(size, np.uint8) if seed is None else np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def test_bytes_arrive_where_they_were_sent(engines):
    writer, target = engines
    source, into = memory(10_000, 1), memory(10_000)
    assert target.register_memory(into.ctypes.data, into.nbytes) == 0
    assert writer.transfer_sync_write(session(target), source.ctypes.data + 5, into.ctypes.data + 17, 3_001) == 0
    assert np.array_equal(into[17:3_018], source[5:3_006])
    assert not into[:17].any() and not into[3_018:].any()


def test_batches_of_pieces_larger_than_the_staging_memory(engines, monkeypatch):
    writer, target = engines
    source = memory(20 * SLOT_BYTES + 77, 2)
    into = [memory(12 * SLOT_BYTES), memory(12 * SLOT_BYTES)]
    assert target.batch_register_memory([each.ctypes.data for each in into], [each.nbytes for each in into]) == 0
    cuts = [0, 1, 100, SLOT_BYTES - 3, 9 * SLOT_BYTES + 5, 9 * SLOT_BYTES + 5, source.nbytes]
    pieces = list(zip(cuts, cuts[1:]))
    targets, places, filled = [], [], [0, 0]
    for number, (begin, end) in enumerate(pieces):
        which = 0 if number < 4 else 1
        targets.append(into[which].ctypes.data + filled[which])
        places.append((which, filled[which]))
        filled[which] += end - begin
    assert (
        writer.batch_transfer_sync_write(
            session(target), [source.ctypes.data + begin for begin, _ in pieces], targets, [e - b for b, e in pieces]
        )
        == 0
    )
    for (begin, end), (which, at) in zip(pieces, places):
        assert np.array_equal(into[which][at : at + end - begin], source[begin:end])


def test_only_registered_memory_is_written(engines):
    writer, target = engines
    source, into = memory(4_096, 3), memory(8_192)
    target.register_memory(into.ctypes.data, 4_096)
    for address, length in ((into.ctypes.data + 1, 4_096), (into.ctypes.data - 1, 10), (into.ctypes.data + 4_096, 1)):
        assert writer.transfer_sync_write(session(target), source.ctypes.data, address, length) == -1
    both = [into.ctypes.data, into.ctypes.data + 4_096]
    assert writer.batch_transfer_sync_write(session(target), [source.ctypes.data] * 2, both, [10, 10]) == -1
    assert target.unregister_memory(into.ctypes.data) == 0 and target.unregister_memory(into.ctypes.data) == -1
    assert writer.transfer_sync_write(session(target), source.ctypes.data, into.ctypes.data, 10) == -1
    assert not into.any()
    target.register_memory(into.ctypes.data, 4_096)
    assert writer.transfer_sync_write(session(target), source.ctypes.data, into.ctypes.data, 10) == 0


def test_asynchronous_forms(engines):
    writer, target = engines
    source, into = memory(4_096, 4), memory(4_096)
    target.register_memory(into.ctypes.data, into.nbytes)
    batch = writer.transfer_submit_write(session(target), source.ctypes.data, into.ctypes.data, 100)
    deadline = time.monotonic() + 20
    while (state := writer.transfer_check_status(batch)) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert state == 1 and np.array_equal(into[:100], source[:100])
    batches = [
        writer.batch_transfer_async_write(session(target), [source.ctypes.data + i], [into.ctypes.data + i], [64])
        for i in range(0, 4_096, 64)
    ]
    assert 0 not in batches and len(set(batches)) == 64
    assert writer.get_batch_transfer_status(batches) == 0
    assert np.array_equal(into, source)
    bad = writer.batch_transfer_async_write(session(target), [source.ctypes.data], [1], [64])
    assert writer.get_batch_transfer_status([bad]) == -1
    assert writer.transfer_check_status(12345) == -1


def test_a_target_that_is_gone_is_a_failure_and_no_hang(engines):
    writer, target = engines
    source, into = memory(4_096, 5), memory(4_096)
    target.register_memory(into.ctypes.data, into.nbytes)
    assert writer.send_probe(session(target)) == 0
    assert writer.transfer_sync_write(session(target), source.ctypes.data, into.ctypes.data, 10) == 0
    target.close()
    assert writer.transfer_sync_write(session(target), source.ctypes.data, into.ctypes.data, 10) == -1
    assert writer.send_probe(session(target)) == -1


def test_it_is_there_only_where_it_was_asked_for():
    code = (
        "import kvferry, importlib.util as u; assert u.find_spec('mooncake') is None; import kvferry.mooncake as m;"
        "assert u.find_spec('mooncake') is None; m.install();"
        "from mooncake.engine import TransferEngine; assert TransferEngine is m.TransferEngine"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert install.__doc__


class Rank:
    def __init__(self, role: str, backend: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(RANK), role, backend, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = self.read()["port"]

    def tell(self, *words) -> None:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def read(self) -> dict:
        line = self.process.stdout.readline()
        assert line, "a rank has ended"
        return json.loads(line)

    def kill(self) -> float:
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at


@pytest.fixture
def ranks():
    made = []

    def pair(backend):
        prefill = Rank("prefill", backend)
        made.append(prefill)
        made.append(Rank("decode", backend, prefill.port))
        return made[-2:]

    pair.more = lambda *args: made.append(Rank(*args)) or made[-1]
    yield pair
    for rank in made:
        rank.kill()


needs_sglang = pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed")


def both(pair, *command) -> list[dict]:
    for rank in pair:
        rank.tell(*command)
    return [rank.read() for rank in pair]


@needs_sglang
@pytest.mark.parametrize("backend", ["mooncake+kvferry", "kvferry"])
def test_sglangs_own_mooncake_hands_over_on_our_engine(ranks, backend):
    """Real ZeroMQ and HTTP between two processes; decode looks at every byte of every page."""
    done = both(ranks(backend), "run", 1, 100, 16)
    assert [side["failed"] for side in done] == [0, 0]


@needs_sglang
@pytest.mark.parametrize("backend", ["mooncake+kvferry", "kvferry"])
def test_prefill_goes_on_when_its_decode_is_killed(ranks, backend):
    """SGLang's own control plane notices when it next writes to the dead; ours when the process is gone."""
    prefill, decode = pair = ranks(backend)
    both(pair, "run", 1, 10, 4)
    assert [side["held"] for side in both(pair, "hold", 100, 5, 60, "send")] == [5, 5]
    at = decode.kill()
    prefill.tell("go")
    seen = prefill.read()
    assert seen["failed"] == 5
    print(f"{backend}: rooms to a killed decode failed {seen['last'] - at:.3f} s after its death")
    other = ranks.more("decode", backend, prefill.port)
    assert [side["failed"] for side in both([prefill, other], "run", 1_000, 20, 4)] == [0, 0]


@needs_sglang
@pytest.mark.parametrize("backend", ["mooncake+kvferry", "kvferry"])
def test_decodes_rooms_fail_when_prefill_is_killed(ranks, backend, monkeypatch):
    monkeypatch.setenv("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", "2")  # the least that SGLang takes
    monkeypatch.setenv("SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", "1")
    prefill, decode = pair = ranks(backend)
    both(pair, "run", 1, 10, 4)
    both(pair, "hold", 100, 5, 60)
    at = prefill.kill()
    seen = decode.read()
    assert seen["failed"] == 5
    print(f"{backend}: rooms of a killed prefill failed {seen['last'] - at:.3f} s after its death")
