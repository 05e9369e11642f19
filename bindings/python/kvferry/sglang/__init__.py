"""kvferry as a disaggregation backend of SGLang: `--disaggregation-transfer-backend kvferry`.

SGLang finds it by itself where it loads plugins (0.5: this package registers one). For versions that do not, call
`kvferry.sglang.install()` at the top of the script that starts the server, outside of `if __name__ == "__main__"`, so
that its worker processes run it too, or start it with `python -m kvferry.sglang.launch_server`. More in
docs/sglang.md.

Tested with SGLang 0.5.23, and with the signatures of 0.4.7 (by feature test).
"""

from ._install import BACKEND, install

__all__ = [
    "BACKEND",
    "KVTransferError",
    "KvferryKVBootstrapServer",
    "KvferryKVManager",
    "KvferryKVReceiver",
    "KvferryKVSender",
    "install",
]


# The four classes stand on SGLang's base classes, which take seconds to import: not before they are asked for.
def __getattr__(name: str):
    if name in __all__:
        from . import _classes

        return getattr(_classes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
