"""uvicorn's HTTP, with limits on clients that never end their headers, their bodies or their connections, or that do
not read their answers.

uvicorn limits none of these with httptools, whose parser grows with each byte of an endless header. Each process
applies the limits by itself, and a request that arrives in one piece costs two comparisons.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import uuid
from http import HTTPStatus
from typing import Any, ClassVar

import orjson
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.private_names import require_names
from gateway.web.call_queue import VISITOR, Visitor

require_names(
    "uvicorn",
    HttpToolsProtocol,
    *("on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"),
    *("on_response_complete", "send_400_response"),
    *("client", "connections", "cycle", "flow", "loop", "pipeline", "transport"),
)
log = structlog.get_logger("gateway.web")

#: Maximum number of bytes of a request's line and all its header lines, trailers included.
MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 100
#: Seconds until the headers are complete: from the connection on, or from the first byte of a further request.
HEAD_SECONDS = 10.0
#: Seconds between two checks of a body, and the bytes that must have come in between: a KiB a second.
BODY_SECONDS = 10.0
BODY_BYTES = 10 << 10
#: Seconds between two checks of an answer that a client reads too slowly, and bytes that it must have read between
#: them: unread bytes stay in memory.
READ_SECONDS = 30.0
READ_BYTES = 64 << 10
#: Maximum number of unread bytes of answers to one user. Beyond it, the clients that have not read for the longest
#: time are cut off.
UNREAD_BYTES = 128 << 20
#: Maximum number of unread bytes of answers to all users. Beyond it, clients of the user with the most are cut off.
UNREAD_BYTES_OF_ALL = 512 << 20
#: Share of the process's file handles that connections may take before idle ones have to go.
_SHARE = 0.75
#: Seconds after which a connection is idle, or its client slow. One that has just been opened, or written to, is not.
IDLE_SECONDS = 1.0

#: File handles that a process asks for at most: more than any process of ours needs.
_MANY = 65_536
_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_TOO_SLOW = HTTPStatus.REQUEST_TIMEOUT
CODES = {_TOO_LARGE: "headers_too_large", _TOO_SLOW: "request_timeout", HTTPStatus.BAD_REQUEST: "bad_request"}


def _most_connections() -> int:
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return int(handles * _SHARE) if handles > 0 else sys.maxsize


def raise_handle_limit() -> None:
    """Let this process, and those that it starts, have as many file handles as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY if hard == resource.RLIM_INFINITY else min(hard, _MANY)
    if 0 < soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    BoundedProtocol.most_connections = _most_connections()


class HeadersTooLargeError(Exception):
    """Raised in a callback of httptools, which then stops parsing the request."""


class BoundedProtocol(HttpToolsProtocol):
    #: Open connections of this process without a request under way: by address, the oldest first.
    idle: ClassVar[dict[str, dict[BoundedProtocol, None]]] = {}
    most_connections: ClassVar[int] = _most_connections()
    #: By user: the connections whose clients are to read, and since when, the longest first.
    unread: ClassVar[dict[str, dict[BoundedProtocol, float]]] = {}

    _address = ""
    _idle_since = 0.0
    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _reader = ""
    #: Whether a request has begun to arrive, and whether its headers are complete and its body is not.
    _begun = _in_body = False
    #: `_came`: bytes that came since the request began, or since the last piece of a body. `_size` and `_lines`:
    #: bytes and number of header lines. `_body`: bytes of the body that came since the last check.
    _came = _size = _lines = _body = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._set_idle()
        self._arm(HEAD_SECONDS, self._head_is_late)
        if len(self.connections) > self.most_connections:
            self._close_another()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_looking()
        self._set_busy()
        if (visitor := self._visitor()) is not None:
            visitor.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            room = len(data) if self._in_body else MAX_HEAD_BYTES + 1 - self._came
            piece, data = data[:room], data[room:]
            self._came += len(piece)
            super().data_received(piece)
            if self._came > MAX_HEAD_BYTES:
                self._refuse(_TOO_LARGE)
        if self._begun and self._deadline is None and not self.transport.is_closing():
            # the request did not come in one piece
            self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun, self._in_body = True, False
        self._size = self._lines = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._lines += 1
        # a colon and the end of the line
        self._count(len(name) + len(value) + 3)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_body = True
        self._came = self._body = 0
        self._set_busy()
        self._disarm()

    def on_body(self, body: bytes) -> None:
        self._came = 0
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._begun = self._in_body = False
        self._came = 0
        self._disarm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self._begun and not self.transport.is_closing():
            self._set_idle()

    def send_400_response(self, msg: str) -> None:
        """Answer in our format, also if the request was found too large while it was parsed."""
        self._refuse(_TOO_LARGE if self._is_too_large() else HTTPStatus.BAD_REQUEST, msg)

    def _count(self, size: int) -> None:
        self._size += size
        if self._is_too_large():
            raise HeadersTooLargeError

    def _is_too_large(self) -> bool:
        return self._lines > MAX_HEADERS or self._size > MAX_HEAD_BYTES

    # --- time

    def _watch(self) -> None:
        if self._in_body:
            self._body = 0
            self._arm(BODY_SECONDS, self._look_at_body)
        else:
            self._arm(HEAD_SECONDS, self._head_is_late)

    def _head_is_late(self) -> None:
        if self._begun:
            self._refuse(_TOO_SLOW, f"the headers were not complete after {HEAD_SECONDS:.0f} seconds")
        else:
            self.transport.close()

    def _look_at_body(self) -> None:
        waits_for_us = self.flow.read_paused or self.cycle.waiting_for_100_continue
        if self._body >= BODY_BYTES or waits_for_us:
            self._watch()
        else:
            self._refuse(_TOO_SLOW, f"less than {BODY_BYTES} bytes of the body came in {BODY_SECONDS:.0f} seconds")

    def _arm(self, seconds: float, act: Any) -> None:
        self._deadline = self.loop.call_later(seconds, act)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- a client that does not read: the transport calls these when it holds too much unread data, and when less

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_later()
        visitor = self._visitor()
        self._reader = visitor.name if visitor else self._address
        self.unread.setdefault(self._reader, {})[self] = self.loop.time()
        self._drop_slowest()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_looking()

    def _look_later(self) -> None:
        held = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(READ_SECONDS, self._look_at_reader, held)

    def _look_at_reader(self, held: int) -> None:
        # nothing was added to the buffer since then, because writing is paused
        if held - self.transport.get_write_buffer_size() >= READ_BYTES:
            self._look_later()
        else:
            _cut_off(self)

    def _drop_slowest(self) -> None:
        """A user's answers are made one after the other, but many may wait to be read."""
        held = {user: sum(map(_unread_by, waiting)) for user, waiting in self.unread.items()}
        self._drop(self._reader, held[self._reader] - UNREAD_BYTES)
        self._drop(max(held, key=lambda user: held[user]), sum(held.values()) - UNREAD_BYTES_OF_ALL)

    def _drop(self, user: str, too_much: int) -> None:
        """Cut off those of the user's clients that have waited longest, until so many bytes are freed."""
        now = self.loop.time()
        for one, since in tuple(self.unread[user].items()):
            if too_much <= 0 or now - since <= IDLE_SECONDS:
                break
            too_much -= _unread_by(one)
            _cut_off(one)

    def _stop_looking(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        waiting = self.unread.get(self._reader, {})
        waiting.pop(self, None)
        if not waiting:
            self.unread.pop(self._reader, None)

    def _visitor(self) -> Visitor | None:
        return self.cycle.scope.get("state", {}).get(VISITOR) if self.cycle else None

    # --- the end of requests and connections

    def _refuse(self, status: HTTPStatus, message: str = "") -> None:
        self._disarm()
        if self._may_answer():
            reason = message or f"a request may have {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} lines of headers"
            self.transport.write(_answer(status, reason))
        self.transport.close()

    def _may_answer(self) -> bool:
        """Whether a refusal can be sent. It cannot while another answer is under way or still to come, because the
        client would take the refusal for that answer.
        """
        if self._in_body:
            return not self.pipeline and not self.cycle.response_started
        return self.cycle is None or self.cycle.response_complete

    def _set_idle(self) -> None:
        self._idle_since = self.loop.time()
        self.idle.setdefault(self._address, {})[self] = None

    def _set_busy(self) -> None:
        of_address = self.idle.get(self._address, {})
        of_address.pop(self, None)
        if not of_address:
            self.idle.pop(self._address, None)

    def _close_another(self) -> None:
        """Close the longest idle connection of the address that has most of them, to free a file handle."""
        crowd: dict[BoundedProtocol, None] = max(self.idle.values(), key=len)
        oldest = next(iter(crowd))
        if self.loop.time() - oldest._idle_since > IDLE_SECONDS:  # noqa: SLF001 - of our own kind
            oldest.transport.abort()


def _cut_off(slow: BoundedProtocol) -> None:
    log.info("slow_client_dropped", path=slow.cycle.scope["path"] if slow.cycle else None)
    slow.transport.abort()


def _unread_by(one: BoundedProtocol) -> int:
    return one.transport.get_write_buffer_size()


def _answer(status: HTTPStatus, message: str) -> bytes:
    error = {"code": CODES[status], "message": message, "detail": None}
    body = orjson.dumps({"error": error, "request_id": uuid.uuid4().hex})
    head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    return STATUS_LINE[status] + head + body
