"""How calls and rooms say that they failed."""

from __future__ import annotations

import enum


class Code(str, enum.Enum):
    """What went wrong, for programs; docs/reference/errors.md has them. Equal to its name as a string."""

    invalid_argument = "invalid_argument"
    out_of_range = "out_of_range"
    already_exists = "already_exists"
    mismatch = "mismatch"
    try_later = "try_later"
    unreachable = "unreachable"
    timeout = "timeout"
    peer_lost = "peer_lost"
    aborted = "aborted"
    peer_aborted = "peer_aborted"
    protocol = "protocol"
    unauthorized = "unauthorized"
    unsupported = "unsupported"
    closed = "closed"
    internal = "internal"
    corrupt = "corrupt"

    __str__ = str.__str__


class Error(Exception):
    """A call that did not work. `code` for programs, `text` for people; `room` and `peer` where they are known."""

    def __init__(self, code: str, text: str, room: int | None = None, peer: str = "") -> None:
        super().__init__(code, text, room, peer)
        self.code = Code(code)
        self.text = text
        self.room = room
        self.peer = peer

    def __str__(self) -> str:
        room = "" if self.room is None else f"room {self.room}: "
        peer = f"peer {self.peer}: " if self.peer else ""
        return f"{room}{peer}{self.code}: {self.text}"


class Timeout(Error, TimeoutError):
    """A wait that passed its limit; the room goes on."""


class KVTransferError(Error):
    """A room that failed. `failure_reason` says why, with the peer's address where one is involved."""

    def __init__(self, bootstrap_room: int, failure_reason: str, code: str = "internal", peer: str = "") -> None:
        super().__init__(code, failure_reason, bootstrap_room, peer)
        self.args = (bootstrap_room, failure_reason, code, peer)
        self.bootstrap_room = bootstrap_room
        self.failure_reason = failure_reason


def error_of(code: str, text: str, room: int | None, peer: str) -> Error:
    """The exception of a call that answered an error."""
    return (Timeout if code == "timeout" else Error)(code, text, room, peer)
