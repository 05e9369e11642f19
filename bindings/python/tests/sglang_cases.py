"""What the tests on SGLang's queues share."""

from __future__ import annotations

import time

import pytest
from sglang_harness import DecodeEngine, PrefillEngine, request

from kvferry.sglang import KvferryKVBootstrapServer


@pytest.fixture
def engines():
    """Makes engines that share one bootstrap server, and ends them."""
    server = KvferryKVBootstrapServer("127.0.0.1", 0)
    made = []

    def make(kind, **sizes):
        made.append(kind(server.port, **sizes))
        return made[-1]

    make.port = server.port
    yield make
    for each in made:
        each.manager.teardown()
    server.close()


def until(condition, *steps, seconds=30):
    """Turns the engines' loops until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        for step in steps:
            step()
        time.sleep(0.0005)


def pair(engines, chunk_pages=2, **sizes):
    return engines(PrefillEngine, chunk_pages=chunk_pages, **sizes), engines(DecodeEngine, **sizes)


def both(engines, prefill, decode, room, tokens):
    source, target = request(room, tokens, engines.port), request(room, tokens, engines.port)
    prefill.add(source)
    decode.add(target)
    return source, target
