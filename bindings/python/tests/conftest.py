"""A prefill and a decode rank in this process, on a bootstrap server of their own."""

import dataclasses

import kvferry
import numpy as np
import pytest

LAYERS, HEADS, HEAD_DIM, PAGE_TOKENS, PAGES = 2, 2, 8, 4, 64
FORMAT = kvferry.KvFormat(layers=LAYERS, kv_heads=HEADS, head_dim=HEAD_DIM, dtype="float16", page_tokens=PAGE_TOKENS)
SETTINGS = {"host": "127.0.0.1", "ping_interval": 0.2, "inline_bytes_max": 0}
SECONDS = 20  # a test that waits so long has failed


def cache(seed=None):
    """All K layers, then all V layers: (2 * layers, pages, tokens, heads, dim)."""
    shape = (2 * LAYERS, PAGES, PAGE_TOKENS, HEADS, HEAD_DIM)
    if seed is None:
        return np.zeros(shape, np.float16)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


@dataclasses.dataclass
class Pair:
    bootstrap: str
    prefill: kvferry.KvManager
    decode: kvferry.KvManager
    source: np.ndarray
    target: np.ndarray

    def open(self, room):
        return self.prefill.open_sender(room), self.decode.open_receiver(self.bootstrap, room)

    def hand_over(self, room, pages, into):
        sender, receiver = self.open(room)
        receiver.init(into)
        sender.init(len(pages))
        sender.send(pages)
        receiver.wait(SECONDS)
        sender.wait(SECONDS)


@pytest.fixture
def make_pair():
    """make_pair(aux=..., state=..., settings=...): what the two sides register beside their caches, as (prefill's,
    decode's)."""
    opened = []

    def make(aux=((), ()), state=((), ()), settings=SETTINGS):
        server = kvferry.BootstrapServer()
        opened.append(server)
        source, target = cache(seed=1), cache()
        prefill = kvferry.KvManager("prefill", source, FORMAT, aux=aux[0], state=state[0], bootstrap=server.address,
                                    settings=settings)
        opened.append(prefill)
        decode = kvferry.KvManager("decode", target, FORMAT, aux=aux[1], state=state[1], settings=settings)
        opened.append(decode)
        return Pair(server.address, prefill, decode, source, target)

    yield make
    for each in reversed(opened):
        each.close()


@pytest.fixture
def pair(make_pair):
    return make_pair()
