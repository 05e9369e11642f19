"""What the scheduler's side tells the workers' in one step. Plain values: they are pickled on the way."""

from __future__ import annotations

import dataclasses
import hashlib
import typing

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata


@dataclasses.dataclass
class Receive:
    """Blocks that prefill is to fill; `prefix_pages` before them are here already."""

    room: int
    bootstrap: str
    pages: list[int]
    prefix_pages: int


@dataclasses.dataclass
class Orders(KVConnectorMetadata):
    """By request."""

    open: dict[str, int] = dataclasses.field(default_factory=dict)  #: prefill: rooms to open
    send: dict[str, list[int]] = dataclasses.field(default_factory=dict)  #: prefill: all blocks of the prompt
    receive: dict[str, Receive] = dataclasses.field(default_factory=dict)
    #: decode: requests that ended before they were scheduled. Prefill is told that nothing is needed any more.
    decline: dict[str, Receive] = dataclasses.field(default_factory=dict)
    abort: set[str] = dataclasses.field(default_factory=set)

    def __bool__(self) -> bool:
        return any((self.open, self.send, self.receive, self.decline, self.abort))


def room_of(transfer_id: typing.Any) -> int:
    """The room's number: the router's own where it gives one, else drawn from its text."""
    text = str(transfer_id)
    if text.isdecimal() and int(text) < 1 << 63:
        return int(text)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def address_of(url: str) -> str:
    """ "host:port" of what routers send: with or without http://."""
    return url.removeprefix("http://").rstrip("/")
