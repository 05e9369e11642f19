"""What stands in for an SGLang engine under its queues: configuration, a model's sizes, a paged cache, requests."""

from __future__ import annotations

import types
import typing

import numpy as np
import stand_ins

stand_ins.install()

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.disaggregation import decode, utils  # noqa: E402

KVPoll = utils.KVPoll if hasattr(utils, "KVPoll") else decode.KVPoll
utils.dist.get_world_size = lambda group: 1  # a rank alone agrees with itself
nothing = stand_ins._make("nothing")


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
        tp_size=1,
        tp_rank=0,
        attn_tp_size=1,
        attn_tp_rank=0,
        attn_cp_size=1,
        attn_cp_rank=0,
        attn_dcp_size=1,
        attn_dcp_rank=0,
        attn_dp_size=1,
        attn_dp_rank=0,
        dp_size=1,
        dp_rank=0,
        num_dp_ranks=1,
        pp_size=1,
        pp_rank=0,
        nnodes=1,
        dist_init_addr=None,
        load_balance_method="follow_bootstrap_room",
        enable_dsa_cache_layer_split=False,
        enable_kv_cache_sharding=False,
        enable_cp_tp_group_sharing=False,
        attn_tp_group=Loose(cpu_group=None),
        enable_linear_attn_tp=False,
        world_group=nothing,
        pp_group=nothing,
    )
    sizes.update(parallel)
    runtime_context._PARALLEL = Loose(**sizes)
    bags = {
        "disagg": Loose(
            disaggregation_bootstrap_port=bootstrap_port,
            disaggregation_mode=mode,
            disaggregation_transfer_backend="kvferry",
            disaggregation_ib_device=None,
            disaggregation_decode_host_receive_threshold=1,
            disaggregation_decode_allocation_policy="early",
            disaggregation_decode_enable_radix_cache=False,
            optimistic_prefill_attempts=0,
            disaggregation_enable_kv_checksum=False,
        ),
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
        return (
            [b.ctypes.data for b in self.buffers],
            [b.nbytes for b in self.buffers],
            [self.page_bytes for _ in self.buffers],
        )

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
        rid=f"r{room}",
        bootstrap_room=room,
        bootstrap_host="127.0.0.1",
        bootstrap_port=port,
        origin_input_ids=list(range(tokens)),
        output_ids=[],
        extend_end=tokens,
        start_send_idx=0,
        metadata_buffer_index=-1,
        disagg_prefill_dp_rank=None,
        finished_reason=None,
        to_finish=None,
        is_retracted=False,
        priority=0,
        sampling_params=Loose(max_new_tokens=1),
        pending_bootstrap=False,
        seqlen=tokens,
        disagg_decode_prefix_len=0,
        kv=Loose(req_pool_idx=None, holds_kv=False, holds_mamba=False, retraction_backup=None),
        prefill_attempt_count=0,
        return_logprob=False,
        lock=None,
        pages=None,
    )
