"""Calls of the gateway's own routes, from within a request: what a tool of agents does, or a door of another API, is
done by a route.

So a tool can do nothing that its caller could not do over HTTP: the route's scope, its owner's check, its checks of
what it is given, its threads and its errors are the same, because it is the same route. Only the guard is not passed
again: it has counted the request that brought the tool's call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import orjson
import structlog
from attrs import define
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Scope

from gateway.access.keys import Caller
from gateway.web.authentication import READING
from gateway.web.call_queue import VISITOR
from gateway.web.container import GatewayParts
from gateway.web.middleware import note_call

Shaped = TypeVar("Shaped")
log = structlog.get_logger("gateway.web")

#: Refusals of reads that the audit trail has: somebody may try what is not theirs.
_FOR_THE_AUDIT = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_FAILED = orjson.dumps({"error": {"code": "internal_error", "message": "the gateway's log has more"}})
#: Longer answers are read in a thread.
_LONG = 32 << 10
#: Entries of the ASGI scope that the outer request's route has set, and that the inner call must not have.
_OF_ROUTE = ("route", "endpoint", "path_params", "router")


class RefusedCallError(Exception):
    """A route has refused a call. It is none of the error tree, whose errors have codes of their own."""

    def __init__(self, status: int, told: Mapping[str, Any], retry_after: str | None = None) -> None:
        super().__init__(f"{told.get('code')}: {told.get('message')}")
        self.status = status
        self.code = str(told.get("code"))
        self.message = str(told.get("message"))
        self.detail = told.get("detail")
        #: The header of that name.
        self.retry_after = retry_after


@define(eq=False, repr=False)
class InnerCalls:
    """Calls for the caller of one request, by one tool."""

    _request: Request
    _tool: str

    @property
    def parts(self) -> GatewayParts:
        parts: GatewayParts = self._request.app.state.parts
        return parts

    @property
    def caller(self) -> Caller:
        """As the guard has found it."""
        found: Caller = self._request.state.caller
        return found

    async def get(self, path: str, /, *names: str, **query: Any) -> Any:
        """The answer of `GET` at `path`, whose `{}` are filled with the names. Raises `RefusedCallError`."""
        return await self.shaped(_same, path, *names, **query)

    async def shaped(self, shape: Callable[[Any], Shaped], path: str, /, *names: str, **query: Any) -> Shaped:
        """What `shape` makes of the answer: in a thread, if it is long."""
        return await self._call("GET", path.format(*map(_in_path, names)), query, b"", shape)

    async def post(self, path: str, /, *names: str, body: Mapping[str, Any] | None = None, key: str = "") -> Any:
        """The same for `POST`. It is noted for the audit as if it had come over HTTP, with the tool's name. `key` is
        that of idempotency.
        """
        data = b"" if body is None else orjson.dumps(body)
        return await self._call("POST", path.format(*map(_in_path, names)), {}, data, _same, key=key)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        data: bytes,
        shape: Callable[[Any], Shaped],
        *,
        key: str = "",
    ) -> Shaped:
        scope = self._scope(method, path, {name: value for name, value in query.items() if value is not None}, data)
        if key:
            scope["headers"].append((b"idempotency-key", key.encode("latin-1", "replace")))
        status, retry_after, answer = await self._answer(scope, data)
        refused = status >= HTTPStatus.MULTIPLE_CHOICES
        if method not in READING or status in _FOR_THE_AUDIT:
            note_call(scope, status, answer, tool=self._tool)
        if refused:
            raise RefusedCallError(status, orjson.loads(answer)["error"], retry_after)
        if len(answer) <= _LONG:
            return shape(orjson.loads(answer))
        return await self.parts.threads.run(lambda: shape(orjson.loads(answer)))

    def _scope(self, method: str, path: str, query: Mapping[str, Any], data: bytes) -> Scope:
        outer = self._request.scope
        state = {**outer["state"], "caller": self.caller}
        # its calls wait and are cancelled with the request's; reads have places of their own
        state[VISITOR].reads = method in READING
        headers = [(b"accept", b"application/json"), (b"content-length", b"%d" % len(data))]
        if data:
            headers.append((b"content-type", b"application/json"))
        return {
            **{name: value for name, value in outer.items() if name not in _OF_ROUTE},
            "method": method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": urlencode(query, doseq=True).encode(),
            "headers": headers,
            "state": state,
        }

    async def _answer(self, scope: Scope, data: bytes) -> tuple[int, str | None, bytes]:
        """The status, the header `Retry-After`, and the body."""
        status, headers, parts = 0, Headers(), []
        unread = [data]

        async def receive() -> Message:
            if not unread:
                await asyncio.Event().wait()  # nobody leaves: if the client does, the outer request is cancelled
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], Headers(raw=message["headers"])
            else:
                parts.append(message.get("body", b""))

        try:
            await self._request.app.router(scope, receive, send)
        except Exception:
            log.exception("tool_failed", tool=self._tool, method=scope["method"], path=scope["path"])
            return HTTPStatus.INTERNAL_SERVER_ERROR.value, None, _FAILED
        return status, headers.get("retry-after"), b"".join(parts)


def _in_path(name: str) -> str:
    """A name has no part of a path of its own: a slash in it would lead to another route."""
    return name.replace("/", "%2F")


def _same(answer: Any) -> Any:
    return answer
