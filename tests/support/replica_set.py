"""A MongoDB server that looks like the primary of a replica set, and fails like one.

It stands in front of a server without sessions and elections, such as our own. Because drivers see a replica set,
they number their writes and repeat those that were not answered. A repeated number gets the same answer as before,
and is not executed again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import bson
import pymongo
from bson import ObjectId
from pymongo.errors import AutoReconnect, PyMongoError
from relay import _HEADER, _HELLO, LOSE, Connection, MongoRelay, _message, failure
from stack import wait_until

from embedded.mongo.collection import CODEC
from embedded.mongo.wire import Request, encode_reply, parse

WRITES = frozenset({"insert", "update", "delete", "findAndModify"})
_SESSIONS = frozenset({"lsid", "txnNumber", "$clusterTime"})
_OP_MSG = 2013
_NOT_WRITABLE_PRIMARY = 10107
#: The error code of a store that does not support numbered writes.
_ILLEGAL_OPERATION = 20
_PRIMARY_STEPPED_DOWN = 189
_RETRYABLE = "RetryableWriteError"
#: The server executes the write and steps down before the others have confirmed it, so the write is uncertain.
INTERRUPT = "interrupt"
#: The server is not asked, because it is not the primary any more.
STEP_DOWN = "step down"
#: Faults of a write.
FAULTS = (LOSE, INTERRUPT, STEP_DOWN)
#: Chooses a fault by a request's id and its command; `None` means none.
Choice = Callable[[int, dict[str, Any]], str | None]


class ReplicaSet(MongoRelay):
    """A replica set with one member. `choose` decides about each write."""

    def __init__(self, target_port: int, *, numbers_writes: bool = True) -> None:
        """Without `numbers_writes`, drivers are told in the URL not to number writes, and repeat nothing by
        themselves.
        """
        super().__init__(target_port)
        self.choose: Choice = lambda _id, _command: None
        #: Writes that were repeated with their number, and answered as before.
        self.repeated = 0
        #: How often it stepped down.
        self.elections = 0
        self._numbers_writes = numbers_writes
        self._is_primary = True
        #: The last number of each session, and its answer.
        self._answers: dict[bytes, tuple[int, dict[str, Any] | None]] = {}
        #: Requests in progress, by connection and request.
        self._asked: dict[tuple[int, int], tuple[Request, str | None]] = {}

    def url(self, url: str) -> str:
        return super().url(str(url)) + f"?replicaSet=rs0&retryWrites={str(self._numbers_writes).lower()}"

    def step_down(self, seconds: float) -> None:
        """Have no primary for `seconds`, and close all connections. Returns at once."""
        done = threading.Event()

        def begin() -> None:
            self._lose_election(seconds)
            done.set()

        self._loop.call_soon_threadsafe(begin)
        done.wait(10)

    def _lose_election(self, seconds: float) -> None:
        self._is_primary = False
        self.elections += 1
        self._close()
        self._loop.call_later(seconds, self._win)

    def _win(self) -> None:
        self._is_primary = True

    async def _ask(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        try:
            while True:
                request = parse(await _message(reader))
                if (answer := self._answer_of_its_own(request, connection)) is not None:
                    connection.client.write(encode_reply(request, answer))
                    continue
                connection.server.write(_unnumbered(request))
                await connection.server.drain()
        except (OSError, asyncio.IncompleteReadError):
            connection.server.close()
            connection.tasks.clear()

    def _answer_of_its_own(self, request: Request, connection: Connection) -> dict[str, Any] | None:
        """The answer if the server is not asked; `None` if it is."""
        name = next(iter(request.command))
        if name.lower() in {"hello", "ismaster"}:
            return self._hello()
        if not self._is_primary:
            return _refused(request.command)
        if name == "replSetStepDown":
            self._loop.call_soon(self._lose_election, float(request.command[name]))
            return {"ok": 1.0}
        if name in WRITES:
            return self._write(request, connection)
        return None

    def _write(self, request: Request, connection: Connection) -> dict[str, Any] | None:
        command = request.command
        session, number = _session(command)
        if number is not None and not self._numbers_writes:
            return failure(_ILLEGAL_OPERATION).answer
        last = self._answers.get(session)
        if number is not None and last is not None and last[0] == number and last[1] is not None:
            self.repeated += 1
            return last[1]
        fault = self.choose(request.request_id, command)
        if fault == STEP_DOWN:
            return _refused(command)
        self._asked[connection.port, request.request_id] = (request, fault)
        return None

    async def _read(self, source: asyncio.StreamReader, connection: Connection) -> bytes:
        message = await _message(source)
        asked = self._asked.pop((connection.port, _HEADER.unpack_from(message)[2]), None)
        if asked is None:
            return message
        request, fault = asked
        session, number = _session(request.command)
        answer = bson.decode(message[21:], CODEC)
        if number is not None:
            self._answers[session] = (number, answer)
        if fault == LOSE:
            connection.client.transport.abort()
            raise ConnectionAbortedError
        if fault == INTERRUPT and answer["ok"]:
            return encode_reply(request, {**answer, **_unsure(request.command)})
        return message

    def _hello(self) -> dict[str, Any]:
        now = {**_HELLO, "ismaster": self._is_primary, "localTime": datetime.now(UTC) + self.ahead}
        me = f"127.0.0.1:{self.port}"
        member = {"setName": "rs0", "setVersion": 1, "hosts": [me], "me": me, "secondary": not self._is_primary}
        if self._is_primary:
            member |= {"primary": me, "electionId": ObjectId(f"7fffffff{self.elections:016x}")}
        return {**now, **member, "isWritablePrimary": self._is_primary}


def _session(command: dict[str, Any]) -> tuple[bytes, int | None]:
    return bytes(command.get("lsid", {}).get("id", b"")), command.get("txnNumber")


def _labels(command: dict[str, Any]) -> tuple[str, ...]:
    """The labels of an error. As a real server does, only writes that it would recognise get one."""
    return (_RETRYABLE,) if "txnNumber" in command else ()


def _refused(command: dict[str, Any]) -> dict[str, Any]:
    return failure(_NOT_WRITABLE_PRIMARY, *_labels(command)).answer


def _unsure(command: dict[str, Any]) -> dict[str, Any]:
    """The answer to a write that is executed but not confirmed by a majority."""
    concern = {"code": _PRIMARY_STEPPED_DOWN, "codeName": "PrimarySteppedDown", "errmsg": "as told"}
    labels = _labels(command)
    return {"writeConcernError": concern} | ({"errorLabels": [*labels]} if labels else {})


def _unnumbered(request: Request) -> bytes:
    """The request without its number, for a server without sessions."""
    kept = {
        name: value for name, value in request.command.items() if name not in {"lsid", "txnNumber", "$clusterTime"}
    }
    body = bson.encode(kept, codec_options=CODEC)
    flags = 0 if request.wants_reply else 2
    payload = flags.to_bytes(4, "little") + b"\0" + body
    return bytes(_HEADER.pack(_HEADER.size + len(payload), request.request_id, 0, _OP_MSG)) + payload


def step_down(url: str, seconds: int) -> float:
    """Have the primary step down for at least `seconds`. Returns when there is one again (monotonic time)."""
    with pymongo.MongoClient[dict[str, Any]](url, serverSelectionTimeoutMS=60_000) as client:
        asked = {"replSetStepDown": seconds, "secondaryCatchUpPeriodSecs": 0, "force": True}
        with suppress(AutoReconnect):
            client.admin.command(asked)

        def takes_writes() -> bool:
            with suppress(PyMongoError):
                return bool(client.admin.command("hello")["isWritablePrimary"])
            return False

        wait_until(takes_writes, what="a primary")
        return time.monotonic()
