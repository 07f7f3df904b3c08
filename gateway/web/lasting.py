"""Answers that last: event streams, downloads, calls that wait for a run. A user has only so many of them, and all of
them together leave file handles for other calls.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import partial

from attrs import define, field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.errors import UnavailableError
from gateway.web.call_queue import current_visitor, too_many


@define(eq=False, repr=False, slots=False)
class LastingAnswers:
    """Counts the lasting answers that are open in this process. For use on one event loop."""

    #: How many one user may have open, and all users together.
    _each: int
    _most: int
    _open: Counter[str] = field(init=False, factory=Counter)

    def take(self) -> None:
        """Take a place for the current request until its answer has ended. Call it before reading what the answer
        needs, so that nothing is read for a request that is refused.

        Raises `TooManyError` if the user has all its places taken, `UnavailableError` if all users together do.
        """
        visitor = current_visitor()
        if visitor is None or visitor.lasts:
            return
        if self._open[visitor.name] >= self._each:
            raise too_many(f"{self._each} of your streams, downloads and waiting calls are open", self._each)
        if self._open.total() >= self._most:
            raise UnavailableError("this gateway has as many streams and downloads open as it can")
        self._open[visitor.name] += 1
        visitor.lasts = visitor.is_admitted = True
        visitor.at_end(partial(self._give_back, visitor.name))

    def _give_back(self, name: str) -> None:
        self._open[name] -= 1
        self._open += Counter()


# --- downloads


class Download(StreamingResponse):
    """A download, or a stream of large events. It may take any time, as long as the client reads (see
    `http_protocol`). Its chunks are read one by one, so that other requests get a turn.

    Raises what `LastingAnswers.take` raises.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        answers: LastingAnswers,
        *,
        headers: Mapping[str, str],
        status_code: int = 200,
        media_type: str | None = None,
    ) -> None:
        answers.take()
        super().__init__(chunks, status_code, headers, media_type)

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """As Starlette does it, but not in a group of tasks: the error that ends a group, and the frames that the
        error has gone through, refer to each other, so that the last chunk of each client that went away would stay
        in memory until the garbage collector comes.
        """
        stream = asyncio.ensure_future(self.stream_response(send))
        gone = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((stream, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            stream.cancel()
            await asyncio.wait((stream,))
        try:
            if not stream.cancelled():
                stream.result()
        finally:
            # its error refers to this frame
            del stream


def abort(receive: Receive) -> None:
    """Cut the connection. uvicorn's own way to close it would wait for the client, which does not read.

    ASGI has no message for this, so this uses an object of uvicorn. Other servers close the connection in their way.
    """
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
