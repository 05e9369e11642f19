"""The bootstrap server, and what engines ask of one beside routes: each other's sizes, and where rooms went."""

from __future__ import annotations

import hmac
import http.client
import json
import logging
import os
import secrets
import typing

from sglang.srt.disaggregation.base.conn import BaseKVBootstrapServer

from .._kvferry import BootstrapServer
from ._engine import host_of, join_host_port

logger = logging.getLogger("kvferry.sglang")

TIMEOUT_S = 5


class KvferryKVBootstrapServer(BaseKVBootstrapServer):
    """kvferry's bootstrap server under SGLang's name. `host` is missing in 0.4.7: all interfaces then."""

    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        if len(args) == 1 and not kwargs:
            args = ("0.0.0.0", *args)
        host, port = _host_and_port(*args, **kwargs)
        self._server = BootstrapServer(host, port)
        self.host, self.port = host, int(self._server.address.rpartition(":")[2])
        logger.info("bootstrap server at %s", self._server.address)

    def poll(self) -> None:
        """Nothing to say, as SGLang's own."""

    def close(self) -> None:
        self._server.close()


def _host_and_port(host: str = "0.0.0.0", port: int = 8998, **_: typing.Any) -> tuple[str, int]:
    return host, port


def ask(address: str, method: str, target: str, body: dict | None = None) -> typing.Any:
    """One exchange with the server at "host:port"; the token is proven where the server asks for it. Raises OSError."""
    text = "" if body is None else json.dumps(body)
    status, headers, answer = _exchange(address, method, target, text, {})
    if status == 401 and (token := os.environ.get("KVFERRY_TOKEN")):
        nonce = secrets.token_hex(16)
        _, challenged, _ = _exchange(address, method, target, text, {"X-Kvferry-Nonce": nonce})
        challenge = challenged.get("X-Kvferry-Challenge", "")
        status, headers, answer = _exchange(
            address,
            method,
            target,
            text,
            {
                "X-Kvferry-Nonce": nonce,
                "X-Kvferry-Challenge": challenge,
                "X-Kvferry-Proof": _proof(token, "http-request", method, target, text, nonce, challenge),
            },
        )
        expected = _proof(token, "http-answer", str(status), answer, nonce, challenge)
        if not hmac.compare_digest(headers.get("X-Kvferry-Proof", ""), expected):
            raise OSError(f"bootstrap server {address} does not prove KVFERRY_TOKEN: {status} {answer[:200]}")
    if status != 200:
        raise OSError(f"bootstrap server {address} answered {method} {target} with {status} {answer[:200]}")
    return json.loads(answer) if headers.get("Content-Type", "").startswith("application/json") else answer


def _exchange(
    address: str, method: str, target: str, body: str, headers: dict[str, str]
) -> tuple[int, typing.Any, str]:
    host, port = host_of(address), int(address.rpartition(":")[2])
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, body.encode(), {"Host": join_host_port(host, port), **headers})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    except http.client.HTTPException as error:
        raise OSError(f"bootstrap server {address}: {error}") from error
    finally:
        connection.close()


def _proof(token: str, *parts: str) -> str:
    """docs/reference/http.md, "The shared token"."""
    made = hmac.new(token.encode(), digestmod="sha256")
    for part in parts:
        made.update(len(part.encode()).to_bytes(8, "little") + part.encode())
    return made.hexdigest()


class PrefillInfo:
    """What a prefill instance says of itself: the fields that its bootstrap server answers, as attributes."""

    def __init__(self, answer: dict[str, typing.Any]) -> None:
        self.__dict__.update(answer)

    # SGLang 0.4.7 and whatever a later version may ask for and this server does not answer.
    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def prefill_info(address: str) -> PrefillInfo:
    return PrefillInfo(
        ask(address, "GET", "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1")
    )


def query_dp_ranks(address: str, rooms: list[int]) -> dict[str, int]:
    """Which data-parallel group has which room; rooms that nobody has are left out."""
    try:
        return ask(address, "POST", "/query_dp_ranks", {"bootstrap_rooms": rooms})
    except OSError as error:
        logger.error("could not ask for the dp ranks of %d rooms: %s", len(rooms), error)
        return {}
