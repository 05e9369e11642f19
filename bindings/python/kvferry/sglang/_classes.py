"""The four classes, and what they are made of, under the names that SGLang's lookup gives out."""

from sglang.srt.disaggregation.base.conn import KVArgs

from ._bootstrap import KvferryKVBootstrapServer
from ._manager import KvferryKVManager
from ._rooms import KVTransferError, KvferryKVReceiver, KvferryKVSender

__all__ = [
    "KVArgs",
    "KVTransferError",
    "KvferryKVBootstrapServer",
    "KvferryKVManager",
    "KvferryKVReceiver",
    "KvferryKVSender",
]
