"""Answers that last: event streams, downloads, calls that wait for a run. A user has only so many of them, and all of
them together leave file handles for other calls. A client that does not read its download loses it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import structlog
from attrs import define, field
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import TooManyError, UnavailableError
from gateway.web.errors import answer_to
from gateway.web.threads import current_visitor, too_many

log = structlog.get_logger("gateway.web")


@define(eq=False, repr=False, slots=False)
class LastingAnswers:
    """Those that are open now in this process. For use on one loop."""

    #: How many one user may have open, and all users together.
    _each: int
    _most: int
    _open: Counter[str] = field(init=False, factory=Counter)

    def require_room(self) -> None:
        """Raises `TooManyError` if the user may not open a further one, `UnavailableError` if nobody may."""
        visitor = current_visitor()
        if visitor is not None and self._open[visitor.name] >= self._each:
            raise too_many(f"{self._each} of your streams, downloads and waiting calls are open", self._each)
        if self._open.total() >= self._most:
            raise UnavailableError("this gateway has as many streams and downloads open as it can")

    @contextmanager
    def one(self) -> Iterator[None]:
        """A further one, for as long as the context lasts. Raises what `require_room` raises."""
        self.require_room()
        visitor = current_visitor()
        name = visitor.name if visitor else ""
        if visitor is not None:
            visitor.is_admitted = True
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            self._open += Counter()


# --- downloads

#: Bytes that are sent at a time, and seconds in which a client has to take them.
_PIECE = 64 << 10
_PATIENCE = 30.0


class SlowClientError(Exception):
    """The client does not read."""


class Download(StreamingResponse):
    """As long as it likes, but to a client that reads. Its chunks are read one by one, so that others get a turn."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        answers: LastingAnswers,
        *,
        headers: Mapping[str, str],
        status_code: int = 200,
        media_type: str | None = None,
    ) -> None:
        super().__init__(chunks, status_code, headers, media_type)
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._answers.one():
                await super().__call__(scope, receive, partial(_send_pieces, send))
        except (TooManyError, UnavailableError) as error:
            await answer_to(error, scope)(scope, receive, send)
        except SlowClientError:
            log.info("slow_client_dropped", path=scope["path"])
            abort(receive)


async def _send_pieces(send: Send, message: Message) -> None:
    body: bytes = message.get("body", b"")
    last = max(0, len(body) - 1) // _PIECE * _PIECE
    for start in range(0, last, _PIECE):
        await _send_patiently(send, {**message, "body": body[start : start + _PIECE], "more_body": True})
    await _send_patiently(send, {**message, "body": body[last:]} if last else message)


async def _send_patiently(send: Send, message: Message) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            await send(message)
    except TimeoutError:
        raise SlowClientError from None


def abort(receive: Receive) -> None:
    """Cut the connection: uvicorn would close it politely, which waits for the very client that does not read.

    ASGI has no message for that, so this uses uvicorn's own object. With other servers, their way of closing remains.
    """
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
