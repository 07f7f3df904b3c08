"""A way to a server on which connections can go dead without an end, as one through a firewall that forgets them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Turn:
    """Of one connection: whose was the last word."""

    asked = False


class Relay:
    def __init__(self, target_port: int) -> None:
        self.port = 0
        #: How often a client spoke after the server had, or for the first time; what it says in one go counts once.
        self.round_trips = 0
        self._target_port = target_port
        self._alive: set[asyncio.Task[None]] = set()
        self._ends: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()

    def forget(self) -> None:
        """All connections that there are; new ones work."""
        self._loop.call_soon_threadsafe(self._forget)

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        self.forget()
        yield

    @contextmanager
    def running(self) -> Iterator[Relay]:
        listening = threading.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(listening),))
        thread.start()
        listening.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stopped.set)
            thread.join(10)
            self._loop.close()

    async def _serve(self, listening: threading.Event) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await self._stopped.wait()
        server.close()
        self._forget()
        for end in self._ends:
            end.close()
        await asyncio.sleep(0)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        self._ends += (writer, far_writer)
        turn = _Turn()
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._alive.add(asyncio.create_task(self._pass_on(source, sink, turn, asks=source is reader)))

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, turn: _Turn, *, asks: bool
    ) -> None:
        try:
            while data := await source.read(65536):
                self.round_trips += asks and not turn.asked
                turn.asked = asks
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        # only where it ended: forgotten ones stay open
        sink.close()

    def _forget(self) -> None:
        for task in self._alive:
            task.cancel()
        self._alive.clear()
