"""A server on loopback that answers as a test says. An answer can be shorter than announced."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple


class Asked(NamedTuple):
    """A request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


Answer = Callable[[Asked, socket.socket], None]


def whole(content: object, status: int = 200, **headers: str) -> Answer:
    """A complete answer."""
    return part(content, None, status, **headers)


def part(content: object, size: int | None, status: int = 200, **headers: str) -> Answer:
    """The first bytes of an answer, after which the connection is closed."""

    def answer(_asked: Asked, connection: socket.socket) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        lines = [f"HTTP/1.1 {status} .", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body[:size])

    return answer


def nothing(_asked: Asked, _connection: socket.socket) -> None:
    """Closes the connection after the request was read."""


class StandIn:
    """Gives its answers one after the other, and then repeats the last one."""

    def __init__(self, listener: socket.socket, answers: list[Answer], tls: ssl.SSLContext | None) -> None:
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        self.asked: list[Asked] = []
        self._listener = listener
        self._answers = answers
        self._tls = tls

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), self._secured(connection) as secured:
            asked = _read(secured)
            self.asked.append(asked)
            self._answers[min(len(self.asked), len(self._answers)) - 1](asked, secured)

    def _secured(self, connection: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection


@contextmanager
def stand_in(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[StandIn]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = StandIn(listener, list(answers), tls)
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _read(connection: socket.socket) -> Asked:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += _more(connection)
    return Asked(method, target, headers, body)


def _more(connection: socket.socket) -> bytes:
    received = connection.recv(65536)
    if not received:
        raise ConnectionAbortedError
    return received
