"""`await room` and `await kvferry.released(room)`: one reader a manager and event loop, on the manager's event_fd."""

from __future__ import annotations

import asyncio
import threading
import typing

from ._errors import Error
from ._types import Poll

if typing.TYPE_CHECKING:
    from ._kvferry import KvManager, Receiver, Sender

    Room = typing.Union[Sender, Receiver]
    Done = typing.Callable[[], bool]

_lock = threading.Lock()  # of _readers alone
_readers: dict[tuple[KvManager, asyncio.AbstractEventLoop], _Reader] = {}


class _Reader:
    """What one loop waits for of one manager. Used in the loop's thread alone; gone once nothing is waited for."""

    def __init__(self, manager: KvManager, loop: asyncio.AbstractEventLoop) -> None:
        self.manager = manager
        self.loop = loop
        self.event_fd = manager.event_fd
        self.waiting: dict[int, list[tuple[asyncio.Future[None], Done]]] = {}
        loop.add_reader(self.event_fd, self.on_readable)

    def add(self, room: int, done: Done) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.loop.create_future()
        self.waiting.setdefault(room, []).append((future, done))
        return future

    def remove(self, room: int, future: asyncio.Future[None]) -> None:
        left = [entry for entry in self.waiting.pop(room) if entry[0] is not future]
        if left:
            self.waiting[room] = left
        if not self.waiting:
            self.loop.remove_reader(self.event_fd)
            with _lock:
                del _readers[self.manager, self.loop]

    def on_readable(self) -> None:
        try:
            rooms = [change.room for change in self.manager.changed()]
        except Error:  # closed: every room has ended, and the descriptor stays readable
            self.loop.remove_reader(self.event_fd)
            rooms = None
        with _lock:
            readers = [reader for (manager, _), reader in _readers.items() if manager is self.manager]
        for reader in readers:  # the other loops' rooms were fetched here too
            if reader is self:
                self.settle(rooms)
            elif not reader.loop.is_closed():
                reader.loop.call_soon_threadsafe(reader.settle, rooms)

    def settle(self, rooms: list[int] | None) -> None:
        for room in list(self.waiting) if rooms is None else rooms:
            for future, done in self.waiting.get(room, ()):
                if not future.done() and done():
                    future.set_result(None)


async def _until(room: Room, done: Done) -> None:
    if done():
        return
    key = room.manager, asyncio.get_running_loop()
    with _lock:
        reader = _readers.get(key) or _readers.setdefault(key, _Reader(*key))
    future = reader.add(room.room, done)
    try:
        if not done():  # it may have become true before the reader knew of us
            await future
    finally:
        reader.remove(room.room, future)


async def concluded(room: Room) -> Poll:
    """Poll.success once the room has it; raises KVTransferError where it failed."""
    await _until(room, lambda: room.poll() in (Poll.failed, Poll.success))
    if (error := room.error()) is not None:
        raise error
    return room.poll()


async def released(room: Room) -> None:
    """Waits until no byte of the room's pages can be written (receiver) or read (sender) any more."""
    await _until(room, room.pages_released)
