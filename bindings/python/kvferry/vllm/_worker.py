"""The half in a vLLM worker: the blocks as kvferry's memory, and one thread that owns the rooms."""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
import typing

from .._errors import Error
from .._kvferry import KvManager
from .._types import KvFormat, Parallel, Place, Poll, Region
from ._orders import Orders, Receive

logger = logging.getLogger("kvferry.vllm")

PREFILL, DECODE = "prefill", "decode"


class Room:
    """One request's. Of the thread alone."""

    def __init__(self, request: str, handle: typing.Any, pages: list[int] | None, awaited: bool) -> None:
        self.request, self.handle, self.pages = request, handle, pages
        self.awaited = awaited  # whether the scheduler waits to hear of it
        self.sent = False
        self.given_up = False  # the scheduler will not speak of it again


class WorkerSide:
    """`obey`, `ended` and `failed_blocks` are called by the worker's thread, once a step."""

    def __init__(self, vllm_config: typing.Any, kv_cache_config: typing.Any) -> None:
        self._config = vllm_config
        self._num_blocks: int = kv_cache_config.num_blocks
        self._caches: dict[str, typing.Any] = {}
        self._managers: dict[str, KvManager] = {}
        self._orders: queue.SimpleQueue[Orders | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[tuple[str, str, set[int]]] = queue.SimpleQueue()
        self._failed_blocks: set[int] = set()
        self._thread: threading.Thread | None = None
        self._wake_read, self._wake_write = -1, -1

    # Memory.

    def register(self, kv_caches: dict[str, typing.Any]) -> None:
        self._caches = kv_caches
        self.reopen()

    def reopen(self) -> None:
        if self._managers or not self._caches:
            return
        transfer, parallel = self._config.kv_transfer_config, self._config.parallel_config
        kv, joined = self._regions()
        tp, pp = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
        sizes = Parallel(tp=tp, dp=parallel.data_parallel_size, pp=pp)
        place = Place(dp=parallel.data_parallel_rank, tp=parallel.rank % tp, pp=parallel.rank // tp % pp)
        roles = [
            role for role, wanted in ((PREFILL, transfer.is_kv_producer), (DECODE, transfer.is_kv_consumer)) if wanted
        ]
        for role in roles:
            self._managers[role] = KvManager(
                role,
                kv,
                self._format(joined),
                parallel=sizes,
                place=place,
                first_layer=self._first_layer(),
                instance=f"vllm@{transfer.engine_id}",
                bootstrap=transfer.get_from_extra_config("bootstrap", "") if role == PREFILL else "",
            )
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop = _Loop(self)
        self._thread = threading.Thread(target=self._loop.run, name="kvferry-vllm", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is None:
            return
        self._tell(None)
        self._thread.join()
        self._thread = None
        for manager in self._managers.values():
            manager.close()
        self._managers.clear()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _regions(self) -> tuple[list[Region], bool]:
        """One or two a layer, K's first; whether K and V of a block lie together."""
        first, second = [], []
        for name, cache in self._caches.items():
            if not cache.is_contiguous():
                raise NotImplementedError(f"layer {name}'s cache is not contiguous; kvferry moves whole blocks")
            kind = "host" if cache.device.type == "cpu" else cache.device.type
            size = cache.numel() * cache.element_size()
            split = cache.shape[0] == 2 and len(cache.shape) > 1 and cache.shape[1] == self._num_blocks
            if not split and cache.shape[0] != self._num_blocks:
                raise NotImplementedError(
                    f"layer {name}'s cache has shape {tuple(cache.shape)}; expected "
                    f"({self._num_blocks}, ...) or (2, {self._num_blocks}, ...)"
                )
            halves = 2 if split else 1
            for half in range(halves):
                region = Region(
                    cache.data_ptr() + half * (size // halves),
                    length=size // halves,
                    item_bytes=size // halves // self._num_blocks,
                    kind=kind,
                )
                (first, second)[half].append(region)
        if second and len(first) != len(second):
            raise NotImplementedError("layers with K and V apart beside layers with both together are not supported")
        return first + second, not second and not self._config.model_config.use_mla

    def _format(self, joined: bool) -> KvFormat:
        model, cache = self._config.model_config, self._config.cache_config
        dtype = model.dtype if cache.cache_dtype == "auto" else cache.cache_dtype
        layers = (
            model.get_total_num_hidden_layers() if hasattr(model, "get_total_num_hidden_layers") else len(self._caches)
        )
        return KvFormat(
            layers=layers,
            kv_heads=model.get_total_num_kv_heads(),
            head_dim=model.get_head_size(),
            dtype=str(dtype).removeprefix("torch."),
            page_tokens=cache.block_size,
            mla=model.use_mla,
            order="token_head_dim" if self._layout() == "NHD" else "head_token_dim",
            kv_joined=joined,
        )

    def _layout(self) -> str:
        return self._config.kv_transfer_config.get_from_extra_config("kv_cache_layout", "NHD")

    def _first_layer(self) -> int:
        """Of this pipeline stage: layers are named "model.layers.7.self_attn.attn"."""
        numbers = [int(part) for name in self._caches for part in name.split(".") if part.isdecimal()]
        return min(numbers, default=0)

    # Once a step.

    def obey(self, orders: Orders) -> None:
        if orders:
            self._tell(orders)

    def _tell(self, orders: Orders | None) -> None:
        self._orders.put(orders)
        os.write(self._wake_write, b"x")

    def ended(self) -> tuple[set[str] | None, set[str] | None]:
        """Requests whose blocks are released: sent ones, received ones (failed ones are among both)."""
        found: dict[str, set[str]] = {PREFILL: set(), DECODE: set()}
        while not self._ended.empty():
            role, request, failed = self._ended.get_nowait()
            found[role].add(request)
            self._failed_blocks |= failed
        return found[PREFILL] or None, found[DECODE] or None

    def failed_blocks(self) -> set[int]:
        """Blocks that hold nothing good; no later than the step in which their request is reported."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed


class _Loop:
    """The thread: takes orders, turns rooms on, reports those whose pages are released."""

    def __init__(self, side: WorkerSide) -> None:
        self._side = side
        self.rooms: dict[str, dict[str, Room]] = {PREFILL: {}, DECODE: {}}

    def run(self) -> None:
        side = self._side
        poller = select.poll()
        poller.register(side._wake_read, select.POLLIN)
        for manager in side._managers.values():
            poller.register(manager.event_fd, select.POLLIN)
        while self._take_orders():
            for rooms in self.rooms.values():
                for room in list(rooms.values()):
                    self._turn(rooms, room)
            poller.poll(1000)  # the second is for a release that was missed, which would keep blocks for ever
            for manager in side._managers.values():
                manager.changed()

    def _take_orders(self) -> bool:
        side = self._side
        try:
            os.read(side._wake_read, 4096)
        except BlockingIOError:
            pass
        while not side._orders.empty():
            orders = side._orders.get_nowait()
            if orders is None:
                return False
            for request, number in orders.open.items():
                self._open(request, number)
            for request, pages in orders.send.items():
                self._send(request, pages)
            for request, order in orders.receive.items():
                self._receive(request, order, awaited=True)
            for request, order in orders.decline.items():
                self._receive(
                    request,
                    Receive(order.room, order.bootstrap, [], order.prefix_pages + len(order.pages)),
                    awaited=False,
                )
            for request in orders.abort:
                for rooms in self.rooms.values():
                    if (room := rooms.get(request)) is not None:
                        room.given_up = True
                        if room.handle is not None:
                            room.handle.abort("given up by the scheduler")
        return True

    def _open(self, request: str, number: int) -> None:
        try:
            handle = self._side._managers[PREFILL].open_sender(number)
        except Error as error:
            logger.error("request %s: %s", request, error)
            handle = None
        self.rooms[PREFILL][request] = Room(request, handle, None, awaited=False)

    def _send(self, request: str, pages: list[int]) -> None:
        room = self.rooms[PREFILL].get(request)
        if room is None or room.handle is None:
            self._side._ended.put((PREFILL, request, set()))
            self.rooms[PREFILL].pop(request, None)
            return
        room.pages, room.awaited = pages, True

    def _receive(self, request: str, order: Receive, awaited: bool) -> None:
        try:
            handle = self._side._managers[DECODE].open_receiver(order.bootstrap, order.room)
            self.rooms[DECODE][request] = Room(request, handle, order.pages, awaited)
            handle.init(order.pages, None, order.prefix_pages)
        except Error as error:
            logger.error("request %s: %s", request, error)
            room = self.rooms[DECODE].get(request)
            if room is not None:
                room.handle.abort(str(error))
            elif awaited:
                self._side._ended.put((DECODE, request, set(order.pages)))

    def _turn(self, rooms: dict[str, Room], room: Room) -> None:
        if room.handle is None:
            if room.given_up:
                del rooms[room.request]
            return
        state = room.handle.poll()
        prefill = rooms is self.rooms[PREFILL]
        if prefill and state == Poll.waiting_for_input and room.pages is not None and not room.sent:
            room.sent = True
            try:  # decode may have the beginning already
                rest = room.pages[room.handle.prefix_pages() :]
                room.handle.init(len(rest))
                room.handle.send(rest)
            except Error as error:
                room.handle.abort(str(error))
        if state not in (Poll.failed, Poll.success) or not room.handle.pages_released():
            return
        if prefill and not room.awaited and not room.given_up:
            logger.info("request %s: %s", room.request, room.handle.error())
            room.handle.clear()
            room.handle = None  # what the scheduler says of it next is answered at once
            return
        failed = state == Poll.failed
        if failed:
            logger.error("request %s: %s", room.request, room.handle.error())
        if room.awaited:
            blocks = set(room.pages or ()) if failed and not prefill else set()
            self._side._ended.put((PREFILL if prefill else DECODE, room.request, blocks))
        room.handle.clear()
        del rooms[room.request]
