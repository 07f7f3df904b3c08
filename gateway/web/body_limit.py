"""No request's body is larger than the gateway is willing to hold in memory."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.errors import BodyTooLargeError, problem

MAX_BODY = 256 << 10
#: An egg's; it goes to a file, not into memory.
MAX_EGG = 64 << 20
_EGG_PATH = re.compile(r"/projects/[^/]+/versions")


class BodyLimit:
    """ASGI middleware. FastAPI's own `max_body_size` does the same, but answers in a format that is not ours."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY, egg_limit: int = MAX_EGG) -> None:
        self.app = app
        self.limit = limit
        self.egg_limit = egg_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self._limit(scope)
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):  # noqa: PLR2004 - `int` of many digits is slow, and refused by Python
            await _refuse(limit, scope, receive, send)
            return
        # a declared length is the server's to enforce; one that is not declared has to be counted
        await self.app(scope, receive if "transfer-encoding" not in headers else _counting(limit, receive), send)

    def _limit(self, scope: Scope) -> int:
        return self.egg_limit if scope["method"] == "POST" and _EGG_PATH.fullmatch(scope["path"]) else self.limit


async def _refuse(limit: int, scope: Scope, receive: Receive, send: Send) -> None:
    error = BodyTooLargeError(limit)
    # the body is not read: the connection cannot be used again
    answer = problem(scope, error.status_code, "body_too_large", error.detail, headers={"Connection": "close"})
    await answer(scope, receive, send)


def _counting(limit: int, receive: Receive) -> Receive:
    total = 0

    async def counting() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            raise BodyTooLargeError(limit)
        return message

    return counting
