"""Run by test_vllm.py with vLLM 0.34 on the path. Both halves of the connector on both sides, made by vLLM's own factory
on its own base class, and called in the order of its docstrings: what the scheduler's half says goes pickled to the
worker's."""

from __future__ import annotations

import pickle
import time
import types

import numpy as np
import pytest
import stand_ins

stand_ins.install("vllm")

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheBlocks  # noqa: E402

from kvferry import Poll  # noqa: E402
from kvferry.vllm._orders import room_of  # noqa: E402

LAYERS, BLOCKS, BLOCK_SIZE, HEADS, DIM = 2, 32, 4, 2, 8


class Cache:
    """As much of a tensor as the connector asks for."""

    device = types.SimpleNamespace(type="cpu")

    def __init__(self, shape):
        self.array = np.zeros(shape, np.uint16)
        self.shape = shape

    def is_contiguous(self):
        return self.array.flags.c_contiguous

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def data_ptr(self):
        return self.array.ctypes.data


def config(role: str, bootstrap: str, **parallel):
    extra = {"bootstrap": bootstrap}
    transfer = types.SimpleNamespace(
        kv_connector="KvferryConnector",
        kv_connector_module_path="kvferry.vllm",
        kv_connector_extra_config=extra,
        engine_id=role,
        is_kv_producer=role == "prefill",
        is_kv_consumer=role == "decode",
        get_from_extra_config=lambda name, otherwise: extra.get(name, otherwise),
    )
    model = types.SimpleNamespace(
        dtype="torch.bfloat16",
        use_mla=False,
        get_total_num_kv_heads=lambda: HEADS,
        get_head_size=lambda: DIM,
        get_total_num_hidden_layers=lambda: LAYERS,
    )
    sizes = dict(tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, data_parallel_rank=0, rank=0)
    return types.SimpleNamespace(
        kv_transfer_config=transfer,
        model_config=model,
        cache_config=types.SimpleNamespace(block_size=BLOCK_SIZE, cache_dtype="auto"),
        parallel_config=types.SimpleNamespace(**{**sizes, **parallel}),
        scheduler_config=types.SimpleNamespace(disable_hybrid_kv_cache_manager=True),
    )


class Side:
    """The scheduler's half and one worker's."""

    def __init__(self, role: str, bootstrap: str, shape=(2, BLOCKS, BLOCK_SIZE, HEADS, DIM), tp: int = 1) -> None:
        cache_config = types.SimpleNamespace(num_blocks=BLOCKS)
        made = config(role, bootstrap)
        self.scheduler = KVConnectorFactory.create_connector(made, KVConnectorRole.SCHEDULER, cache_config)
        self.workers = []
        for rank in range(tp):
            made = config(
                role,
                self.scheduler.scheduler._server.address if role == "prefill" else "",
                tensor_parallel_size=tp,
                rank=rank,
            )
            self.workers.append(KVConnectorFactory.create_connector(made, KVConnectorRole.WORKER, cache_config))
        self.caches = [[Cache(shape) for _ in range(LAYERS)] for _ in range(tp)]
        for worker, caches in zip(self.workers, self.caches):
            worker.register_kv_caches({f"model.layers.{i}.self_attn.attn": cache for i, cache in enumerate(caches)})
        self.sent: set[str] = set()
        self.received: set[str] = set()
        self.failed: set[int] = set()

    def step(self) -> None:
        orders = self.scheduler.build_connector_meta(None)
        for worker in self.workers:
            worker.bind_connector_metadata(pickle.loads(pickle.dumps(orders)))
            worker.start_load_kv(None)
            worker.wait_for_save()
            results = worker.get_transfer_results(set())
            self.sent |= results.finished_sending
            self.received |= results.finished_recving
            self.failed |= worker.get_block_ids_with_load_errors()
            worker.clear_connector_metadata()
        self.scheduler.update_connector_output(types.SimpleNamespace(finished_recving=results.finished_recving))

    def blocks(self, which: list[int], rank: int = 0) -> np.ndarray:
        axis = 1 if self.caches[rank][0].shape[0] == 2 else 0
        return np.stack([np.take(cache.array, which, axis) for cache in self.caches[rank]])

    def close(self) -> None:
        for each in (*self.workers, self.scheduler):
            each.shutdown()


@pytest.fixture
def sides():
    made = []

    def make(**shapes):
        prefill = Side("prefill", "127.0.0.1:0", **shapes)
        made.append(prefill)
        made.append(Side("decode", "", **shapes))
        for caches in prefill.caches:
            for number, cache in enumerate(caches):
                cache.array[:] = np.random.default_rng(number + 1).integers(0, 1 << 16, cache.shape, np.uint16)
        return made

    yield make
    for side in made:
        side.close()


def until(condition, *sides, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        for side in sides:
            side.step()
        time.sleep(0.001)


def request(name, tokens, **params):
    return types.SimpleNamespace(
        request_id=name,
        num_prompt_tokens=tokens,
        prompt_token_ids=list(range(tokens)),
        kv_transfer_params=params,
        status=types.SimpleNamespace(name="RUNNING"),
    )


def blocks_of(*ids):
    """vLLM's own class, with blocks that only have their numbers."""
    return KVCacheBlocks((tuple(types.SimpleNamespace(block_id=i, block_hash=None, is_null=False) for i in ids),))


def prefill_request(prefill, name, tokens, transfer, blocks):
    asked = request(name, tokens, do_remote_decode=True, transfer_id=transfer)
    assert prefill.scheduler.get_num_new_matched_tokens(asked, 0) == (0, False)
    prefill.scheduler.update_state_after_alloc(asked, blocks_of(*blocks), 0)
    return asked


def complete(prefill, asked, blocks):
    asked.status = types.SimpleNamespace(name="FINISHED_LENGTH_CAPPED")
    return prefill.scheduler.request_finished(asked, list(blocks))


def decode_request(prefill, decode, name, tokens, transfer, blocks, computed=0):
    address = "http://" + prefill.scheduler.scheduler._server.address
    asked = request(
        name,
        tokens,
        do_remote_prefill=True,
        transfer_id=transfer,
        remote_bootstrap_addr=address,
        remote_engine_id="prefill",
    )
    external, asynchronous = decode.scheduler.get_num_new_matched_tokens(asked, computed)
    assert external == tokens - computed and asynchronous == (external > 0)
    decode.scheduler.update_state_after_alloc(asked, blocks_of(*blocks), external)
    assert decode.scheduler.get_num_new_matched_tokens(asked, computed) == (0, False), "asked for once"
    return asked


def rooms_of(prefill):
    return list(prefill.workers[0].worker._loop.rooms["prefill"].values())


@pytest.mark.parametrize("shape", [(2, BLOCKS, BLOCK_SIZE, HEADS, DIM), (BLOCKS, 2, BLOCK_SIZE, HEADS, DIM)])
@pytest.mark.parametrize("first", ["prefill", "decode"])
def test_blocks_arrive_and_both_sides_are_told(sides, shape, first):
    prefill, decode = sides(shape=shape)
    calls = [
        lambda: prefill_request(prefill, "p1", 10, "t-1", [3, 9, 4]),
        lambda: decode_request(prefill, decode, "d1", 10, "t-1", [20, 7, 8]),
    ]
    if first == "decode":
        calls[1]()
        for _ in range(20):
            decode.step()
        asked = calls[0]()
    else:
        asked = calls[0]()
        prefill.step()
        assert not prefill.sent
        calls[1]()
    assert complete(prefill, asked, [3, 9, 4]) == (True, None)
    until(lambda: prefill.sent and decode.received, prefill, decode)
    assert (prefill.sent, decode.received, decode.failed) == ({"p1"}, {"d1"}, set())
    assert np.array_equal(decode.blocks([20, 7, 8]), prefill.blocks([3, 9, 4]))


def test_only_what_decode_lacks_is_sent(sides):
    prefill, decode = sides()
    asked = prefill_request(prefill, "p1", 14, 77, [3, 9, 4, 5])
    decode_request(prefill, decode, "d1", 14, 77, [20, 21, 7, 8], computed=8)
    complete(prefill, asked, [3, 9, 4, 5])
    until(lambda: prefill.sent and decode.received, prefill, decode)
    assert np.array_equal(decode.blocks([7, 8]), prefill.blocks([4, 5]))
    assert not decode.blocks([20, 21]).any()


def test_decode_that_has_everything_or_gives_up_lets_prefill_go(sides):
    prefill, decode = sides()
    asked = prefill_request(prefill, "p1", 8, "full", [3, 9])
    decode_request(prefill, decode, "d1", 8, "full", [20, 21], computed=8)
    complete(prefill, asked, [3, 9])
    until(lambda: prefill.sent == {"p1"}, prefill, decode)
    never = request(
        "d2",
        8,
        do_remote_prefill=True,
        transfer_id="never",
        remote_bootstrap_addr=prefill.scheduler.scheduler._server.address,
    )
    asked = prefill_request(prefill, "p2", 8, "never", [5, 6])
    complete(prefill, asked, [5, 6])
    assert decode.scheduler.request_finished(never, []) == (False, None)
    until(lambda: "p2" in prefill.sent, prefill, decode)
    assert not decode.received and not decode.blocks(list(range(BLOCKS))).any()


def test_a_prefill_that_fails_is_reported_with_its_blocks(sides):
    prefill, decode = sides()
    asked = prefill_request(prefill, "p1", 10, "t", [3, 9, 4])
    decode_request(prefill, decode, "d1", 10, "t", [20, 7, 8])
    until(lambda: decode.workers[0].worker._managers["decode"].stats().sessions_live, prefill, decode)
    asked.status = types.SimpleNamespace(name="FINISHED_ABORTED")
    assert prefill.scheduler.request_finished(asked, [3, 9, 4]) == (False, None)
    until(lambda: decode.received, prefill, decode)
    assert decode.failed == {20, 7, 8} and not prefill.sent
    again = prefill_request(prefill, "p1", 10, "t2", [3, 9, 4])
    decode_request(prefill, decode, "d2", 10, "t2", [20, 7, 8])
    complete(prefill, again, [3, 9, 4])
    until(lambda: "d2" in decode.received, prefill, decode)
    assert np.array_equal(decode.blocks([20, 7, 8]), prefill.blocks([3, 9, 4]))


def test_a_request_that_decode_gives_up_is_reported_once_its_blocks_are_released(sides):
    prefill, decode = sides()
    asked = prefill_request(prefill, "p1", 10, "t", [3, 9, 4])
    given_up = decode_request(prefill, decode, "d1", 10, "t", [20, 7, 8])
    # Prefill has to have met the grant: else it hears nothing, and keeps its blocks for KVFERRY_BOOTSTRAP_TIMEOUT.
    until(lambda: any(each.handle.poll() == Poll.waiting_for_input for each in rooms_of(prefill)), prefill, decode)
    decode.scheduler.request_finished(given_up, [])
    until(lambda: decode.received == {"d1"}, decode)
    decode.caches[0][0].array[:] = 1
    complete(prefill, asked, [3, 9, 4])
    until(lambda: prefill.sent == {"p1"}, prefill, decode)
    assert (decode.caches[0][0].array == 1).all(), "a block was written after it was given back"


def test_a_prefill_that_is_gone_is_a_failed_load(sides):
    prefill, decode = sides()
    decode_request(prefill, decode, "d1", 10, "t", [20, 7, 8])
    until(lambda: decode.workers[0].worker._managers["decode"].stats().sessions_live, decode)
    for worker in prefill.workers:
        worker.unregister_kv_caches()
    until(lambda: decode.received, decode)
    assert decode.failed == {20, 7, 8}
    for worker in prefill.workers:
        worker.restore_kv_caches()


def test_two_prefill_ranks_of_one_engine(sides):
    prefill, decode = sides(tp=2)
    asked = prefill_request(prefill, "p1", 10, "t", [3, 9, 4])
    decode_request(prefill, decode, "d1", 10, "t", [20, 7, 8])
    complete(prefill, asked, [3, 9, 4])
    until(lambda: prefill.sent and decode.received, prefill, decode)
    until(
        lambda: all(np.array_equal(decode.blocks([20, 7, 8], r), prefill.blocks([3, 9, 4], r)) for r in range(2)),
        prefill,
        decode,
    )


def test_memory_that_does_not_fit_is_refused_in_words():
    decode = KVConnectorFactory.create_connector(
        config("decode", ""), KVConnectorRole.WORKER, types.SimpleNamespace(num_blocks=BLOCKS)
    )
    assert isinstance(decode, KVConnectorBase_V1)
    with pytest.raises(NotImplementedError, match="expected"):
        decode.register_kv_caches({"model.layers.0.attn": Cache((5, BLOCK_SIZE, HEADS, DIM))})


def test_rooms_follow_from_transfer_ids():
    assert room_of(77) == room_of("77") == 77
    assert room_of("xfer-a") == room_of("xfer-a") != room_of("xfer-b")
    assert all(0 <= room_of(text) < 1 << 63 for text in ("", "a", str(1 << 70)))
