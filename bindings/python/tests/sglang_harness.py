"""A prefill and a decode engine out of SGLang's own queues and scheduler mixins. What is stood in for: tensors (numpy),
the model's forward pass (a pattern a page), the allocator (a free list that hands freed pages out again at once)."""

from __future__ import annotations

import contextlib
import types
import typing

import numpy as np
import stand_ins

stand_ins.install()

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.disaggregation import decode, prefill, utils  # noqa: E402
from sglang.srt.disaggregation.utils import ReqToMetadataIdxAllocator  # noqa: E402

import kvferry.sglang  # noqa: E402

kvferry.sglang.install()

from sglang_parts import (  # noqa: E402
    Allocator,
    KVPoll,
    Loose,
    Metadata,
    Model,
    Pool,
    context,
    nothing,
    request,
    tensor,
)

__all__ = [
    "DecodeEngine",
    "KVPoll",
    "Model",
    "Pool",
    "PrefillEngine",
    "context",
    "nothing",
    "request",
    "runtime_context",
    "utils",
]


class Engine:
    def __init__(
        self,
        role: str,
        port: int,
        *,
        layers=2,
        heads=4,
        pages=64,
        page_size=4,
        slots=32,
        tp=1,
        tp_rank=0,
        **parallel: typing.Any,
    ) -> None:
        context(
            role,
            port,
            30000 if role == "prefill" else 30001,
            attn_tp_size=tp,
            attn_tp_rank=tp_rank,
            tp_size=tp,
            tp_rank=tp_rank,
            **parallel,
        )
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
            tp_worker=Loose(
                model_runner=Loose(effective_logical_max_total_num_tokens=1 << 20, kv_cache_dtype_str="bfloat16")
            ),
            kv_shard_widening=1,
            token_to_kv_pool_allocator=self.allocator,
            model_config=self.model,
            rust_server=None,
            req_to_token_pool=self.rows,
            disagg_metadata_buffers=self.metadata,
            server_args=nothing,
            req_to_metadata_buffer_idx_allocator=self.slots,
            disagg_prefill_inflight_queue=[],
            waiting_queue=[],
            disagg_prefill_pending_chunk_rids=set(),
            kv_checksum_computer=None,
            enable_staging=False,
            output_streamer=Loose(stream_output=lambda reqs, *a: outer.finished.extend(reqs)),
        )
        self.queue = prefill.PrefillBootstrapQueue(
            self.pool,
            None,
            self.slots,
            self.metadata,
            0,
            port,
            1 << 20,
            self.scheduler,
            nothing,
            utils.TransferBackend("kvferry"),
        )
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
            _required_alloc_tokens = lambda self, fill_len, prefix_len: (
                -(-fill_len // outer.page_size) * outer.page_size
            )
            _pre_alloc = lambda self, req, *a: outer.allocate(req)

        self.scheduler = Loose(
            tp_worker=Loose(model_runner=Loose(kv_cache_dtype_str="bfloat16"), is_hybrid_swa=False),
            model_config=self.model,
            kv_checksum_computer=None,
            running_batch=Loose(reqs=[]),
            waiting_queue=[],
            spec_algorithm=Loose(is_none=lambda: True),
            enable_hisparse=False,
            enable_lora=False,
            enable_decode_hicache=False,
            server_args=nothing,
            output_streamer=Loose(stream_output=lambda reqs, *a: outer.finished.extend(reqs)),
        )
        self.transfers = decode.DecodeTransferQueue(self.slots, self.metadata, self.scheduler, Loose())
        self.queue = Prealloc(
            self.rows,
            self.allocator,
            None,
            self.slots,
            self.metadata,
            self.scheduler,
            self.transfers,
            Loose(),
            0,
            port,
            1 << 20,
            0,
            utils.TransferBackend("kvferry"),
        )
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
