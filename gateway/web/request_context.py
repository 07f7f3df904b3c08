"""The outermost layer: every request has an id, a line in the log, and an answer, whatever happens inside."""

from __future__ import annotations

import re
import time
import uuid

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.errors import problem

log = structlog.get_logger("gateway.web")

HEADER = "X-Request-ID"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SERVER_ERROR = 500


class RequestContext:
    """ASGI middleware. Takes the client's `X-Request-ID` if it is sane, makes one otherwise, and echoes it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id, correlation_id=request_id)
        answer = _Answer(send, request_id)
        began = time.perf_counter()
        try:
            await self.app(scope, receive, answer.send)
        except Exception:
            log.exception("request_failed", method=scope["method"], path=scope["path"])
            if answer.status is not None:
                raise  # half an answer is out: the server cuts the connection, so that nobody takes it for a whole
            message = "a fault of ours; the log has more under this request id"
            await problem(scope, _SERVER_ERROR, "internal_error", message)(scope, receive, answer.send)
        finally:
            _log_request(scope, answer.status, time.perf_counter() - began)


class _Answer:
    """Notes the status that goes out and adds the id to its headers."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[HEADER] = self._request_id
        await self._send(message)


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(HEADER)
    return given if given and _SANE.fullmatch(given) else uuid.uuid4().hex


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    # polling and health checks would drown what happens
    level = log.debug if scope["method"] == "GET" and status is not None and status < _SERVER_ERROR else log.info
    level("request", method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1000, 1))
