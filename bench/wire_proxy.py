"""A proxy between processes and a store. It passes on every byte, and counts which process sends what,
and how often.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

import psutil

_HEADER = struct.Struct("<iiii")
_OP_MSG = 2013
_STRING = 2
#: Offset of the name of the first field in an OP_MSG's body: after header, flags, section kind and size.
_FIRST_FIELD = 16 + 4 + 1 + 4
#: Commands that change nothing.
READS = frozenset({"find", "getMore", "count", "distinct", "aggregate"})
#: Commands that drivers send on their own.
UPKEEP = frozenset({"hello", "isMaster", "ismaster", "ping", "endSessions", "killCursors"})

#: Takes the place of a command where bytes are counted.
BYTES = "bytes"


class Asked(NamedTuple):
    """One kind of command of one process."""

    #: Id of the process that sent it.
    pid: int
    command: str
    collection: str = ""


class Observer(Protocol):
    """Sees the bytes of one connection."""

    def asked(self, data: bytes) -> None: ...
    def answered(self, data: bytes) -> None: ...


class Commands:
    """Counts MongoDB's commands in what clients send. Only the first field is read, which has the command and the
    collection. A cursor's next page (`getMore`) has no collection there, and is counted without one.
    """

    def __init__(self, pid: int, counts: Counter[Asked]) -> None:
        self._pid, self._counts, self._buffer = pid, counts, bytearray()

    def asked(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length, _, _, operation = _HEADER.unpack_from(self._buffer)
            if len(self._buffer) < length:
                return
            if operation == _OP_MSG:
                self._count(bytes(self._buffer[_FIRST_FIELD : min(length, _FIRST_FIELD + 256)]))
            del self._buffer[:length]

    def answered(self, _: bytes) -> None:
        """Answers are not counted."""

    def _count(self, field: bytes) -> None:
        command, _, value = field[1:].partition(b"\0")
        collection = value[4:].partition(b"\0")[0] if field[0] == _STRING else b""
        self._counts[Asked(self._pid, command.decode(), collection.decode())] += 1


class RoundTrips:
    """Counts how often a client waits: everything that it sends before the next answer is one round trip."""

    def __init__(self, pid: int, counts: Counter[Asked]) -> None:
        self._asked, self._counts, self._waits = Asked(pid, "round trip"), counts, False

    def asked(self, _: bytes) -> None:
        if not self._waits:
            self._counts[self._asked] += 1
        self._waits = True

    def answered(self, _: bytes) -> None:
        self._waits = False


class WithBytes:
    """Counts the bytes of both directions, besides what `observe` counts."""

    def __init__(self, observe: Callable[[int, Counter[Asked]], Observer], pid: int, counts: Counter[Asked]) -> None:
        self._observer, self._bytes, self._counts = observe(pid, counts), Asked(pid, BYTES), counts

    def asked(self, data: bytes) -> None:
        self._counts[self._bytes] += len(data)
        self._observer.asked(data)

    def answered(self, data: bytes) -> None:
        self._counts[self._bytes] += len(data)
        self._observer.answered(data)


class CountingProxy:
    """Listens on a loopback port of its own, in a thread of its own."""

    def __init__(self, port: int, observe: Callable[[int, Counter[Asked]], Observer]) -> None:
        self._target, self._observe = port, observe
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        self.counts: Counter[Asked] = Counter()

    def since(self, before: Counter[Asked]) -> Counter[Asked]:
        return Counter({asked: count - before[asked] for asked, count in self.counts.copy().items()})

    @contextmanager
    def running(self) -> Iterator[CountingProxy]:
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        thread = threading.Thread(target=self._loop.run_forever, name="wire-proxy", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(server), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # if the store is away, or either side closes, both sides are closed
            with suppress(OSError, asyncio.CancelledError):
                await self._pass_on(reader, writer)
        finally:
            writer.close()
            self._connections.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[1]
        pid = await asyncio.to_thread(owner, peer, self.port)
        observer = self._observe(pid, self.counts)
        answers, questions = await asyncio.open_connection("127.0.0.1", self._target)
        pumps = [
            asyncio.create_task(_pump(reader, questions, observer.asked)),
            asyncio.create_task(_pump(answers, writer, observer.answered)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            questions.close()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, see: Callable[[bytes], None]) -> None:
    while data := await reader.read(1 << 16):
        see(data)
        writer.write(data)
        await writer.drain()


def owner(port: int, target: int) -> int:
    """The id of the process whose connection goes from `port` to `target` on loopback; 0 if it is gone. Several
    connections can have the same port if they lead elsewhere.
    """
    for one in psutil.net_connections("tcp"):
        if one.pid and one.laddr and one.raddr and (one.laddr.port, one.raddr.port) == (port, target):
            return one.pid
    return 0
