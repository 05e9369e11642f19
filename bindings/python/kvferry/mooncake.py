"""Mooncake's Python engine on kvferry's data plane, for code that was written for `mooncake.engine.TransferEngine`.

Off unless named: import `kvferry.mooncake.TransferEngine` yourself, call `kvferry.mooncake.install()` before the code
that does `from mooncake.engine import TransferEngine`, or, under SGLang, set KVFERRY_AS_MOONCAKE=1.

**Unfenced.** Mooncake's writes go to an address whenever the writer likes; nothing tells the writer that the memory has
another owner by now, and so it is here. What is checked: that the memory is registered, by the process that owns it,
when the bytes are put there. kvferry's rooms (kvferry.KvManager, kvferry.sglang) have no such gap: prefer them.

How a write goes. Every engine has a manager of each role and two staging buffers. The writer packs its pieces into its
buffer and asks the target, over a plain connection to the target's port, to take a room from it; the target opens the
room into its buffer, waits for success, puts the pieces where they belong if that memory is registered, and answers.
Links, tokens and transports are kvferry's: with KVFERRY_TOKEN nobody writes who has not proven it. Each byte is copied
twice more than in a room of your own.
"""

from __future__ import annotations

import array
import concurrent.futures
import contextlib
import ctypes
import itertools
import logging
import os
import queue
import secrets
import sys
import threading
import types
import typing

from ._errors import Error
from ._kvferry import BootstrapServer, KvManager, SharedMemory
from ._mooncake_rpc import Connection, Server, host_of
from ._types import KvFormat, Region

logger = logging.getLogger("kvferry.mooncake")

PAGE_BYTES = 64 << 10
SLOT_PAGES = 64  # a slot of staging memory takes one room
SLOT_BYTES = PAGE_BYTES * SLOT_PAGES
TIMEOUT_S = 60  # a write that takes longer has failed


class _Staging:
    """Memory that bytes pass through, in slots. Who finds none free waits."""

    def __init__(self, slots: int) -> None:
        self.memory = SharedMemory(slots * SLOT_BYTES)
        self._address = ctypes.addressof((ctypes.c_char * len(self.memory)).from_buffer(self.memory))
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(slots):
            self._free.put(slot)

    @contextlib.contextmanager
    def slot(self) -> typing.Iterator[tuple[int, int]]:
        """Its number and address. Whoever leaves the block has seen to it that nobody uses the slot any more."""
        slot = self._free.get()
        try:
            yield slot, self._address + slot * SLOT_BYTES
        finally:
            self._free.put(slot)

    def region(self) -> Region:
        return Region(self.memory, item_bytes=PAGE_BYTES)


def _pages(slot: int, length: int) -> array.array:
    first = slot * SLOT_PAGES
    return array.array("i", range(first, first + -(-length // PAGE_BYTES)))


class _Regions:
    """What was registered: only there are bytes put. Held while they are."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(self, address: int, length: int) -> bool:
        with self._lock:
            if length <= 0 or self._lengths.get(address, length) != length:
                return False
            self._lengths[address] = length
            return True

    def remove(self, address: int) -> bool:
        with self._lock:
            return self._lengths.pop(address, None) is not None

    def missing(self, pieces: list[tuple[int, int]]) -> str:
        with self._lock:
            return self._missing(pieces)

    def _missing(self, pieces: list[tuple[int, int]]) -> str:
        for address, length in pieces:
            inside = any(base <= address and address + length <= base + size for base, size in self._lengths.items())
            if length < 0 or not inside:
                return f"{length} bytes at {address:#x} do not lie in memory that is registered here"
        return ""

    def put(self, source: int, pieces: list[tuple[int, int]]) -> str:
        """Copies what lies at `source` to the pieces; a text where one of them is not registered any more."""
        with self._lock:
            if missing := self._missing(pieces):
                return missing
            for address, length in pieces:
                ctypes.memmove(address, source, length)
                source += length
            return ""


class TransferEngine:
    """The surface of mooncake.engine.TransferEngine that SGLang, vLLM and LMCache use. Calls answer 0, or -1 for
    failure, which the log explains; reads and managed buffers are not here. May be used from any thread."""

    def __init__(self) -> None:
        self._regions = _Regions()
        self._closing = contextlib.ExitStack()
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._batches: dict[int, concurrent.futures.Future[int]] = {}
        self._batch_ids = itertools.count(1)
        self._connections: dict[str, list[Connection]] = {}
        self._connections_lock = threading.Lock()  # of _connections alone
        self._port = 0

    # Life.

    def initialize(
        self, local_hostname: str, metadata_server: str = "P2PHANDSHAKE", protocol: str = "tcp", device_name: str = ""
    ) -> int:
        """`local_hostname`: where peers reach this process, without a port or with one that is not used. The metadata
        server must be P2PHANDSHAKE; protocol and devices are kvferry's to choose."""
        if metadata_server != "P2PHANDSHAKE":
            logger.error(
                "metadata server %r: only P2PHANDSHAKE is here, peers are found by their session ids", metadata_server
            )
            return -1
        host = host_of(local_hostname)
        slots = max(2, (int(os.environ.get("KVFERRY_MOONCAKE_STAGING_MB") or 64) << 20) // SLOT_BYTES)
        try:
            self._start(host, slots)
        except (Error, OSError) as error:
            self.close()
            logger.error("could not start at %s: %s", host, error)
            return -1
        return 0

    def _start(self, host: str, slots: int) -> None:
        own = KvFormat(layers=1, kv_heads=1, head_dim=1, dtype="bytes", page_tokens=1, mla=True)
        settings = {"host": host}
        self._out, self._in = _Staging(slots), _Staging(slots)
        self._bootstrap = BootstrapServer(host, 0)
        self._closing.callback(self._bootstrap.close)
        self._writer = KvManager(
            "prefill", [self._out.region()], own, bootstrap=self._bootstrap.address, settings=settings
        )
        self._closing.callback(self._writer.close)
        self._target = KvManager("decode", [self._in.region()], own, settings=settings)
        self._closing.callback(self._target.close)
        self._pool = concurrent.futures.ThreadPoolExecutor(8, thread_name_prefix="kvferry-mooncake")
        self._closing.callback(self._pool.shutdown, wait=False, cancel_futures=True)
        server = Server(host, self._serve)
        self._closing.callback(server.close)
        self._port = server.port

    def close(self) -> None:
        """Mooncake's has no such call: there the end of the process does it."""
        self._closing.close()
        with self._connections_lock:
            for connection in itertools.chain(*self._connections.values()):
                connection.close()
            self._connections.clear()

    def get_rpc_port(self) -> int:
        return self._port

    def get_engine(self) -> TransferEngine:
        return self

    # Memory that peers may write into. Its own memory a writer need not register.

    def register_memory(self, buffer_addr: int, capacity: int) -> int:
        return 0 if self._regions.add(buffer_addr, capacity) else -1

    def unregister_memory(self, buffer_addr: int) -> int:
        return 0 if self._regions.remove(buffer_addr) else -1

    def batch_register_memory(self, buffer_addresses: typing.Sequence[int], capacities: typing.Sequence[int]) -> int:
        return -1 if any([self.register_memory(*each) for each in zip(buffer_addresses, capacities)]) else 0

    def batch_unregister_memory(self, buffer_addresses: typing.Sequence[int]) -> int:
        return -1 if any([self.unregister_memory(each) for each in buffer_addresses]) else 0

    # Writing. A target is "host:port": what its engine was initialized with, and its get_rpc_port().

    def transfer_sync_write(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int) -> int:
        return self.batch_transfer_sync_write(target_hostname, [buffer], [peer_buffer_address], [length])

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: typing.Sequence[int],
        peer_buffer_addresses: typing.Sequence[int],
        lengths: typing.Sequence[int],
    ) -> int:
        try:
            if not len(buffers) == len(peer_buffer_addresses) == len(lengths):
                raise ValueError("the three lists differ in length")
            for load in _loads(zip(buffers, peer_buffer_addresses, lengths)):
                self._write(target_hostname, load)
        except (Error, OSError, ValueError) as error:
            logger.warning("a write to %s failed: %s", target_hostname, error)
            return -1
        return 0

    def transfer_submit_write(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int) -> int:
        """A number for transfer_check_status."""
        return self.batch_transfer_async_write(target_hostname, [buffer], [peer_buffer_address], [length])

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: typing.Sequence[int],
        peer_buffer_addresses: typing.Sequence[int],
        lengths: typing.Sequence[int],
    ) -> int:
        """A number for transfer_check_status and get_batch_transfer_status; 0 for failure."""
        if self._pool is None:
            return 0
        batch = next(self._batch_ids)
        self._batches[batch] = self._pool.submit(
            self.batch_transfer_sync_write, target_hostname, list(buffers), list(peer_buffer_addresses), list(lengths)
        )
        return batch

    def transfer_check_status(self, batch_id: int) -> int:
        """1: done, 0: under way, -1: failed. Asked once more after its end, a number is not known any more: -1."""
        batch = self._batches.get(batch_id)
        if batch is not None and not batch.done():
            return 0
        self._batches.pop(batch_id, None)
        return 1 if batch is not None and not batch.cancelled() and batch.result() == 0 else -1

    def get_batch_transfer_status(self, batch_ids: typing.Sequence[int]) -> int:
        """Waits for all of them: 0, or -1 where one has failed."""
        batches = [self._batches.pop(each, None) for each in batch_ids]
        return 0 if all(each is not None and each.result() == 0 for each in batches) else -1

    def send_probe(self, target_hostname: str) -> int:
        """0 where an engine answers there."""
        try:
            with self._connection(target_hostname) as connection:
                return 0 if "error" not in connection.ask({"probe": True}) else -1
        except OSError:
            return -1

    # How.

    def _write(self, target: str, load: list[tuple[int, int, int]]) -> None:
        length = sum(piece[2] for piece in load)
        with self._out.slot() as (slot, address):
            for source, _, size in load:
                ctypes.memmove(address, source, size)
                address += size
            room = self._writer.open_sender(secrets.randbelow(1 << 63))
            try:
                pages = _pages(slot, length)
                room.init(len(pages))
                room.send(pages)
                with self._connection(target) as connection:
                    answer = connection.ask(
                        {
                            "room": room.room,
                            "bootstrap": self._bootstrap.address,
                            "pieces": [piece[1:] for piece in load],
                        }
                    )
                if "error" in answer:
                    raise ValueError(answer["error"])
                room.wait(TIMEOUT_S)
            finally:
                room.clear()
                room.wait_pages_released(None)

    def _serve(self, request: dict) -> dict:
        """Takes one room, or a probe."""
        if "room" not in request:
            return {}
        pieces = [(int(address), int(length)) for address, length in request["pieces"]]
        length = sum(size for _, size in pieces)
        if error := self._regions.missing(pieces) or ("too much for one room" if length > SLOT_BYTES else ""):
            return {"error": error}
        with self._in.slot() as (slot, address):
            room = self._target.open_receiver(request["bootstrap"], request["room"])
            try:
                room.init(_pages(slot, length))
                room.wait(TIMEOUT_S)
                error = self._regions.put(address, pieces)
            finally:
                room.clear()
                room.wait_pages_released(None)
        return {"error": error} if error else {}

    @contextlib.contextmanager
    def _connection(self, target: str) -> typing.Iterator[Connection]:
        """One that nobody else uses meanwhile; kept for the next, unless it broke."""
        with self._connections_lock:
            idle = self._connections.setdefault(target, [])
            connection = idle.pop() if idle else None
        connection = connection or Connection(target, 2 * TIMEOUT_S)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._connections_lock:
            self._connections.setdefault(target, []).append(connection)


def _loads(pieces: typing.Iterable[tuple[int, int, int]]) -> typing.Iterator[list[tuple[int, int, int]]]:
    """(source, target, length) cut and gathered into what one slot takes."""
    load: list[tuple[int, int, int]] = []
    room = SLOT_BYTES
    for source, target, length in pieces:
        while length > 0:
            part = min(length, room)
            load.append((source, target, part))
            source, target, length, room = source + part, target + part, length - part, room - part
            if room == 0:
                yield load
                load, room = [], SLOT_BYTES
    if load:
        yield load


def install() -> None:
    """From here on `from mooncake.engine import TransferEngine` means the one of this module, in this process."""
    package, engine = types.ModuleType("mooncake"), types.ModuleType("mooncake.engine")
    package.__path__ = []  # type: ignore[attr-defined]
    engine.TransferEngine = TransferEngine  # type: ignore[attr-defined]
    package.engine = engine  # type: ignore[attr-defined]
    sys.modules.update({"mooncake": package, "mooncake.engine": engine})
