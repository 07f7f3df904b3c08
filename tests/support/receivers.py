"""Receivers of webhooks on real sockets, which misbehave as a test wants."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain, count, repeat
from typing import NamedTuple, Self

Behaviour = Callable[[socket.socket], None]


class Call(NamedTuple):
    #: Monotonic time.
    at: float
    path: str
    body: bytes
    #: By their names in lower case.
    headers: dict[str, str]


def answer(status: int = 200, *headers: str) -> Behaviour:
    head = "".join(f"{header}\r\n" for header in headers)
    return lambda connection: connection.sendall(
        f"HTTP/1.1 {status} Told\r\n{head}Content-Length: 0\r\n\r\n".encode()
    )


#: Accepts each call.
WELL = answer()


def drip(seconds: float) -> Behaviour:
    """Sends one byte of an endless answer every `seconds`, so that no single byte is waited for long."""

    def send(connection: socket.socket) -> None:
        for byte in chain(b"HTTP/1.1 200 OK\r\nX: ", repeat(ord("x"))):
            connection.sendall(bytes([byte]))
            if _is_gone(connection, seconds):
                return

    return send


def _is_gone(connection: socket.socket, seconds: float) -> bool:
    """Whether the other side closes the connection within `seconds`."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    return True


def _has_other_side(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", 0))  # absent on macOS
    return not poll.poll(0)


def endlessly(first: bytes, again: bytes) -> Behaviour:
    def send(connection: socket.socket) -> None:
        connection.sendall(first)
        for _ in count():
            connection.sendall(again * 1000)

    return send


ENDLESS_HEADERS = endlessly(b"HTTP/1.1 200 OK\r\n", b"X-Header: and one more\r\n")
ENDLESS_HINTS = endlessly(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")
ENDLESS_BODY = endlessly(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nagain\r\n")


def never(connection: socket.socket) -> None:
    """Reads the request, and sends nothing until the other side closes the connection."""
    _is_gone(connection, 3600)


class Receiver:
    """Listens on all loopback addresses, or on the given one, so it can stand for as many hosts as a test needs."""

    def __init__(
        self, behaviour: Behaviour, *, reads: bool = True, address: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.behaviour = behaviour
        #: Whether it reads the request before it does anything else.
        self._reads = reads
        self._tls = tls
        self.calls: list[Call] = []
        #: Calls that it has answered with success.
        self.taken: list[Call] = []
        #: Number of open connections, and the most at any time.
        self.open = self.most_open = 0
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._socket = socket.create_server((address, 0), backlog=200)
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # wakes the accepting thread
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def url(self, path: str = "/hook", *, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [call.path for call in list(self.calls)]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        if self._tls:
            # the handshake happens with the first read, so that its failure is caught below
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        # the other side may close the connection at any time
        with closing(connection), suppress(OSError), self._counted(connection):
            call = _read(connection) if self._reads else None
            if call:
                self.calls.append(call)
            behaviour = self.behaviour
            behaviour(connection)
            if call and behaviour is WELL:
                self.taken.append(call)

    @contextmanager
    def _counted(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self.open += 1
            self._connections.add(connection)
            # a connection whose other side is gone does not count, even if its thread has not noticed yet
            self.most_open = max(self.most_open, sum(map(_has_other_side, self._connections)))
        try:
            yield
        finally:
            with self._lock:
                self.open -= 1
                self._connections.remove(connection)


def _read(connection: socket.socket) -> Call:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _more(connection)
    lines = head.decode("latin-1").split("\r\n")[1:]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Call(time.monotonic(), head.split(b" ")[1].decode(), body, headers)


def _more(connection: socket.socket) -> bytes:
    if not (received := connection.recv(1 << 16)):
        raise ConnectionError
    return received


@contextmanager
def black_hole(address: str, port: int) -> Iterator[None]:
    """An address where connections are neither accepted nor refused: the queue is full, and nothing takes from it."""
    with socket.create_server((address, port), backlog=0), closing(socket.socket()) as first:
        first.connect((address, port))
        yield
