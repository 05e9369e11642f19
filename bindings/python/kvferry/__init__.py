"""Hands the KV cache of a request from the prefill engine that computed it to the decode engine that goes on.

Start with KvManager, then open_sender (prefill) or open_receiver (decode), one a room. Nothing blocks unless its name
says wait; `await room` waits in an event loop.
"""

from ._asyncio import released
from ._errors import Code, Error, KVTransferError, Timeout
from ._kvferry import BootstrapServer, KvManager, ManagerStats, Receiver, Sender, SharedMemory, __version__
from ._types import KvFormat, Parallel, Place, Poll, Region, RoomChange, StateComponent

__all__ = [
    "BootstrapServer", "Code", "Error", "KVTransferError", "KvFormat", "KvManager", "ManagerStats", "Parallel", "Place",
    "Poll", "Receiver", "Region", "RoomChange", "Sender", "SharedMemory", "StateComponent", "Timeout", "__version__",
    "released",
]

for _type in (BootstrapServer, KvManager, ManagerStats, Receiver, Sender, SharedMemory):
    _type.__module__ = "kvferry"
