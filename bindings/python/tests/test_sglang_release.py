"""SGLang's queues give pages to somebody else as soon as they have seen Failed, or called clear or a sender's abort:
not one byte may be touched for the old request after that."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed", allow_module_level=True)
from sglang_cases import both, engines, pair, until  # noqa: E402, F401
from sglang_harness import KVPoll  # noqa: E402

from kvferry.sglang import KVTransferError  # noqa: E402

BIG = dict(layers=2, heads=64, page_size=256, pages=40, chunk_pages=32)  # 1 MiB a page


STREAMING = (KVPoll.Transferring, KVPoll.Success)  # the whole of it may be there before it is looked at


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setenv("KVFERRY_TRANSPORT", "tcp")


def fill(engine, pages, value):
    for page in pages:
        engine.pool.buffers[:, page] = value


def test_decode_aborts_under_a_stream_and_its_pages_are_reused_at_once(engines, slow):
    prefill, decode = pair(engines, **BIG)
    kept = []

    def reuse(req, pages):
        fill(decode, pages, 0xEE)
        kept.append(list(pages))

    decode.freed = reuse
    for room in range(1, 16):
        source, target = both(engines, prefill, decode, room, 32 * 256)
        receiver = decode.queue.queue[0].kv_receiver
        until(lambda: receiver.poll() in STREAMING, prefill.step, decode.step)
        for _ in range(room % 5 * 40):
            receiver.poll()
        decode.abort(room)
        until(
            lambda: (
                (target.finished_reason or target in decode.done)
                and not prefill.scheduler.disagg_prefill_inflight_queue
            ),
            prefill.step,
            decode.step,
        )
        if target in decode.done:
            assert decode.is_right(target)
            decode.release(target)
        for page in kept[-1]:
            assert (decode.pool.buffers[:, page] == 0xEE).all(), (
                f"room {room}: page {page} was written after its release"
            )
        assert source.pages is None
    assert len(decode.done) < 10, "most of them were to be given up in the middle"
    decode.done.clear()
    decode.freed = lambda req, pages: None
    _, target = both(engines, prefill, decode, 99, 32 * 256)
    until(lambda: decode.done, prefill.step, decode.step)
    assert decode.is_right(target)


def test_prefill_gives_up_under_a_stream_and_its_pages_are_reused_at_once(engines, slow):
    prefill, decode = pair(engines, **BIG)
    prefill.freed = lambda req, pages: fill(prefill, pages, 0xEE)
    ends = {"right": 0, "failed": 0}
    for room in range(1, 16):
        source, target = both(engines, prefill, decode, room, 32 * 256)
        receiver = decode.queue.queue[0].kv_receiver
        until(lambda: receiver.poll() in STREAMING, prefill.step, decode.step)
        for _ in range(room % 5 * 40):
            receiver.poll()
        with prefill.releasing():
            prefill.scheduler.disagg_prefill_inflight_queue.clear()
            prefill.scheduler.release_aborted_prefill_waiting_req(source)  # SGLang's: abort, then free
        until(lambda: not decode.transfers.queue, prefill.step, decode.step)
        if target in decode.done:
            assert decode.is_right(target), f"room {room} succeeded with pages that were not its own any more"
            decode.release(target)
            ends["right"] += 1
        else:
            ends["failed"] += 1
    assert ends["failed"] > 0


def test_a_failure_of_a_sibling_rank_waits_until_the_pages_are_released(engines, slow):
    """SGLang takes the least of all ranks' states: a rank may be told to fail a request that is well here."""
    prefill, decode = pair(engines, **BIG)
    _, target = both(engines, prefill, decode, 5, 32 * 256)
    receiver = decode.queue.queue[0].kv_receiver
    until(lambda: receiver.poll() in STREAMING, prefill.step, decode.step)
    with pytest.raises(KVTransferError) as raised:
        receiver.failure_exception()
    pages = list(target.pages)
    fill(decode, pages, 0xEE)
    assert raised.value.is_from_another_rank
    assert receiver.poll() == KVPoll.Failed
    until(lambda: not prefill.scheduler.disagg_prefill_inflight_queue, prefill.step)
    assert all((decode.pool.buffers[:, page] == 0xEE).all() for page in pages)
