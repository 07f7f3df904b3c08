"""A stream as an HTTP response: chunks that are encoded already, and clients that do not read dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from gateway.web.event_stream.limits import StreamLimits

log = structlog.get_logger()


class StreamResponse(EventSourceResponse):
    """`shutdown` is set by sse-starlette when the server is told to stop; the chunks then end by themselves."""

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            log.info("slow_client_dropped", path=scope["path"])
            _abort(receive)


def _abort(receive: Receive) -> None:
    """Cut the connection: uvicorn would close it politely, which waits for the very client that does not read.

    ASGI has no word for that, so it takes a look at uvicorn's own object; elsewhere the server's way has to do.
    """
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
