"""A prefill and a decode engine out of SGLang's own queues and scheduler mixins. What is stood in for: tensors (numpy), the
model's forward pass (a pattern a page), the allocator (a free list that hands freed pages out again at once)."""

from __future__ import annotations

import contextlib
import types
import typing

import numpy as np
import sglang_stubs

sglang_stubs.install()

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.disaggregation import decode, prefill, utils  # noqa: E402
from sglang.srt.disaggregation.utils import ReqToMetadataIdxAllocator  # noqa: E402

import kvferry.sglang  # noqa: E402

kvferry.sglang.install()

KVPoll = utils.KVPoll if hasattr(utils, "KVPoll") else decode.KVPoll
utils.dist.get_world_size = lambda group: 1  # a rank alone agrees with itself
nothing = sglang_stubs._make("nothing")


class Tensor(np.ndarray):
    """As much of a tensor as the queues use."""

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self)


def tensor(shape, dtype) -> Tensor:
    return np.zeros(shape, dtype).view(Tensor)


class Loose(types.SimpleNamespace):
    """An object whose other attributes are there, false, and do nothing."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return nothing


def context(mode: str, bootstrap_port: int, http_port: int = 30000, **parallel: typing.Any) -> None:
    """What SGLang's modules read of the process's configuration from here on. A rank reads it when it is built."""
    sizes = dict(
        tp_size=1, tp_rank=0, attn_tp_size=1, attn_tp_rank=0, attn_cp_size=1, attn_cp_rank=0, attn_dcp_size=1,
        attn_dcp_rank=0, attn_dp_size=1, attn_dp_rank=0, dp_size=1, dp_rank=0, num_dp_ranks=1, pp_size=1, pp_rank=0,
        nnodes=1, dist_init_addr=None, load_balance_method="follow_bootstrap_room", enable_dsa_cache_layer_split=False,
        enable_kv_cache_sharding=False, enable_cp_tp_group_sharing=False, attn_tp_group=Loose(cpu_group=None),
        enable_linear_attn_tp=False, world_group=nothing, pp_group=nothing)
    sizes.update(parallel)
    runtime_context._PARALLEL = Loose(**sizes)
    bags = {
        "disagg": Loose(disaggregation_bootstrap_port=bootstrap_port, disaggregation_mode=mode,
                        disaggregation_transfer_backend="kvferry", disaggregation_ib_device=None,
                        disaggregation_decode_host_receive_threshold=1, disaggregation_decode_allocation_policy="early",
                        disaggregation_decode_enable_radix_cache=False, optimistic_prefill_attempts=0,
                        disaggregation_enable_kv_checksum=False),
        "serving": Loose(host="127.0.0.1", port=http_port),
        "device": Loose(gpu_id=0, device="cpu"),
        "schedule": Loose(chunked_prefill_size=8192, max_prefill_tokens=8192),
    }
    runtime_context._CONTEXT = Loose(config_bag=lambda name: bags.get(name, Loose()), server_args=nothing)


class Model:
    """The sizes that the queues ask a model for."""

    hf_text_config = nothing

    def __init__(self, layers: int, heads: int) -> None:
        self.num_hidden_layers, self.heads, self.head_dim = layers, heads, 8

    def get_total_num_kv_heads(self) -> int:
        return self.heads


class Pool:
    """A paged KV cache of K and V buffers, and a free list. Freed pages go out again first."""

    def __init__(self, model: Model, pages: int, page_size: int, tp: int) -> None:
        self.page_size, self.head_num = page_size, model.heads // tp
        self.start_layer, self.end_layer = 0, model.num_hidden_layers
        self.page_bytes = page_size * self.head_num * model.head_dim * 2
        self.buffers = np.zeros((2 * model.num_hidden_layers, pages, self.page_bytes), np.uint8)
        self.free = list(range(pages))[::-1]

    def get_contiguous_buf_infos(self):
        return ([b.ctypes.data for b in self.buffers], [b.nbytes for b in self.buffers],
                [self.page_bytes for _ in self.buffers])

    def pattern(self, page: int, seed: int) -> None:
        rows = np.arange(len(self.buffers), dtype=np.int64)[:, None] * 131 + np.arange(self.page_bytes)[None, :] * 7
        self.buffers[:, page] = (rows + seed * 29) % 251


class Allocator(Loose):
    def get_kvcache(self):
        return self.pool

    def translate_kv_indices_for_transfer(self, indices):
        return indices

    def prealloc_fits(self, cache, full_tokens, swa_tokens, full_budget_tokens, **kwargs):
        return full_tokens <= full_budget_tokens

    def prealloc_fits_assumes_reclaim(self):
        return False


class Metadata:
    """MetadataBuffers: first the output token, then the room."""

    def __init__(self, slots: int) -> None:
        self.output_ids = tensor((slots, 16), np.int32)
        self.bootstrap_room = tensor((slots, 8), np.int64)
        self.zeros = tensor(16, np.int64)

    def get_buf_infos(self):
        tables = (self.output_ids, self.bootstrap_room)
        return ([t.ctypes.data for t in tables], [t.nbytes for t in tables], [t[0].nbytes for t in tables])

    def set_buf(self, req):
        self.output_ids[req.metadata_buffer_index, 0] = req.bootstrap_room % 1000
        self.bootstrap_room[req.metadata_buffer_index, 0] = req.bootstrap_room

    def get_buf(self, slot):
        return (self.output_ids[slot], *[self.zeros] * 12, self.bootstrap_room[slot])

    def clear_slot(self, slot):
        self.bootstrap_room[slot] = 0


def request(room: int, tokens: int, port: int) -> Loose:
    return Loose(
        rid=f"r{room}", bootstrap_room=room, bootstrap_host="127.0.0.1", bootstrap_port=port,
        origin_input_ids=list(range(tokens)), output_ids=[], extend_end=tokens, start_send_idx=0, metadata_buffer_index=-1,
        disagg_prefill_dp_rank=None, finished_reason=None, to_finish=None, is_retracted=False, priority=0,
        sampling_params=Loose(max_new_tokens=1), pending_bootstrap=False, seqlen=tokens, disagg_decode_prefix_len=0,
        kv=Loose(req_pool_idx=None, holds_kv=False, holds_mamba=False, retraction_backup=None), prefill_attempt_count=0,
        return_logprob=False, lock=None, pages=None)


class Engine:
    def __init__(self, role: str, port: int, *, layers=2, heads=4, pages=64, page_size=4, slots=32, tp=1, tp_rank=0,
                 **parallel: typing.Any) -> None:
        context(role, port, 30000 if role == "prefill" else 30001, attn_tp_size=tp, attn_tp_rank=tp_rank, tp_size=tp,
                tp_rank=tp_rank, **parallel)
        self.port, self.page_size = port, page_size
        self.model = Model(layers, heads)
        runtime_context.process_model_config = lambda: self.model
        self.pool = Pool(self.model, pages, page_size, tp)
        self.metadata = Metadata(slots)
        self.slots = ReqToMetadataIdxAllocator(slots)
        self.rows = types.SimpleNamespace(req_to_token=tensor((slots, 8192), np.int32), free=list(range(slots)))
        self.rows.available_size = lambda: len(self.rows.free)
        self.allocator = Allocator(pool=self.pool, page_size=page_size)
        self.finished: list[Loose] = []
        self.events: list[str] = []
        self.freed: typing.Callable[[Loose, list[int]], None] = lambda req, pages: None

    def fits(self, req: Loose) -> bool:
        return len(self.pool.free) * self.page_size >= len(req.origin_input_ids)

    def allocate(self, req: Loose) -> None:
        count = -(-len(req.origin_input_ids) // self.page_size)
        req.pages = [self.pool.free.pop() for _ in range(count)]
        req.kv.req_pool_idx = self.rows.free.pop()
        req.kv.holds_kv = True
        tokens = [p * self.page_size + i for p in req.pages for i in range(self.page_size)]
        self.rows.req_to_token[req.kv.req_pool_idx, : len(tokens)] = tokens

    def release(self, req: Loose, *args: typing.Any, **kwargs: typing.Any) -> None:
        """release_kv_cache: from here on the pages are somebody else's."""
        if req.pages is not None:
            pages, req.pages = req.pages, None
            self.rows.free.append(req.kv.req_pool_idx)
            req.kv.holds_kv = False
            self.pool.free.extend(pages)
            self.events.append(f"free {req.bootstrap_room}")
            self.freed(req, pages)


class PrefillEngine(Engine):
    def __init__(self, port: int, chunk_pages: int = 2, **sizes: typing.Any) -> None:
        super().__init__("prefill", port, **sizes)
        self.chunk_tokens = chunk_pages * self.page_size
        outer = self

        class Scheduler(prefill.SchedulerDisaggregationPrefillMixin, Loose):
            _release_aborted_request = lambda self, req: None

        self.scheduler = Scheduler(
            tp_worker=Loose(model_runner=Loose(effective_logical_max_total_num_tokens=1 << 20, kv_cache_dtype_str="bfloat16")),
            kv_shard_widening=1, token_to_kv_pool_allocator=self.allocator, model_config=self.model, rust_server=None,
            req_to_token_pool=self.rows, disagg_metadata_buffers=self.metadata, server_args=nothing,
            req_to_metadata_buffer_idx_allocator=self.slots, disagg_prefill_inflight_queue=[], waiting_queue=[],
            disagg_prefill_pending_chunk_rids=set(), kv_checksum_computer=None, enable_staging=False,
            output_streamer=Loose(stream_output=lambda reqs, *a: outer.finished.extend(reqs)))
        self.queue = prefill.PrefillBootstrapQueue(
            self.pool, None, self.slots, self.metadata, 0, port, 1 << 20, self.scheduler, nothing,
            utils.TransferBackend("kvferry"))
        self.scheduler.disagg_prefill_bootstrap_queue = self.queue
        self.manager = self.queue.kv_manager
        self.waiting: list[Loose] = []

    def add(self, req: Loose) -> None:
        self.queue.add(req, 1)

    def step(self) -> None:
        """One turn of its event loop."""
        with self.releasing():
            self.waiting.extend(self.queue.pop_bootstrapped())
            while self.waiting and self.fits(self.waiting[0]):
                self.compute(self.waiting.pop(0))
            self.scheduler.process_disagg_prefill_inflight_queue()

    def compute(self, req: Loose) -> None:
        chunk_tokens = self.chunk_tokens
        self.allocate(req)
        self.events.append(f"send {req.bootstrap_room}")
        tokens = len(req.origin_input_ids)
        for end in [*range(chunk_tokens, tokens, chunk_tokens), tokens]:
            for number in range(max(end - chunk_tokens, 0) // self.page_size, -(-end // self.page_size)):
                self.pool.pattern(req.pages[number], req.bootstrap_room * 1009 + number)
            last = end == tokens
            if last:
                self.scheduler.disagg_prefill_inflight_queue.append(req)
            self.scheduler.send_kv_chunk(req, last_chunk=last, end_idx=end)

    @contextlib.contextmanager
    def releasing(self) -> typing.Iterator[None]:
        before, prefill.release_kv_cache = prefill.release_kv_cache, self.release
        try:
            yield
        finally:
            prefill.release_kv_cache = before


class DecodeEngine(Engine):
    def __init__(self, port: int, **sizes: typing.Any) -> None:
        super().__init__("decode", port, **sizes)
        outer = self

        # What it asks of an allocator and of a radix cache.
        class Prealloc(decode.DecodePreallocQueue):
            _allocatable_token_budgets = lambda self, *a, **k: len(outer.pool.free) * outer.page_size
            _hicache_pending_restore_tokens = lambda self: 0
            _required_alloc_tokens = lambda self, fill_len, prefix_len: -(-fill_len // outer.page_size) * outer.page_size
            _pre_alloc = lambda self, req, *a: outer.allocate(req)

        self.scheduler = Loose(
            tp_worker=Loose(model_runner=Loose(kv_cache_dtype_str="bfloat16"), is_hybrid_swa=False), model_config=self.model,
            kv_checksum_computer=None, running_batch=Loose(reqs=[]), waiting_queue=[], spec_algorithm=Loose(is_none=lambda: True),
            enable_hisparse=False, enable_lora=False, enable_decode_hicache=False, server_args=nothing,
            output_streamer=Loose(stream_output=lambda reqs, *a: outer.finished.extend(reqs)))
        self.transfers = decode.DecodeTransferQueue(self.slots, self.metadata, self.scheduler, Loose())
        self.queue = Prealloc(
            self.rows, self.allocator, None, self.slots, self.metadata, self.scheduler, self.transfers, Loose(), 0, port,
            1 << 20, 0, utils.TransferBackend("kvferry"))
        self.scheduler.disagg_decode_prealloc_queue = self.queue
        self.manager = self.queue.kv_manager
        self.done: list[Loose] = []

    def add(self, req: Loose) -> None:
        self.queue.add(req)

    def step(self) -> None:
        """One turn of its event loop."""
        before = decode.release_kv_cache, decode.ensure_mamba_capacity
        decode.release_kv_cache, decode.ensure_mamba_capacity = self.release, lambda *a: True
        try:
            allocated, _ = self.queue.pop_preallocated()
            self.events.extend(f"grant {each.req.bootstrap_room}" for each in allocated)
            self.transfers.extend(allocated)
            self.done.extend(self.transfers.pop_transferred())
        finally:
            decode.release_kv_cache, decode.ensure_mamba_capacity = before

    def abort(self, room: int) -> None:
        """As the scheduler's abort_request does."""
        for decode_req in [*self.queue.queue, *self.transfers.queue]:
            if decode_req.req.bootstrap_room == room:
                decode_req.kv_receiver.abort()

    def is_right(self, req: Loose) -> bool:
        expected = Pool(self.model, 1, self.page_size, self.model.heads // self.pool.head_num)
        for number, page in enumerate(req.pages):
            expected.pattern(0, req.bootstrap_room * 1009 + number)
            if not np.array_equal(expected.buffers[:, 0], self.pool.buffers[:, page]):
                return False
        return req.output_ids == [req.bootstrap_room % 1000]
