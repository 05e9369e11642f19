"""What an engine tells kvferry about its memory and its place, and what it is told about rooms. Plain values."""

from __future__ import annotations

import dataclasses
import enum
import typing


class Poll(enum.IntEnum):
    """The state of a room. It only grows, except that `failed` may follow any state but `success`.

    The numbers are those of SGLang's KVPoll.
    """

    failed = 0
    bootstrapping = 1
    waiting_for_input = 2
    transferring = 3
    success = 4


class RoomChange(typing.NamedTuple):
    """A room whose state changed, as KvManager.changed hands it out."""

    room: int
    state: Poll
    pages_released: bool


@dataclasses.dataclass(frozen=True)
class KvFormat:
    """What both sides must agree on; compared when two ranks link. Only `page_tokens` may differ, where one is a
    multiple of the other."""

    layers: int  #: of the whole model
    kv_heads: int  #: of the whole model, not of the rank
    head_dim: int
    dtype: str = "bfloat16"
    page_tokens: int = 16  #: tokens of one page
    mla: bool = False
    order: str = "token_head_dim"  #: in a page of one layer, slowest first; or "head_token_dim"
    kv_joined: bool = False  #: a region of a layer holds K and V: of each page first all of K, then all of V


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Parallel sizes of an instance. `tp` counts the ranks of one data-parallel group."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    cp: int = 1


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rank stands in its instance."""

    dp: int = 0
    tp: int = 0
    pp: int = 0
    cp: int = 0


@dataclasses.dataclass(frozen=True)
class Region:
    """One buffer of items of one size, where the memory itself does not say how it is divided.

    An array registers without this: its first axis counts the items. `memory` is an object with the buffer protocol,
    `__array_interface__` or DLPack, which the manager keeps alive, or an address, which must stay mapped as long as
    the manager lives.
    """

    memory: typing.Any
    length: int | None = None  #: bytes, a whole number of items; required for an address
    item_bytes: int | None = None  #: bytes of one item, for example one page of one layer; required for an address
    kind: str = "host"  #: or "cuda", which is refused today


@dataclasses.dataclass(frozen=True)
class StateComponent:
    """What a request has beside its pages and with indices of its own: Mamba states, sliding windows, draft layers."""

    regions: typing.Sequence[typing.Any]
    name: str = ""  #: the two sides' components of one name belong together; those without, in their order
    optional: bool = False  #: the other side may lack it: nothing of it moves then
