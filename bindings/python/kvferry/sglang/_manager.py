"""SGLang's manager on a kvferry.KvManager: what the schedulers read of it, and the memory behind it."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import threading
import typing
import urllib.request

import numpy as np
from sglang.srt.disaggregation.base.conn import BaseKVManager

from .._kvferry import KvManager
from . import _bootstrap
from ._engine import engine_of, host_of, join_host_port, layout_of, settings_of

logger = logging.getLogger("kvferry.sglang")

# Sizes are asked for beside the scheduler, which is kept this long so that the first request need not wait for its next
# try, a second later.
FIRST_ANSWER_S = 0.05


class KvferryKVManager(BaseKVManager):
    """One a rank. Registration with the bootstrap server goes on in the background, and is renewed."""

    supports_role_switch = True
    supports_host_destination = False
    # A failed room's pages are released before it is seen to have failed: there is nothing to defer.
    supports_deferred_decode_kv_release = False
    enable_deferred_decode_kv_release = False
    enable_staging = False

    def __init__(
        self,
        args: typing.Any,
        disaggregation_mode: typing.Any,
        server_args: typing.Any,
        is_mla_backend: bool | None = False,
        **kwargs: typing.Any,
    ) -> None:
        self.kv_args, self.server_args = args, server_args
        self.disaggregation_mode = disaggregation_mode
        self.is_mla_backend = bool(is_mla_backend)
        self.role = str(getattr(disaggregation_mode, "value", disaggregation_mode))
        self.engine = engine_of(args, server_args, self.is_mla_backend)
        self._refuse_what_is_not_here()
        self.layout = layout_of(args, self.engine, self.is_mla_backend)
        self.page_tokens = self.layout.format.page_tokens
        self.attn_tp_size, self.attn_cp_size = self.engine.parallel.tp, self.engine.parallel.cp
        self.attn_tp_rank, self.attn_cp_rank = self.engine.place.tp, self.engine.place.cp
        self.pp_size, self.pp_rank = self.engine.parallel.pp, self.engine.place.pp
        # Of a context-parallel prefill only rank 0 sends, which then is an instance without that split.
        self.is_dummy_cp_rank = self.role == "prefill" and self.attn_cp_rank != 0
        self.enable_all_cp_ranks_for_transfer = False
        # Looked at by the schedulers.
        self.prefill_info_table: dict[str, _bootstrap.PrefillInfo] = {}
        self.transfer_infos: dict[int, typing.Any] = {}
        self.req_to_decode_prefix_len: dict[int, int] = {}
        self._asking: dict[str, concurrent.futures.Future] = {}
        self._executor: concurrent.futures.ThreadPoolExecutor | None = None
        self._executor_lock = threading.Lock()  # of _executor alone
        self.manager: KvManager | None = None
        if not self.is_dummy_cp_rank:
            self.register_buffer_to_engine()

    def _refuse_what_is_not_here(self) -> None:
        if self.engine.parallel.pp > 1:
            raise NotImplementedError("kvferry's SGLang backend does not do --pp-size above 1 yet; use one stage")
        if self.role == "decode" and self.engine.parallel.cp > 1:
            raise NotImplementedError("decode with attention context parallelism is not supported by SGLang either")
        if self.engine.parallel.cp > 1 and self.engine.cache_split_by_cp:
            raise NotImplementedError(
                "a KV cache that is split over context-parallel ranks is not supported by kvferry"
            )
        if self.engine.staging:
            raise NotImplementedError(
                "unset SGLANG_DISAGG_STAGING_BUFFER: kvferry slices heads itself, without staging"
            )

    # Memory. SGLang calls these two where it gives its memory back for a while (release_memory_occupation).

    def register_buffer_to_engine(self) -> None:
        if self.manager is not None:
            return
        parallel, place = self.engine.parallel, self.engine.place
        self.manager = KvManager(
            self.role,
            self.layout.kv,
            self.layout.format,
            aux=self.layout.aux,
            state=self.layout.state,
            parallel=type(parallel)(tp=parallel.tp, dp=parallel.dp),
            place=type(place)(dp=place.dp, tp=place.tp),
            instance=self.engine.instance,
            bootstrap=self.engine.bootstrap if self.role == "prefill" else "",
            attributes=json.dumps(self.engine.attributes) if self.role == "prefill" else "",
            settings=settings_of(),
        )

    def deregister_buffer_to_engine(self) -> None:
        if self.manager is not None:
            self.manager.close()
            self.manager = None

    def register_to_bootstrap(self) -> None:
        """The manager registers, renews and retries by itself, from the moment it is there."""

    def teardown(self) -> None:
        self.deregister_buffer_to_engine()
        with self._executor_lock:
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._executor = None

    # What rooms ask.

    def states_of(self, indices: typing.Sequence | None) -> list:
        """SGLang's lists, one a component; kvferry has no component where there are no buffers."""
        pointers = getattr(self.kv_args, "state_data_ptrs", [])
        lists: list[typing.Any] = []
        for number in range(len(pointers)):
            if not pointers[number]:
                continue
            given = indices[number] if indices is not None and number < len(indices) else None
            lists.append(np.asarray([] if given is None else given, dtype=np.int32).reshape(-1))
        return lists

    def bytes_of(self, pages: int, states: typing.Sequence | None) -> int:
        total = pages * self.layout.page_bytes
        for given, item_bytes in zip(states or (), self.layout.state_bytes):
            total += (0 if given is None else len(given)) * item_bytes
        return total

    # The other side.

    def _ensure_prefill_recompute_executor(self) -> concurrent.futures.ThreadPoolExecutor:
        with self._executor_lock:
            if self._executor is None:
                self._executor = concurrent.futures.ThreadPoolExecutor(8, thread_name_prefix="kvferry-http")
            return self._executor

    def try_ensure_parallel_info(self, bootstrap_addr: str) -> bool:
        """Whether the sizes of the prefill instance there are known. Asks beside the scheduler where they are not."""
        if bootstrap_addr in self.prefill_info_table:
            return True
        asked = self._asking.get(bootstrap_addr)
        if asked is None:
            asked = self._ensure_prefill_recompute_executor().submit(_bootstrap.prefill_info, bootstrap_addr)
            self._asking[bootstrap_addr] = asked
        try:
            self.prefill_info_table[bootstrap_addr] = asked.result(FIRST_ANSWER_S)
        except concurrent.futures.TimeoutError:
            if not asked.done():
                return False  # the same question is still out when SGLang asks again
            logger.error("no answer from bootstrap server %s", bootstrap_addr)
        except (OSError, ValueError) as error:
            logger.error("prefill instance behind %s: %s", bootstrap_addr, error)
        self._asking.pop(bootstrap_addr, None)
        return bootstrap_addr in self.prefill_info_table

    def tell_dp_rank(self, bootstrap_addr: str, room: int, rank: int) -> None:
        """Says beside the scheduler where a room went; decode asks until it is there."""

        def tell() -> None:
            try:
                _bootstrap.ask(bootstrap_addr, "POST", "/register_dp_rank", {"bootstrap_room": room, "dp_rank": rank})
            except OSError as error:
                logger.error("could not say that room %d is at dp rank %d: %s", room, rank, error)

        self._ensure_prefill_recompute_executor().submit(tell)

    def submit_prefill_recompute(self, kv_receiver: typing.Any, payload: dict) -> None:
        """Asks the prefill engine to compute a retracted request again. One decode rank does, for all."""
        if self.attn_tp_rank or self.attn_cp_rank or self.pp_rank:
            return
        info = self.prefill_info_table.get(kv_receiver.bootstrap_addr)
        if info is None or not info.prefill_http_port:
            kv_receiver.report_failure(
                f"the prefill engine behind {kv_receiver.bootstrap_addr} did not say where its HTTP API is"
            )
            return
        url = f"http://{join_host_port(host_of(kv_receiver.bootstrap_addr), info.prefill_http_port)}/generate"

        def compute() -> None:
            request = urllib.request.Request(url, json.dumps(payload).encode(), {"Content-Type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=300).close()
            except OSError as error:
                kv_receiver.report_failure(f"the prefill engine did not compute the retracted request again: {error}")

        self._ensure_prefill_recompute_executor().submit(compute)

    def should_verify_kv_checksum(self, bootstrap_addr: str) -> bool:
        info = self.prefill_info_table.get(bootstrap_addr)
        return info is None or info.attn_tp_size in (None, self.attn_tp_size)

    def is_abort_release_safe(self, bootstrap_room: int, required_acks: int) -> bool:
        return True  # see supports_deferred_decode_kv_release

    def clear_deferred_abort_state(self, bootstrap_room: int) -> None:
        """Nothing is deferred."""
