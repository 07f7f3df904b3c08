"""A stream as an HTTP response: chunks that are encoded already, and clients that do not read dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from gateway.web.event_stream.limits import StreamLimits

log = structlog.get_logger()

UntilOver = Callable[[], Coroutine[Any, Any, None]]
#: A comment; the client comes back, and is told 401.
_OVER = b": the key, or the session, that opened this has ended\n\n"


class StreamResponse(EventSourceResponse):
    """`shutdown` is set by sse-starlette when the server is told to stop; the chunks then end by themselves.

    Where the request's state holds `until_over`, the stream ends when that returns: whoever opened it may no more.
    """

    def __init__(self, chunks: AsyncIterator[bytes], shutdown: anyio.Event, limits: StreamLimits) -> None:
        super().__init__(
            chunks,
            sep="\n",
            ping=limits.ping,
            ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
            send_timeout=limits.send_timeout,
            shutdown_event=shutdown,
            shutdown_grace_period=limits.farewell,
        )
        self._patience = limits.send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        until_over: UntilOver | None = scope.get("state", {}).get("until_over")
        admission = Admission(receive, until_over)
        try:
            await super().__call__(scope, admission.receive if until_over else receive, send)
        except SendTimeoutError:
            log.info("slow_client_dropped", path=scope["path"])
            _abort(receive)
        if admission.is_over:
            with anyio.move_on_after(self._patience) as sending:
                await send({"type": "http.response.body", "body": _OVER, "more_body": False})
            if sending.cancelled_caught:
                _abort(receive)


class Admission:
    """`receive` of a stream that only some may follow: told to go, they have gone, as far as the stream can see."""

    def __init__(self, receive: Receive, until_over: UntilOver | None) -> None:
        self._receive = receive
        self._until_over = until_over
        self.is_over = False

    async def receive(self) -> Message:
        assert self._until_over  # noqa: S101 - not called otherwise
        message, over = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._until_over())
        try:
            await asyncio.wait({message, over}, return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                return message.result()
            self.is_over = True
            return {"type": "http.disconnect"}
        finally:
            message.cancel()
            over.cancel()


def _abort(receive: Receive) -> None:
    """Cut the connection: uvicorn would close it politely, which waits for the very client that does not read.

    ASGI has no word for that, so it takes a look at uvicorn's own object; elsewhere the server's way has to do.
    """
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
