"""Relays to a server. Their connections can go dead without being closed, as through a firewall that forgets them.
Single commands of MongoDB can be lost, refused or left unanswered.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from embedded.mongo.wire import Request, encode_reply, parse

_HEADER = struct.Struct("<iiii")


@dataclass
class Connection:
    #: The port at the client's end.
    port: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    #: The tasks of both directions; empty once the connection was forgotten.
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    #: Whether the client spoke last.
    asked: bool = False
    #: When it was last used for anything but a heartbeat (monotonic time).
    used_at: float = 0.0


class Relay:
    def __init__(self, target_port: int, *, address: str = "127.0.0.1", port: int = 0) -> None:
        """Listens at the address, on `port` or on a free one. The server is on loopback."""
        self.address, self.port = address, port
        #: How often a client spoke for the first time, or after the server. Data without an answer in between counts
        #: once.
        self.round_trips = 0
        #: Seconds by which each piece of data is delayed, in each direction.
        self.delay = 0.0
        self._target_port = target_port
        self._connections: dict[int, Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._is_closed = False

    @classmethod
    def before(cls, url: str) -> Self:
        return cls(urlsplit(url).port or 0)

    def url(self, url: str) -> str:
        """The URL of the same server, through this relay."""
        return url.replace(f":{urlsplit(url).port}", f":{self.port}")

    def ports(self) -> list[int]:
        """The clients' ports of the connections that are open and not forgotten. The last one was used last."""
        connected = [connection for connection in list(self._connections.values()) if connection.tasks]
        return [connection.port for connection in sorted(connected, key=lambda one: one.used_at)]

    def forget(self, ports: Collection[int] | None = None) -> None:
        """Forget all present connections, or those with these clients' ports. New ones work."""
        self._loop.call_soon_threadsafe(self._forget, ports)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """During this block, all connections are closed, and new ones are closed at once."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._close)
        try:
            yield
        finally:
            self._is_closed = False

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        self.forget()
        yield

    @contextmanager
    def running(self) -> Iterator[Self]:
        listening = threading.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(listening),))
        thread.start()
        listening.wait(60)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stopped.set)
            thread.join(60)
            self._loop.close()

    async def _serve(self, listening: threading.Event) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._connect, self.address, self.port)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await self._stopped.wait()
        server.close()
        self._forget()
        self._close()
        await asyncio.sleep(0)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        port = writer.get_extra_info("peername")[1]
        connection = self._connections[port] = Connection(port, writer, far_writer)
        for passing in (self._ask(reader, connection), self._answer(far_reader, connection)):
            connection.tasks.add(asyncio.create_task(passing))

    async def _ask(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        await self._pass_on(reader, connection.server, connection)

    async def _answer(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        await self._pass_on(reader, connection.client, connection)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, connection: Connection
    ) -> None:
        try:
            while data := await self._read(source, connection):
                await asyncio.sleep(self.delay)
                asks = sink is connection.server
                self.round_trips += asks and not connection.asked
                connection.asked = asks
                connection.used_at = time.monotonic() if asks else connection.used_at
                sink.write(data)
                await sink.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        # only connections that ended: forgotten ones stay open
        sink.close()
        connection.tasks.clear()

    async def _read(self, source: asyncio.StreamReader, _connection: Connection) -> bytes:
        return await source.read(65536)

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.client.close()
            connection.server.close()

    def _forget(self, ports: Collection[int] | None = None) -> None:
        for port, connection in self._connections.items():
            if ports is None or port in ports:
                for task in connection.tasks:
                    task.cancel()
                connection.tasks.clear()


class Refuse(NamedTuple):
    """This is answered, and the server is not asked."""

    answer: dict[str, Any]


_HELLO: dict[str, Any] = {
    "ok": 1.0,
    "isWritablePrimary": True,
    "helloOk": True,
    "readOnly": False,
    "minWireVersion": 0,
    "maxWireVersion": 21,
    "logicalSessionTimeoutMinutes": 30,
    "maxBsonObjectSize": 16 << 20,
    "maxMessageSizeBytes": 48_000_000,
    "maxWriteBatchSize": 100_000,
}
#: The server is asked, and the connection is closed before it has answered.
LOSE = "lose"
#: From here on nothing more arrives on this connection, which stays open.
SILENCE = "silence"
#: Decides what happens to a command; `None` means nothing special.
Fault = Callable[[dict[str, Any]], "Refuse | str | None"]


def failure(code: int, *labels: str) -> Refuse:
    """An error as MongoDB answers it."""
    answer = {"ok": 0.0, "code": code, "codeName": f"Code{code}", "errmsg": f"as told ({code})"}
    return Refuse({**answer, "errorLabels": list(labels)} if labels else answer)


class MongoRelay(Relay):
    """A relay that understands the protocol. `fault` decides about each command, in a thread of its own. Handshakes
    and heartbeats of drivers are not asked about.
    """

    def __init__(self, target_port: int, fault: Fault = lambda _: None) -> None:
        super().__init__(target_port)
        self.fault = fault
        #: How far the server's clock is ahead, in its answers to drivers' heartbeats.
        self.ahead = timedelta()
        #: How often each command was sent, by name.
        self.asked: Counter[str] = Counter()
        self._lost: set[tuple[int, int]] = set()

    async def _ask(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        try:
            while True:
                message = await _message(reader)
                if self._lets_pass(parse(message), connection):
                    connection.server.write(message)
                    await connection.server.drain()
        except (OSError, asyncio.IncompleteReadError):
            connection.server.close()
            connection.tasks.clear()

    def _lets_pass(self, request: Request, connection: Connection) -> bool:
        """Whether the server is asked."""
        name = next(iter(request.command))
        if request.is_legacy:
            return True
        if name == "hello":
            if self.ahead:
                answer = {**_HELLO, "localTime": datetime.now(UTC) + self.ahead}
                connection.client.write(encode_reply(request, answer))
            return not self.ahead
        self.asked[name] += 1
        connection.used_at = time.monotonic()
        match self.fault(request.command):
            case Refuse(answer):
                connection.client.write(encode_reply(request, answer))
                return False
            case "lose":
                self._lost.add((connection.port, request.request_id))
            case "silence":
                self._forget({connection.port})
                return False
        return True

    async def _read(self, source: asyncio.StreamReader, connection: Connection) -> bytes:
        message = await _message(source)
        if (connection.port, _HEADER.unpack_from(message)[2]) in self._lost:
            connection.client.transport.abort()
            raise ConnectionAbortedError
        return message


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "little") - 4)
