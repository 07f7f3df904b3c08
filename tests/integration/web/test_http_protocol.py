"""Clients that never end their request or never read the answer, each as bytes on a socket."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn
from stack import wait_until

from gateway.web import http_protocol
from gateway.web.http_protocol import BoundedProtocol

SECONDS = 1.0
#: An address that no other test uses: a client of a server that had our port before would be one more connection.
ADDRESS = "127.9.8.7"
END = b"\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
#: More bytes than the system buffers for a client that does not read.
LONG = 64 << 20


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body and of the headers. `/early` reads no body, `/long` sends `LONG` bytes."""
    if scope["type"] != "http":
        return
    size, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    told = bytes(LONG) if scope["path"] == "/long" else b"%d %d" % (size, len(scope["headers"]))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(told))]})
    await send({"type": "http.response.body", "body": told})


class Server:
    def __init__(self) -> None:
        # a class of its own, so that idle connections of other tests' servers in this process do not count
        self._protocol = type("OwnProtocol", (BoundedProtocol,), {"idle": {}, "unread": {}})
        config = uvicorn.Config(
            app, host=ADDRESS, port=0, http=self._protocol, log_config=None, lifespan="off", ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_until(lambda: self._server.started, what="the server")
        self.address = self._server.servers[0].sockets[0].getsockname()

    def connect(self, source: str = "") -> socket.socket:
        return socket.create_connection(self.address, timeout=60, source_address=(source, 0))

    def counts(self) -> tuple[int, int]:
        """How many connections the server has, and how many of these have no request under way."""
        idle = sum(map(len, list(self._protocol.idle.values())))
        return len(self._server.server_state.connections), idle

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose time limits no busy machine reaches. Tests that wait for the limits use `short`."""
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 60)
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 60)
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def short(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", SECONDS)
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", SECONDS)


@pytest.fixture
def client(server: Server) -> Iterator[socket.socket]:
    with server.connect() as connection:
        yield connection


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer; status 0 if the connection ends without an answer."""
    head = b""
    while not head.endswith(END):
        if not (byte := connection.recv(1)):
            return 0, head
        head += byte
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head.split()[1]), connection.recv(int(length.partition(b":")[2]), socket.MSG_WAITALL)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def told(connection: socket.socket) -> tuple[int, str]:
    status, body = answer(connection)
    error = json.loads(body)
    assert error["request_id"]
    return status, error["error"]["code"]


def lines(number: int, value: bytes = b"x") -> bytes:
    return b"".join(b"X-%d: %s\r\n" % (n, value) for n in range(number))


def test_what_is_within_the_limits_is_served_in_one_piece_and_in_many(client: socket.socket) -> None:
    whole = POST + lines(96, b"x" * 600) + b"Content-Length: 5\r\n\r\nhello" + GET + END[2:] + GET + END[2:]
    for step in (len(whole), 7919, 1009):
        for start in range(0, len(whole), step):
            client.sendall(whole[start : start + step])
        assert [answer(client) for _ in range(3)] == [(200, b"5 98"), (200, b"0 1"), (200, b"0 1")]


@pytest.mark.parametrize(
    "head",
    [
        GET + lines(100) + END[2:],
        GET + lines(60, b"x" * 1200) + END[2:],
        b"GET /" + b"x" * (70 << 10) + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["lines", "bytes", "address"],
)
def test_headers_that_are_too_large_are_a_431(client: socket.socket, head: bytes) -> None:
    client.sendall(head)
    assert told(client) == (431, "headers_too_large")
    assert is_closed(client)


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (GET + b"X-Endless: ", b"x"),
        (GET, b"X-Line: y\r\n"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Endless: ", b"x"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Line: y\r\n"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n5;extension=", b"x"),
    ],
    ids=["header", "headers", "trailer", "trailers", "extension"],
)
def test_what_has_no_end_is_cut_off_and_nobody_waits_for_it(
    server: Server, client: socket.socket, begin: bytes, part: bytes
) -> None:
    client.sendall(begin)
    sent, began = 0, time.monotonic()
    try:
        while sent < 64 << 20:
            client.sendall(part * 4096)
            sent += len(part) * 4096
    except OSError:
        pass
    assert sent < 16 << 20
    assert time.monotonic() - began < 30
    with server.connect() as other:
        other.sendall(GET + END[2:])
        assert answer(other) == (200, b"0 1")


@pytest.mark.usefixtures("short")
def test_headers_have_to_be_complete_in_time(client: socket.socket) -> None:
    began = time.monotonic()
    client.sendall(GET)
    stop = threading.Event()
    dripping = threading.Thread(target=_drip, args=(client, stop))
    dripping.start()
    assert told(client) == (408, "request_timeout")
    assert SECONDS * 0.9 < time.monotonic() - began < SECONDS + 30
    stop.set()
    dripping.join()


@pytest.mark.usefixtures("short")
def test_so_have_those_of_a_further_request_on_the_same_connection(client: socket.socket) -> None:
    client.sendall(GET + END[2:])
    assert answer(client) == (200, b"0 1")
    client.sendall(GET)
    assert told(client) == (408, "request_timeout")


def _drip(connection: socket.socket, stop: threading.Event) -> None:
    while not stop.wait(0.05):
        try:
            connection.sendall(b"x")
        except OSError:
            return


@pytest.mark.usefixtures("short")
def test_a_connection_that_says_nothing_is_closed(client: socket.socket) -> None:
    began = time.monotonic()
    assert is_closed(client)
    assert time.monotonic() - began > SECONDS * 0.9


@pytest.mark.usefixtures("short")
def test_a_body_that_drips_is_cut_off(client: socket.socket) -> None:
    client.sendall(POST + b"Content-Length: 100000\r\n\r\n")
    stop = threading.Event()
    dripping = threading.Thread(target=_drip, args=(client, stop))
    dripping.start()
    assert told(client) == (408, "request_timeout")
    stop.set()
    dripping.join()


@pytest.mark.usefixtures("short")
def test_also_where_it_was_answered_before_its_end(client: socket.socket) -> None:
    client.sendall(POST.replace(b"/ ", b"/early ") + b"Content-Length: 100000\r\n\r\n")
    assert answer(client) == (200, b"0 2")
    stop = threading.Event()
    dripping = threading.Thread(target=_drip, args=(client, stop))
    dripping.start()
    assert is_closed(client)
    stop.set()
    dripping.join()


def test_a_slow_body_arrives(client: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 1.5)
    monkeypatch.setattr(http_protocol, "BODY_BYTES", 1000)
    client.sendall(POST + b"Content-Length: 20000\r\n\r\n")
    for _ in range(20):
        client.sendall(b"x" * 1000)
        time.sleep(0.2)
    assert answer(client) == (200, b"20000 2")


def test_an_answer_that_nobody_reads_is_not_kept(
    server: Server, client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "READ_SECONDS", SECONDS)
    client.sendall(GET.replace(b"/", b"/long", 1) + b"\r\n")
    assert client.recv(12) == b"HTTP/1.1 200"
    wait_until(lambda: server.counts() == (0, 0), what="its end")
    assert received(client) < LONG


def test_one_that_is_read_slowly_arrives(
    server: Server, client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "READ_SECONDS", 2.0)
    client.sendall(GET.replace(b"/", b"/long", 1) + b"Connection: close\r\n\r\n")
    assert received(client, pause=LONG // 8) > LONG
    wait_until(lambda: server.counts() == (0, 0), what="its end")


@pytest.mark.parametrize(("limit", "answers"), [("UNREAD_BYTES", 3), ("UNREAD_BYTES_OF_ALL", 4)])
def test_of_more_than_a_user_or_all_may_leave_unread_those_go_who_have_waited_longest(
    server: Server, monkeypatch: pytest.MonkeyPatch, limit: str, answers: int
) -> None:
    """If all users together leave too much unread, the connections of the user with most of it are closed."""
    monkeypatch.setattr(http_protocol, limit, answers * LONG)
    with ExitStack() as ends:
        other, *ours = (ends.enter_context(server.connect(source)) for source in ("127.9.8.6", *[""] * 6))
        for number, client in enumerate((other, *ours)):
            client.sendall(GET.replace(b"/", b"/long", 1) + b"Connection: close\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            if number == 3:
                # the clients before are slow by now, and those that come next are not
                time.sleep(1.5 * http_protocol.IDLE_SECONDS)
        wait_until(lambda: server.counts() == (4, 0), what="the end of the slowest three")
        assert [received(client) > LONG for client in (other, *ours)] == [True, *[False] * 3, *[True] * 3]


def received(connection: socket.socket, pause: int = 0) -> int:
    """How many bytes came until the end. With `pause`, wait half a second after each so many bytes."""
    total, since = 0, 0
    try:
        while piece := connection.recv(1 << 16):
            total, since = total + len(piece), since + len(piece)
            if pause and since >= pause:
                time.sleep(0.5)
                since = 0
    except ConnectionResetError:
        pass
    return total


def test_where_handles_become_few_those_go_who_only_wait(
    server: Server, client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # negative, because the loop's clock counts milliseconds, and the whole test may fit into one
    monkeypatch.setattr(http_protocol, "IDLE_SECONDS", -1)
    monkeypatch.setattr(BoundedProtocol, "most_connections", 5)
    client.sendall(POST + b"Content-Length: 1\r\n\r\n")
    wait_until(lambda: server.counts() == (1, 0), what="a request under way")
    with ExitStack() as opened:
        waiting = [opened.enter_context(server.connect()) for _ in range(4)]
        wait_until(lambda: server.counts() == (5, 4), what="four idle connections")
        late = opened.enter_context(server.connect())
        assert is_closed(waiting[0])
        late.sendall(GET + END[2:])
        assert answer(late) == (200, b"0 1")
        client.sendall(b"x")
        assert answer(client) == (200, b"1 2")


def test_every_process_of_the_gateway_is_given_it() -> None:
    """Uvicorn pickles the protocol's class for the processes that it starts."""
    assert pickle.loads(pickle.dumps(BoundedProtocol)) is BoundedProtocol
