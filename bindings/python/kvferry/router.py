"""A small proxy in front of prefill and decode engines of SGLang, for tests and demos.

    python -m kvferry.router --prefill http://10.0.0.1:30000 8998 --decode http://10.0.0.2:30000 --port 8000

Every request goes to one prefill and one decode engine with the same `bootstrap_host`, `bootstrap_port` and
`bootstrap_room`, as SGLang's mini load balancer gives them; the answer is decode's. A request whose engine fails before
the client has seen anything is tried again with others; an instance that refuses or breaks connections gets no requests
until its `/health` answers again. In production use SGLang's gateway (sgl-router) or Dynamo: this one has no
authentication, no metrics, and balances by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import secrets
import typing
import urllib.parse

import aiohttp
from aiohttp import web

logger = logging.getLogger("kvferry.router")

GENERATE_PATHS = ("/generate", "/v1/completions", "/v1/chat/completions")


@dataclasses.dataclass(eq=False)
class Instance:
    """One engine. `bootstrap_port` for prefill engines."""

    url: str
    bootstrap_port: int | None = None
    alive: bool = True

    @property
    def host(self) -> str:
        """As engines expect it: IPv6 addresses in brackets."""
        host = urllib.parse.urlsplit(self.url).hostname or ""
        return f"[{host}]" if ":" in host else host


class NoneAlive(Exception):
    pass


class Broken(Exception):
    """An engine failed before the client saw anything. `suspect` is the instance that did, where one is to blame."""

    def __init__(self, why: str, suspect: Instance | None = None) -> None:
        super().__init__(why)
        self.suspect = suspect


class Pool:
    """Instances of one role, taken by turns; dead ones are left out until they answer again."""

    def __init__(self, role: str, instances: typing.Iterable[Instance]) -> None:
        self.role = role
        self.instances = list(instances)
        self._turn = itertools.count()

    def pick(self, tried: typing.Container[Instance]) -> Instance:
        alive = [each for each in self.instances if each.alive]
        # One that was tried before is better than none: it may have failed of the other side.
        choice = [each for each in alive if each not in tried] or alive
        if not choice:
            raise NoneAlive(f"no {self.role} instance is alive")
        return choice[next(self._turn) % len(choice)]


class Router:
    """The application. `attempts`: how many pairs of engines a request is tried on."""

    def __init__(
        self,
        prefill: typing.Iterable[Instance],
        decode: typing.Iterable[Instance],
        *,
        attempts: int = 3,
        health_interval_s: float = 1.0,
    ) -> None:
        self.prefill, self.decode = Pool("prefill", prefill), Pool("decode", decode)
        self.attempts = attempts
        self.health_interval_s = health_interval_s
        self._session: aiohttp.ClientSession | None = None
        self.app = web.Application(client_max_size=256 << 20)
        self.app.router.add_get("/health", self._health)
        self.app.router.add_get("/v1/models", self._models)
        for path in GENERATE_PATHS:
            self.app.router.add_post(path, self._generate)
        self.app.cleanup_ctx.append(self._running)

    async def _running(self, app: web.Application) -> typing.AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=2)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            watch = asyncio.create_task(self._watch())
            yield
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _watch(self) -> None:
        """Asks dead instances whether they are back, and living ones whether they are dead."""
        while True:
            await asyncio.gather(*(self._ask(each) for each in self.prefill.instances + self.decode.instances))
            await asyncio.sleep(self.health_interval_s)

    async def _ask(self, instance: Instance) -> None:
        try:
            async with self._session.get(instance.url + "/health", timeout=aiohttp.ClientTimeout(total=2)) as answer:
                self._note(instance, answer.status < 500, f"/health says {answer.status}")
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            self._note(instance, False, repr(error))

    @staticmethod
    def _note(instance: Instance, alive: bool, why: str) -> None:
        if instance.alive != alive:
            logger.warning("%s is %s: %s", instance.url, "back" if alive else "taken out", why)
        instance.alive = alive

    async def _health(self, request: web.Request) -> web.Response:
        good = all(any(each.alive for each in pool.instances) for pool in (self.prefill, self.decode))
        return web.Response(status=200 if good else 503, text="OK" if good else "no living pair of engines")

    async def _models(self, request: web.Request) -> web.Response:
        try:
            async with self._session.get(self.prefill.pick(()).url + "/v1/models") as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")
        except (NoneAlive, aiohttp.ClientError) as error:
            return _refuse(503, str(error))

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except json.JSONDecodeError as error:
            return _refuse(400, f"the body is not JSON: {error}")
        tried: set[Instance] = set()
        why = ""
        for attempt in range(self.attempts):
            try:
                pair = self.prefill.pick(tried), self.decode.pick(tried)
            except NoneAlive as error:
                return _refuse(503, str(error))
            try:
                return await self._try(request, body, *pair)
            except Broken as broken:
                why = str(broken)
                logger.info("attempt %d of %s: %s", attempt + 1, request.path, why)
                if broken.suspect is not None:
                    self._note(broken.suspect, False, why)
                    tried.add(broken.suspect)
                else:
                    tried.update(pair)
        return _refuse(502, f"given up after {self.attempts} attempts: {why}")

    async def _try(self, request: web.Request, body: dict, prefill: Instance, decode: Instance) -> web.StreamResponse:
        body = with_bootstrap(body, prefill)
        computing = asyncio.create_task(self._compute(prefill, request.path, body))
        try:
            return await self._answer(request, body, decode, computing)
        finally:
            computing.cancel()
            with contextlib.suppress(asyncio.CancelledError, Broken):
                await computing

    async def _compute(self, prefill: Instance, path: str, body: dict) -> None:
        """Prefill's answer is of no interest, but whether it gives one is."""
        try:
            async with self._session.post(prefill.url + path, json=body) as answer:
                text = await answer.text()
                if answer.status >= 500:
                    raise Broken(f"prefill {prefill.url} answered {answer.status}: {text[:200]}")
        except aiohttp.ClientError as error:
            raise Broken(f"prefill {prefill.url}: {error!r}", prefill) from error

    async def _answer(
        self, request: web.Request, body: dict, decode: Instance, computing: asyncio.Task
    ) -> web.StreamResponse:
        decoding = asyncio.create_task(self._session.post(decode.url + request.path, json=body).__aenter__())
        try:
            await asyncio.wait({decoding, computing}, return_when=asyncio.FIRST_COMPLETED)
            if computing.done() and not decoding.done() and (failed := computing.exception()) is not None:
                raise failed
            answer = await decoding
        except aiohttp.ClientError as error:
            raise Broken(f"decode {decode.url}: {error!r}", decode) from error
        finally:
            decoding.cancel()
        async with contextlib.aclosing(_Closing(answer)):
            return await self._pass_on(request, answer, decode)

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, decode: Instance
    ) -> web.StreamResponse:
        chunks = answer.content.iter_any()
        try:
            first = await anext(chunks, b"")
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Broken(f"decode {decode.url} broke off: {error!r}", decode) from error
        if answer.status >= 500 or is_abort(first):
            raise Broken(f"decode {decode.url} answered {answer.status}: {first[:200]!r}")
        response = web.StreamResponse(
            status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")}
        )
        await response.prepare(request)
        await response.write(first)
        try:
            async for chunk in chunks:
                await response.write(chunk)
        except (aiohttp.ClientError, ConnectionError) as error:  # too late for another try: the client has seen a part
            logger.error("decode %s broke off in the middle of an answer: %r", decode.url, error)
            self._note(decode, False, repr(error))
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
        return response


class _Closing:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def aclose(self) -> None:
        self._answer.close()


def with_bootstrap(body: dict, prefill: Instance) -> dict:
    """The body with host, port and a fresh room; lists of them for a batch."""
    size = batch_size(body)

    def each(value: typing.Callable[[], typing.Any]) -> typing.Any:
        return value() if size is None else [value() for _ in range(size)]

    return {
        **body,
        "bootstrap_host": each(lambda: prefill.host),
        "bootstrap_port": each(lambda: prefill.bootstrap_port),
        "bootstrap_room": each(lambda: secrets.randbelow(1 << 63)),
    }


def batch_size(body: dict) -> int | None:
    if isinstance(body.get("text"), list):
        return len(body["text"])
    if isinstance(body.get("input_ids"), list) and body["input_ids"] and isinstance(body["input_ids"][0], list):
        return len(body["input_ids"])
    return None


def is_abort(first: bytes) -> bool:
    """Whether an engine gave the request up before its first token, which SGLang may say with status 200."""
    text = first.removeprefix(b"data: ").strip()
    try:
        said = json.loads(text)
    except ValueError:
        return False
    if not isinstance(said, dict):
        return False
    reason = said.get("meta_info", {}).get("finish_reason") if isinstance(said.get("meta_info"), dict) else None
    # 4xx is the client's fault and ends as it is.
    if isinstance(reason, dict) and reason.get("type") == "abort":
        return (reason.get("status_code") or 500) >= 500
    return isinstance(said.get("error"), dict) and (said["error"].get("code") or 0) >= 500


def _refuse(status: int, why: str) -> web.Response:
    return web.json_response({"error": {"message": why, "code": status}}, status=status)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m kvferry.router", description="A small proxy for tests and demos.")
    parser.add_argument("--prefill", nargs=2, action="append", required=True, metavar=("URL", "BOOTSTRAP_PORT"))
    parser.add_argument("--decode", action="append", required=True, metavar="URL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--attempts", type=int, default=3)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    router = Router(
        [Instance(url.rstrip("/"), int(port)) for url, port in args.prefill],
        [Instance(url.rstrip("/")) for url in args.decode],
        attempts=args.attempts,
    )
    web.run_app(router.app, host=args.host, port=args.port, print=None)


if __name__ == "__main__":
    main()
