"""The router in front of engines that behave and misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

aiohttp = pytest.importorskip("aiohttp")
from aiohttp import web  # noqa: E402

from kvferry.router import Instance, Router, batch_size, is_abort, with_bootstrap  # noqa: E402


class Engine:
    """One prefill or decode engine. `behave` is called with each request."""

    def __init__(self, behave=None) -> None:
        self.seen: list[dict] = []
        self.behave = behave or self.answer
        app = web.Application()
        app.router.add_get("/health", self.health)
        app.router.add_post("/generate", self.generate)
        self.runner = web.AppRunner(app, shutdown_timeout=0.01)
        self.port = 0

    async def health(self, request):
        return web.Response(text="OK")

    async def generate(self, request):
        self.seen.append(await request.json())
        return await self.behave(request)

    async def answer(self, request):
        return web.json_response({"text": "fine", "meta_info": {"finish_reason": {"type": "stop"}}})

    async def start(self) -> None:
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        await self.runner.cleanup()

    def instance(self, bootstrap_port: int | None = None) -> Instance:
        return Instance(f"http://127.0.0.1:{self.port}", bootstrap_port)


async def broken(request):
    request.transport.abort()
    return web.Response()


async def failing(request):
    return web.json_response({"error": {"message": "transfer failed", "code": 500}}, status=500)


async def aborting(request):
    reason = {"type": "abort", "message": "KVTransferError", "status_code": 500}
    return web.json_response({"text": "", "meta_info": {"finish_reason": reason}})


async def never(request):
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def running(prefill, decode, **options):
    for engine in [*prefill, *decode]:
        await engine.start()
    router = Router(
        [e.instance(8998 + i) for i, e in enumerate(prefill)],
        [e.instance() for e in decode],
        health_interval_s=0.05,
        **options,
    )
    runner = web.AppRunner(router.app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
        try:
            yield router, client
        finally:
            await runner.cleanup()
            for engine in [*prefill, *decode]:
                await engine.stop()


async def until(condition) -> None:
    async with asyncio.timeout(10) if hasattr(asyncio, "timeout") else contextlib.AsyncExitStack():
        while not condition():
            await asyncio.sleep(0.005)


async def ask(client, **body):
    async with client.post("/generate", json={"text": "hello", **body}) as answer:
        return answer.status, await answer.json()


def test_both_sides_get_one_room_and_the_way_to_prefill():
    async def run():
        prefill, decode = Engine(), Engine()
        async with running([prefill], [decode]) as (_, client):
            status, answer = await ask(client)
            assert (status, answer["text"]) == (200, "fine")
            await until(lambda: prefill.seen)
            assert prefill.seen == decode.seen
            assert prefill.seen[0]["bootstrap_host"] == "127.0.0.1"
            assert prefill.seen[0]["bootstrap_port"] == 8998
            assert 0 <= prefill.seen[0]["bootstrap_room"] < 1 << 63

    asyncio.run(run())


def test_a_batch_has_a_room_for_each():
    body = with_bootstrap({"text": ["a", "b", "c"]}, Instance("http://[::1]:30000", 8998))
    assert body["bootstrap_host"] == ["[::1]"] * 3
    assert body["bootstrap_port"] == [8998] * 3
    assert len(set(body["bootstrap_room"])) == 3
    assert batch_size({"input_ids": [[1], [2]]}) == 2
    assert batch_size({"input_ids": [1, 2]}) is None


@pytest.mark.parametrize("fault", [broken, failing])
def test_a_request_goes_to_another_prefill_where_the_client_has_seen_nothing(fault):
    async def run():
        # Decode waits for a hand-off that never comes; only prefill's end can tell.
        bad, good, decode = Engine(fault), Engine(), Engine()

        async def waits_for_the_good_one(request):
            body = json.loads(await request.text()) if request.can_read_body else decode.seen[-1]
            if body["bootstrap_port"] == 8998:
                await never(request)
            return await decode.answer(request)

        decode.behave = waits_for_the_good_one
        async with running([bad, good], [decode]) as (_, client):
            for _ in range(4):
                status, answer = await asyncio.wait_for(ask(client), 10)
                assert (status, answer["text"]) == (200, "fine")
            assert bad.seen and good.seen
            rooms = [body["bootstrap_room"] for body in decode.seen]
            assert len(set(rooms)) == len(rooms), "a second try is another room"

    asyncio.run(run())


@pytest.mark.parametrize("fault", [broken, failing, aborting])
def test_a_request_goes_to_another_decode_too(fault):
    async def run():
        bad, good = Engine(fault), Engine()
        async with running([Engine()], [bad, good]) as (_, client):
            for _ in range(4):
                assert (await asyncio.wait_for(ask(client), 10))[0] == 200

    asyncio.run(run())


def test_what_the_client_has_seen_is_not_begun_again():
    async def run():
        seen = asyncio.Event()

        async def breaking_off(request):
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"half")
            await seen.wait()
            request.transport.abort()
            return response

        decode, other = Engine(breaking_off), Engine(breaking_off)
        async with running([Engine()], [decode, other]) as (_, client):
            async with client.post("/generate", json={"text": "hello"}) as answer:
                assert await answer.content.readexactly(4) == b"half"
                seen.set()
                with pytest.raises(aiohttp.ClientError):
                    await answer.read()
            assert len(decode.seen) + len(other.seen) == 1

    asyncio.run(run())


def test_a_dead_instance_gets_nothing_until_it_is_back():
    async def run():
        first, second = Engine(), Engine()
        async with running([first, second], [Engine()]) as (router, client):
            await first.stop()
            await until(lambda: not router.prefill.instances[0].alive)
            before = len(second.seen)
            for _ in range(6):
                assert (await ask(client))[0] == 200
            assert len(second.seen) == before + 6
            first.runner = web.AppRunner(first.runner.app, shutdown_timeout=0.01)
            again = Engine()
            again.port = first.port
            await again.start()
            await until(lambda: router.prefill.instances[0].alive)
            for _ in range(2):
                assert (await ask(client))[0] == 200
            await until(lambda: again.seen)
            await again.stop()

    asyncio.run(run())


def test_no_pair_alive_is_said_at_once():
    async def run():
        prefill = Engine()
        async with running([prefill], [Engine()]) as (router, client):
            await prefill.stop()
            await until(lambda: not router.prefill.instances[0].alive)
            assert (await ask(client))[0] == 503
            async with client.get("/health") as answer:
                assert answer.status == 503

    asyncio.run(run())


def test_given_up_after_its_attempts():
    async def run():
        engines = [Engine(failing), Engine(failing)]
        async with running([Engine()], engines, attempts=2) as (_, client):
            status, answer = await ask(client)
            assert status == 502 and "2 attempts" in answer["error"]["message"]
            assert sum(len(each.seen) for each in engines) == 2

    asyncio.run(run())


def test_what_counts_as_given_up():
    assert is_abort(b'data: {"meta_info": {"finish_reason": {"type": "abort", "status_code": 503}}}\n\n')
    assert not is_abort(b'{"meta_info": {"finish_reason": {"type": "abort", "status_code": 400}}}')
    assert not is_abort(b"data: [DONE]")
    assert not is_abort(b'{"text": "abort"}')
