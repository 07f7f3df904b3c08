"""The server: connections on loopback, and commands that are run in turns."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from embedded.mongo.commands import Commands
from embedded.mongo.cursors import Answer
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.login import Credentials, Login
from embedded.mongo.paths import Document
from embedded.mongo.store import Store
from embedded.mongo.wire import Messages, Request, WireError, encode_reply

# --- commands run in turns. All writes of a turn are one transaction, and are answered when it is committed.
#
# Only one thread uses the store, so a step of a command is atomic. With many clients, a turn has many commands, which
# share the cost of a commit ("group commit"). If a command fails, only its own writes are undone.
#
# A turn begins all new commands. Those that need more than a slice then share as much time as all else took since
# their last slice, the commit too, and get one slice at least. So a short command waits for one long command, and not
# for as many as there are, and the long ones have half of the time, however many short ones there are.

logger = logging.getLogger(__name__)

#: How long a command may run, in seconds, before it is the other commands' turn.
_SLICE = 0.005

Encode = Callable[[Document], bytes]
Reply = Callable[[bytes], None]


@dataclass(eq=False)
class _Task:
    begin: Callable[[], Document | Answer]
    encode: Encode
    reply: Reply
    deadline: float
    steps: Answer | None = None


class Executor:
    def __init__(self, store: Store, commands: Commands) -> None:
        self._store = store
        self._commands = commands
        self._waiting: list[_Task] = []
        #: Commands that have had a slice and are not ready, the one that has waited longest first.
        self._long: deque[_Task] = deque()
        #: When the last turn stopped working on them (monotonic).
        self._left_at = 0.0
        self._is_scheduled = False
        self._is_stopped = False

    def stop(self) -> None:
        """Stop. Commands that are not answered yet get no answer, and their writes are discarded."""
        self._is_stopped = True

    def submit(self, command: Document, encode: Encode, reply: Reply) -> None:
        """Run `command` in one of the next turns. `reply` is called once, with the encoded answer or error, after the
        commit. The command fails if its answer cannot be encoded.
        """
        limit = command.get("maxTimeMS")
        deadline = monotonic() + limit / 1000 if isinstance(limit, int) and limit > 0 else float("inf")
        self._waiting.append(_Task(lambda: self._commands.run(command), encode, reply, deadline))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        tasks, self._waiting = self._waiting, []
        answers: list[tuple[_Task, bytes]] = []
        try:
            # without long commands, the time since the last turn was idle
            since = self._left_at if self._long else monotonic()
            for task in tasks:
                self._take(task, answers)
            end = monotonic() + (monotonic() - since)
            for _ in range(len(self._long)):
                tasks.append(self._long.popleft())
                self._take(tasks[-1], answers)
                if monotonic() >= end:
                    break
            self._left_at = monotonic()
            self._store.commit()
        except Exception as error:
            # the writes of this turn are discarded, and none of them was acknowledged yet
            logger.exception("a turn of %d commands failed", len(tasks))
            tasks += self._long
            answers = [(task, task.encode(_failure(error))) for task in dict.fromkeys(tasks)]
            self._long.clear()
            self._store.rollback()
            self._commands.forget()
        for task, answer in answers:
            # each in a call of its own, so that an error for one client does not stop the others' answers
            asyncio.get_running_loop().call_soon(task.reply, answer)
        if self._waiting or self._long:
            self._schedule()

    def _take(self, task: _Task, answers: list[tuple[_Task, bytes]]) -> None:
        """Work on the task for one slice, and put its answer to the others, or the task to the long ones."""
        answer = self._advance(task)
        if answer is None:
            self._long.append(task)
        else:
            answers.append((task, answer))

    def _advance(self, task: _Task) -> bytes | None:
        """Work on the task for one slice. Returns the encoded answer, or `None` if it is not ready.

        If a command fails with an unexpected error, its writes are undone, it is answered with an error, and the turn
        goes on. Raises if SQLite has also undone the writes of other commands.
        """
        try:
            reply = _answer(task)
            encoded = None if reply is None else task.encode(reply)
        except Exception as error:
            if not self._store.undo():
                raise
            logger.exception("a command failed")
            return task.encode(_failure(error))
        self._store.keep()
        return encoded


def _answer(task: _Task) -> Document | None:
    try:
        reply = _work(task)
    except StopIteration as done:
        reply = done.value
    except MongoError as error:
        return error.as_reply()
    return None if reply is None else {**reply, "ok": 1.0}


def _work(task: _Task) -> Document | None:
    """The reply of a command without steps. Raises `StopIteration` with the reply of a command that has steps."""
    now = monotonic()
    if now > task.deadline:
        raise MongoError(Code.MaxTimeMSExpired, "operation exceeded time limit")
    if task.steps is None:
        begun = task.begin()
        if isinstance(begun, dict):
            return begun
        task.steps = begun
    while monotonic() - now < _SLICE:
        next(task.steps)
    return None


def _failure(error: Exception) -> Document:
    if isinstance(error, MongoError):
        return error.as_reply()
    code = Code.InternalError
    if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
        code = Code.OutOfDiskSpace
    return MongoError(code, f"{type(error).__name__}: {str(error)!a}").as_reply()


logger = logging.getLogger(__name__)

# --- connections, each with one request after the other

MAX_CONNECTIONS = 500


class Connection(asyncio.Protocol):
    """One connection, which answers requests in order. Bytes that are not a message end only this connection."""

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
    """Serve the file until SIGTERM or SIGINT. With a `password`, only to clients that log in. Prints `ready on
    HOST:PORT`; if `port` is 0, PORT is the port that the system has chosen.

    Raises `ValueError` for a host that is not loopback, `StoreError` and `OSError`.
    """
    if not ipaddress.ip_address(host).is_loopback:
        raise ValueError(f"{host} is not a loopback address: this server does not support TLS; use MongoDB instead")
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
