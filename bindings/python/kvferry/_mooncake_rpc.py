"""How one kvferry.mooncake.TransferEngine asks another to take a room: a line of JSON there, a line of JSON back."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import socketserver
import sys
import threading
import typing

from ._errors import Error

logger = logging.getLogger("kvferry.mooncake")

LINE_BYTES_MAX = 16 << 20  # what is longer is no JSON then, and answered so


def host_of(name: str) -> str:
    """Of "host", "host:port" and "[v6]:port"."""
    if name.startswith("["):
        return name[1 : name.index("]")]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


class Connection:
    def __init__(self, target: str, timeout_s: float) -> None:
        self._socket = socket.create_connection((host_of(target), int(target.rpartition(":")[2])), timeout=5)
        self._socket.settimeout(timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")

    def ask(self, request: dict) -> dict:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the other engine has closed the connection")
        return json.loads(line)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Server:
    """Answers each line of JSON with one; a thread a connection."""

    def __init__(self, host: str, serve: typing.Callable[[dict], dict]) -> None:
        connections = self._connections = set[socket.socket]()

        class Handler(socketserver.StreamRequestHandler):
            disable_nagle_algorithm = True

            def handle(self) -> None:
                connections.add(self.connection)
                try:
                    self.answer_lines()
                finally:
                    connections.discard(self.connection)

            def answer_lines(self) -> None:
                while line := self.rfile.readline(LINE_BYTES_MAX):
                    try:
                        answer = serve(json.loads(line))
                    except (Error, ValueError, TypeError, KeyError) as error:
                        answer = {"error": str(error)}
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

        class Listener(socketserver.ThreadingTCPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request, client_address) -> None:
                logger.info("a connection from %s broke off: %r", client_address, sys.exc_info()[1])

        self._server = Listener((host, 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="kvferry-mooncake-rpc", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # it may have ended by itself
                connection.shutdown(socket.SHUT_RDWR)
