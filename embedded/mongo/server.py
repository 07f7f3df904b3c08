"""The server: connections on loopback, each with one request after the other."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from embedded.mongo.commands import Commands
from embedded.mongo.executor import Executor
from embedded.mongo.login import Credentials, Login
from embedded.mongo.store import Store
from embedded.mongo.wire import Messages, Request, WireError, encode_reply

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 500


class Connection(asyncio.Protocol):
    """Answers in the order of the requests. Bytes that are no message end this connection, and only this one."""

    def __init__(self, executor: Executor, connections: set[Connection], credentials: Credentials | None) -> None:
        self._executor = executor
        self._login = Login(credentials)
        self._connections = connections
        self._messages = Messages()
        self._requests: deque[Request] = deque()
        self._is_busy = False
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.add(self)
        if len(self._connections) > MAX_CONNECTIONS:
            logger.warning("connection refused because %d others are open", MAX_CONNECTIONS)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._connections.discard(self)

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            self._requests += self._messages.feed(data)
        except WireError as error:
            logger.warning("connection closed because of %s", error)
            self.close()
        self._ask_next()

    def _ask_next(self) -> None:
        while self._requests and not self._is_busy:
            request = self._requests.popleft()
            reply = self._login.answer(request.command)
            if reply is not None:
                self._write(request, encode_reply(request, reply))
                continue
            self._is_busy = True
            self._executor.submit(request.command, partial(encode_reply, request), partial(self._answer, request))

    def _answer(self, request: Request, reply: bytes) -> None:
        self._write(request, reply)
        self._is_busy = False
        self._ask_next()

    def _write(self, request: Request, reply: bytes) -> None:
        if request.wants_reply and not self._transport.is_closing():
            self._transport.write(reply)


async def serve(path: Path, host: str, port: int, password: str | None = None) -> None:
    """Serve the file until SIGTERM or SIGINT, to every client, or only to clients that know the password. Prints
    `ready on HOST:PORT`, with the port that the system chose for 0.

    Raises `ValueError` for a host that is not loopback, `StoreError` and `OSError`.
    """
    if not ipaddress.ip_address(host).is_loopback:
        raise ValueError(f"{host} is not a loopback address: this server knows no TLS; use MongoDB instead")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    store = Store(path)
    try:
        executor = Executor(store, Commands(store))
        connections: set[Connection] = set()
        credentials = Credentials(password) if password else None
        listener = await loop.create_server(lambda: Connection(executor, connections, credentials), host, port)
        print(f"ready on {host}:{listener.sockets[0].getsockname()[1]}", flush=True)  # noqa: T201 - our parent waits for it
        await stopped.wait()
        listener.close()
        executor.stop()
        for connection in list(connections):
            connection.close()
    finally:
        store.close()
