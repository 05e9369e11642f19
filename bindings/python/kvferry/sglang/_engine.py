"""What an SGLang rank says of itself, as kvferry wants to hear it. Two forms: the runtime context of 0.5, and the
server arguments of 0.4.7, where that is not there."""

from __future__ import annotations

import dataclasses
import os
import socket
import typing

from .._types import KvFormat, Parallel, Place, Region, StateComponent

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def host_of(address: str) -> str:
    """Of "host:port", "[v6]:port" or a bare host."""
    if address.startswith("["):
        return address[1 : address.index("]")]
    return address.rpartition(":")[0] if address.count(":") == 1 else address


@dataclasses.dataclass
class Engine:
    """Sizes and place of one rank, and where its instance is reached."""

    parallel: Parallel
    place: Place
    instance: str  #: the same for all ranks of an engine
    bootstrap: str  #: "host:port" of the prefill instance's bootstrap server
    attributes: dict[str, typing.Any]  #: what the other side may want to know
    load_balance_method: str = "follow_bootstrap_room"
    device: str = "cpu"
    kv_heads: int = 0  #: of the whole model; 0 where not known, which does while both sides have one size
    head_dim: int = 0
    staging: bool = False
    cache_split_by_cp: bool = False  #: each context-parallel rank holds a part of the layers or pages


def _instance(dist_init_addr: str | None, port: typing.Any) -> str:
    return f"sglang@{dist_init_addr or f'{socket.gethostname()}:{port}'}"


def engine_of(args: typing.Any, server_args: typing.Any, is_mla: bool) -> Engine:
    try:
        from sglang.srt import runtime_context
    except ImportError:
        return _from_server_args(args, server_args)
    return _from_context(runtime_context, args, is_mla)


def _from_context(context: typing.Any, args: typing.Any, is_mla: bool) -> Engine:
    parallel, serving, disagg = context.get_parallel(), context.get_serving(), context.get_disagg()
    by_system = parallel.dp_size != 1  # as SGLang's own bootstrap server has it
    port = disagg.disaggregation_bootstrap_port
    if parallel.dist_init_addr and parallel.nnodes > 1:
        port = parallel.world_group.broadcast_object(port, src=0)  # hosts may have reserved different ones
    host = host_of(parallel.dist_init_addr) if parallel.dist_init_addr else WILDCARDS.get(serving.host, serving.host)
    engine = Engine(
        parallel=Parallel(
            tp=parallel.attn_tp_size,
            dp=parallel.dp_size if by_system else parallel.attn_dp_size,
            pp=parallel.pp_size,
            cp=parallel.attn_cp_size,
        ),
        place=Place(
            dp=(args.system_dp_rank or 0) if by_system else parallel.attn_dp_rank,
            tp=parallel.attn_tp_rank,
            pp=args.pp_rank,
            cp=parallel.attn_cp_rank,
        ),
        instance=_instance(parallel.dist_init_addr, serving.port),
        bootstrap=join_host_port(host, port),
        attributes={
            "page_size": args.page_size,
            "kv_cache_dtype": args.kv_cache_dtype_str,
            "kv_layout": getattr(args, "kv_layout", None),
            "load_balance_method": parallel.load_balance_method,
            "prefill_http_port": serving.port,
            "decode_allocation_policy": getattr(disagg, "disaggregation_decode_allocation_policy", "early"),
        },
        load_balance_method=parallel.load_balance_method,
        device=context.get_device().device or "cuda",
        staging=_is_set("SGLANG_DISAGG_STAGING_BUFFER"),
        cache_split_by_cp=bool(
            parallel.enable_dsa_cache_layer_split
            or parallel.enable_kv_cache_sharding
            or getattr(args, "is_hybrid_mla_backend", False)
        ),
    )
    if not is_mla:
        model = context.process_model_config()
        engine.kv_heads, engine.head_dim = model.get_total_num_kv_heads(), model.head_dim
    return engine


def _from_server_args(args: typing.Any, server_args: typing.Any) -> Engine:
    dp = server_args.dp_size if getattr(server_args, "enable_dp_attention", False) else 1
    tp = server_args.tp_size // dp
    dist_init_addr = server_args.dist_init_addr
    host = host_of(dist_init_addr) if dist_init_addr else WILDCARDS.get(server_args.host, server_args.host)
    return Engine(
        parallel=Parallel(tp=tp, dp=dp, pp=getattr(args, "prefill_pp_size", None) or 1),
        place=Place(dp=args.engine_rank // tp % dp, tp=args.engine_rank % tp),
        instance=_instance(dist_init_addr, server_args.port),
        bootstrap=join_host_port(host, server_args.disaggregation_bootstrap_port),
        attributes={},
        device=server_args.device or "cuda",
    )


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


def settings_of() -> dict[str, str] | None:
    """Where SGLang was told which address to use, kvferry uses it too. All else it reads itself."""
    if os.environ.get("KVFERRY_HOST"):
        return None
    if not any(os.environ.get(name) for name in ("SGLANG_LOCAL_IP_NIC", "SGLANG_HOST_IP", "HOST_IP")):
        return None
    try:
        from sglang.srt.utils.network import get_local_ip_auto
    except ImportError:
        from sglang.srt.utils import get_local_ip_by_remote as get_local_ip_auto
    return {"host": get_local_ip_auto()}


@dataclasses.dataclass
class Layout:
    """The regions of one rank. Draft layers become a state component with the pages of the request as its items: their
    pages have sizes of their own."""

    kv: list[Region]
    aux: list[Region]
    state: list[StateComponent]
    format: KvFormat
    has_draft: bool
    page_bytes: int  #: of all kv regions together, draft included
    state_bytes: list[int]  #: of one item, a component each, draft not included


def layout_of(args: typing.Any, engine: Engine, is_mla: bool) -> Layout:
    kind = "host" if engine.device == "cpu" else "cuda"

    def regions(pointers, lengths, items) -> list[Region]:
        return [Region(p, length=n, item_bytes=i, kind=kind) for p, n, i in zip(pointers, lengths, items)]

    kv = regions(args.kv_data_ptrs, args.kv_data_lens, args.kv_item_lens)
    draft_regions = getattr(args, "num_draft_entries", 0)
    target, draft = kv[: len(kv) - draft_regions], kv[len(kv) - draft_regions :]
    state, names = [], {}
    state_pointers = getattr(args, "state_data_ptrs", [])
    for number, pointers in enumerate(state_pointers):
        name = str(getattr(args.state_types[number], "value", args.state_types[number]))
        names[name] = names.get(name, 0) + 1
        if pointers:
            state.append(
                StateComponent(
                    regions(pointers, args.state_data_lens[number], args.state_item_lens[number]),
                    name=name if names[name] == 1 else f"{name}.{names[name]}",
                )
            )
    state_bytes = [sum(items) for items in getattr(args, "state_item_lens", [])]
    if draft:
        state.append(StateComponent(draft, name="draft"))
    page_bytes = sum(region.item_bytes for region in kv)
    # Aux tables are host memory on every device.
    aux = [
        Region(p, length=n, item_bytes=i) for p, n, i in zip(args.aux_data_ptrs, args.aux_data_lens, args.aux_item_lens)
    ]
    layers_here = len(target) if is_mla or len(target) % 2 else len(target) // 2
    fmt = KvFormat(
        layers=layers_here,
        kv_heads=engine.kv_heads,
        head_dim=engine.head_dim,
        dtype=getattr(args, "kv_cache_dtype_str", None) or "auto",
        page_tokens=getattr(args, "page_size", None) or 1,
        mla=is_mla,
    )
    return Layout(target, aux, state, fmt, bool(draft), page_bytes, state_bytes)
