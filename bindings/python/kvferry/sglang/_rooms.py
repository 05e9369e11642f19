"""SGLang's sender and receiver on kvferry's.

SGLang gives a request's pages to the next one as soon as it has seen Failed, or has called clear(); it knows no
release. So here a room shows Failed only once its pages are released, and what SGLang calls right before it frees pages
of a room that still lives (clear, failure_exception, a sender's abort) waits for the release: normally microseconds.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import time
import typing

import numpy as np
from sglang.srt.disaggregation.base.conn import BaseKVReceiver, BaseKVSender, KVPoll

from .._errors import Error
from .._errors import KVTransferError as _KVTransferError
from .._errors import Timeout
from ._bootstrap import query_dp_ranks

if typing.TYPE_CHECKING:
    from ._manager import KvferryKVManager

try:
    from sglang.srt.disaggregation.base.conn import KVTransferMetric
except ImportError:  # 0.4.7 measures nothing
    from types import SimpleNamespace as KVTransferMetric

logger = logging.getLogger("kvferry.sglang")

# 0.4.7 has no send_metadata: there `init` takes the pages.
INIT_TAKES_PAGES = "kv_indices" in inspect.signature(BaseKVReceiver.init).parameters


class KVTransferError(_KVTransferError):
    """As SGLang's: `is_from_another_rank` where this rank's part of the room did not fail, but a sibling's did."""

    def __init__(self, bootstrap_room: int, failure_reason: str, is_from_another_rank: bool = False) -> None:
        super().__init__(bootstrap_room, failure_reason)
        self.is_from_another_rank = is_from_another_rank

    def __str__(self) -> str:
        return f"KVTransferError(bootstrap_room={self.bootstrap_room}): {self.failure_reason}"


def release_timeout_s() -> float:
    """How long a scheduler that is about to free pages may be kept waiting. Only a peer process on this host that is
    stopped, and may read on when it is continued, takes so long."""
    return float(os.environ.get("SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT") or 30)


class _Room:
    """One room of either side. Called by the scheduler's thread."""

    kv_mgr: KvferryKVManager
    bootstrap_room: int

    def _start(self, mgr: KvferryKVManager, room: int) -> None:
        self.kv_mgr = mgr
        self.bootstrap_room = room
        self.conclude_state: int | None = None
        self._handle: typing.Any = None
        self._reason: str | None = None  # the first one
        self._reported: str | None = None  # a failure that another thread found, taken up by the next poll
        self._shown = KVPoll.Bootstrapping

    def _fail(self, reason: str) -> None:
        """Ends a room of which nothing is granted yet, or whose handle refused."""
        self._reason = self._reason or reason
        if self._handle is not None:
            self._handle.abort(reason)
        else:
            self.conclude_state = KVPoll.Failed

    @contextlib.contextmanager
    def _failing(self) -> typing.Iterator[None]:
        """What kvferry refuses fails the room, in its words; SGLang's schedulers expect no exceptions here."""
        try:
            yield
        except (Error, ValueError, TypeError) as error:
            self._fail(str(error))

    def report_failure(self, reason: str) -> None:
        """From any thread."""
        self._reported = reason

    def poll(self) -> int:
        if self.conclude_state is not None:
            return self.conclude_state
        if self._reported is not None:
            reason, self._reported = self._reported, None
            self._fail(reason)
            return self.poll()
        if self._handle is None:
            return self._shown
        state = int(self._handle.poll())
        if state in (KVPoll.Failed, KVPoll.Success):
            if not self._handle.pages_released():
                return self._shown
            self.conclude_state = state
            self._ended(state)
            return state
        self._shown = max(self._shown, state)
        return self._shown

    def _ended(self, state: int) -> None:
        if state == KVPoll.Failed and (error := self._handle.error()) is not None:
            self._reason = self._reason or error.failure_reason
            logger.info("room %d failed: %s", self.bootstrap_room, error.failure_reason)

    def _settle(self) -> None:
        """Ends the room if it lives, and returns once nothing touches its pages any more."""
        if self._handle is None or self._handle.pages_released():
            return
        self._handle.abort("given up by the engine")
        try:
            self._handle.wait_pages_released(release_timeout_s())
        except Timeout:
            logger.error(
                "room %d: a peer may still touch its pages after %.0f s; the engine gets them back anyway. A stopped "
                "process on this host that holds a session does this: end it. The limit is "
                "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT",
                self.bootstrap_room,
                release_timeout_s(),
            )

    def clear(self) -> None:
        """Ends the room for SGLang, whose pages may be used again when this returns; so may the number."""
        if self.conclude_state is None:
            self.poll()
        self._settle()
        if self._handle is not None:
            self._handle.clear()
        if self.conclude_state is None:
            self.conclude_state = KVPoll.Failed

    def failure_exception(self) -> typing.NoReturn:
        """Raises KVTransferError with the first reason; the pages may be used again."""
        if self.conclude_state is None:
            self.poll()
        own = self.conclude_state == KVPoll.Failed
        self.conclude_state = KVPoll.Failed
        self.clear()
        reason = self._reason if own else None
        raise KVTransferError(
            self.bootstrap_room,
            reason or "Failed due to an unknown reason from another rank",
            is_from_another_rank=reason is None,
        )


class KvferryKVSender(_Room, BaseKVSender):
    """One request on its prefill rank.

    0.5: (mgr, bootstrap_addr, bootstrap_room, req_has_disagg_prefill_dp_rank); 0.4.7: (..., dest_tp_ranks, pp_rank).
    """

    def __init__(
        self,
        mgr: KvferryKVManager,
        bootstrap_addr: str,
        bootstrap_room: int,
        *args: typing.Any,
        req_has_disagg_prefill_dp_rank: bool = False,
        **kwargs: typing.Any,
    ) -> None:
        if args and isinstance(args[-1], bool):
            req_has_disagg_prefill_dp_rank = args[-1]
        self._start(mgr, bootstrap_room)
        self.bootstrap_server_url = bootstrap_addr
        self.num_kv_indices = 0
        self.aux_index: int | None = None
        self._sent = 0
        self._draft_pages: list[np.ndarray] = []
        self._bytes = 0
        self._send_started: float | None = None
        self._metric = KVTransferMetric(transfer_latency_s=None, alloc_latency_s=None, transfer_total_bytes=None)
        self._early_send_wait_event: typing.Any = None  # set by the scheduler: what must be over before pages are read
        if mgr.is_dummy_cp_rank:
            self._shown = KVPoll.WaitingForInput
            return
        if not req_has_disagg_prefill_dp_rank:
            self._settle_dp_rank()
        if self.conclude_state is None:
            with self._failing():
                self._handle = mgr.manager.open_sender(bootstrap_room)

    def _settle_dp_rank(self) -> None:
        """Decode works out the data-parallel group from the room's number, or asks the bootstrap server for it."""
        dp, rank = self.kv_mgr.engine.parallel.dp, self.kv_mgr.engine.place.dp
        if dp == 1:
            return
        forced = os.environ.get("SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK", "").lower() in ("1", "true", "yes")
        if self.kv_mgr.engine.load_balance_method != "follow_bootstrap_room" or forced:
            self.kv_mgr.tell_dp_rank(self.bootstrap_server_url, self.bootstrap_room, rank)
        elif rank != self.bootstrap_room % dp:
            self._fail(
                f"follow_bootstrap_room conflict: the room was dispatched to dp rank {rank}, its number implies "
                f"{self.bootstrap_room % dp}. SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK=1 allows mixed routing"
            )

    def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
        self.num_kv_indices, self.aux_index = num_kv_indices, aux_index
        if self._handle is not None:
            with self._failing():
                self._handle.init(num_kv_indices, aux_index)

    def pop_decode_prefix_len(self) -> int:
        """Tokens at the start of the request that decode holds already."""
        return self._handle.prefix_pages() * self.kv_mgr.page_tokens if self._handle is not None else 0

    def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
        return num_pages > 0 or last_chunk

    def get_max_transfer_tokens(self) -> int | None:
        return None

    def mark_prefill_complete(self) -> None:
        """For the allocation policy prefill_complete, which SGLang has for Mooncake alone."""

    def send(
        self,
        kv_indices: np.ndarray,
        state_indices: list | None = None,
        *args: typing.Any,
        indices_event: typing.Any = None,
        **kwargs: typing.Any,
    ) -> None:
        if self.conclude_state is not None:
            return
        if (event := self._early_send_wait_event) is not None:
            self._early_send_wait_event = None
            event.synchronize()
        if indices_event is not None:
            indices_event.synchronize()
        self._send_started = self._send_started or time.perf_counter()
        self._sent += len(kv_indices)
        is_last = self._sent == self.num_kv_indices
        if self._handle is None:  # a context-parallel rank that has nothing to send
            if is_last:
                self.conclude_state = KVPoll.Success
            return
        state = self.kv_mgr.states_of(state_indices) if is_last else None
        if self.kv_mgr.layout.has_draft:
            self._draft_pages.append(np.asarray(kv_indices))
            if state is not None:
                state.append(np.concatenate(self._draft_pages))
        with self._failing():
            self._handle.send(kv_indices, state=state)
        self._bytes += self.kv_mgr.bytes_of(len(kv_indices), state_indices if is_last else None)

    def get_transfer_metric(self) -> typing.Any:
        self._metric.transfer_total_bytes = self._bytes
        return self._metric

    def _ended(self, state: int) -> None:
        super()._ended(state)
        if state == KVPoll.Success and self._send_started is not None:
            self._metric.transfer_latency_s = time.perf_counter() - self._send_started

    def abort(self) -> None:
        """Ends the request. SGLang frees its pages right behind this call: they are released when it returns."""
        if self.conclude_state is not None:
            return
        self._reason = self._reason or "Aborted by AbortReq."
        if self._handle is None:
            self.conclude_state = KVPoll.Failed
            return
        self._handle.abort(self._reason)
        self._settle()


class KvferryKVReceiver(_Room, BaseKVReceiver):
    """One request on its decode rank.

    0.5: (mgr, bootstrap_addr, bootstrap_room), init(prefill_dp_rank), send_metadata(pages, ...); 0.4.7: (...,
    data_parallel_rank), init(pages, aux_index).
    """

    require_staging = False  # heads are sliced by kvferry, on the way
    supports_host_destination = False
    abort_notified = True  # nothing has to be told twice
    _owns_bootstrap_room = True

    def __init__(
        self,
        mgr: KvferryKVManager,
        bootstrap_addr: str,
        bootstrap_room: int | None = None,
        data_parallel_rank: int | None = None,
        **kwargs: typing.Any,
    ) -> None:
        self._start(mgr, bootstrap_room or 0)
        self.bootstrap_addr = bootstrap_addr
        self.bootstrap_infos: list = []
        self._lifecycle_lock = contextlib.nullcontext()
        if INIT_TAKES_PAGES:
            self._open(data_parallel_rank)

    def _open(self, prefill_dp_rank: int | None) -> None:
        if self.conclude_state is None:
            with self._failing():
                self._handle = self.kv_mgr.manager.open_receiver(
                    self.bootstrap_addr, self.bootstrap_room, prefill_dp_rank
                )

    @property
    def prefill_info(self) -> typing.Any:
        return self.kv_mgr.prefill_info_table.get(self.bootstrap_addr)

    def init(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        (self._grant if INIT_TAKES_PAGES else self._open)(*args, **kwargs)

    def send_metadata(
        self,
        kv_indices: np.ndarray,
        aux_index: int | None = None,
        state_indices: list | None = None,
        decode_prefix_len: int | None = None,
        **kwargs: typing.Any,
    ) -> None:
        """Grants the pages: from here on prefill may fill them."""
        if getattr(kwargs.get("destination"), "value", "device") != "device":
            raise NotImplementedError("kvferry fills the cache itself; host destinations are not supported")
        if kwargs.get("device_kv_indices") is not None:
            raise NotImplementedError("HiSparse's second page list is not supported by kvferry")
        self._grant(kv_indices, aux_index, state_indices, decode_prefix_len)

    def _grant(
        self,
        kv_indices: np.ndarray,
        aux_index: int | None = None,
        state_indices: list | None = None,
        decode_prefix_len: int | None = None,
    ) -> None:
        if self.conclude_state is not None:
            return
        if self._handle is None:
            return self._fail("pages were granted before the room was opened")
        prefix, rest = divmod(decode_prefix_len or 0, self.kv_mgr.page_tokens)
        if rest:
            return self._fail(
                f"decode's prefix of {decode_prefix_len} tokens is no whole number of pages of "
                f"{self.kv_mgr.page_tokens}"
            )
        state = self.kv_mgr.states_of(state_indices)
        if self.kv_mgr.layout.has_draft:
            state.append(kv_indices)
        with self._failing():
            self._handle.init(kv_indices, aux_index, prefix, state)

    def _ended(self, state: int) -> None:
        super()._ended(state)
        error = self._handle.error() if state == KVPoll.Failed else None
        if error is not None and error.code in ("peer_lost", "unreachable", "mismatch", "timeout", "closed"):
            self.kv_mgr.prefill_info_table.pop(self.bootstrap_addr, None)  # another instance may be there next time

    def abort(self) -> None:
        """Ends the request; `poll` shows Failed once its pages are released."""
        if self.conclude_state is not None:
            return
        self._fail("Aborted by AbortReq.")

    def ensure_abort_notified(self, **kwargs: typing.Any) -> None:
        """Prefill hears of it from kvferry."""

    def is_abort_release_safe(self) -> bool:
        return self._handle is None or self._handle.pages_released()

    def invalidate_cached_bootstrap_infos(self) -> None:
        """Routes are asked for anew by kvferry where a link is lost."""

    @staticmethod
    def query_prefill_dp_ranks(bootstrap_addr: str, bootstrap_rooms: list[int]) -> dict[str, int]:
        return query_dp_ranks(bootstrap_addr, bootstrap_rooms)
