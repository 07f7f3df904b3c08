"""What lies around every request: who may connect, its id and log line, its size, its headers, its audit entry."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from attrs import define, field
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access.audit import AuditEntry, AuditTrail
from gateway.access.keys import ANYBODY, Caller
from gateway.access.keys import Scope as KeyScope
from gateway.contract.public_address import is_loopback
from gateway.web.authentication import READING, signs_in
from gateway.web.errors import BodyTooLargeError, problem
from gateway.web.parts import GatewayParts

# --- a gateway on a loopback address serves this machine only. On any address it refuses unlisted origins' pages.
#
# A page cannot read our answers (no CORS, but for the origins that the operator lists), but it could *send* requests
# (a form, a simple `fetch`), and by DNS rebinding its own name could lead to our address. So the client must be
# local, the `Host` must be one of our names, and a request that changes something must not come from an origin that
# is neither ours nor listed.

_OUR_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


class LoopbackGuard:
    """ASGI middleware. `host` is the address that the gateway listens at, `origins` are those of other pages that
    may call it.
    """

    def __init__(self, app: ASGIApp, host: str, origins: Iterable[str] = ()) -> None:
        self.app = app
        self.origins = frozenset(origins)
        # on other addresses a client shows a key, which a page that only rebinds a name does not have
        self.local = is_loopback(host)
        self.names = _OUR_NAMES | {host.lower(), f"[{host.lower()}]"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await problem(scope, 403, "forbidden", refusal)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        client = scope.get("client")
        if self.local and client and not is_loopback(client[0]):
            return "without keys the gateway serves this machine only"
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self.local and _name(host) not in self.names:
            return f"this gateway is not known as {host!r}"
        if scope["method"] in READING:
            return None
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins and origin.lower().partition("://")[2] != host:
            return f"a page of another origin ({origin}) may not change anything here"
        return None


def _name(host: str) -> str:
    """`Host` without its port; an IPv6 address keeps its brackets."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not host.endswith("]") else host


# --- the outermost layer: every request has an id, a line in the log, and an answer, even if the route fails

log = structlog.get_logger("gateway.web")

HEADER = "X-Request-ID"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SERVER_ERROR = 500


@define(eq=False, repr=False, slots=False)
class RequestContext:
    """ASGI middleware. Takes the client's `X-Request-ID` if it is sane, makes one otherwise, and echoes it."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _SANE.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id, correlation_id=request_id)
        answer = _SentAnswer(send, request_id)
        began = time.perf_counter()
        try:
            await self.app(scope, receive, answer.send)
        except Exception:
            log.exception("request_failed", method=scope["method"], path=scope["path"])
            if answer.status is not None:
                raise  # half an answer is out: the server cuts the connection, or a client would take it for a whole
            message = "a fault of ours; the log has more under this request id"
            await problem(scope, _SERVER_ERROR, "internal_error", message)(scope, receive, answer.send)
        finally:
            _log_request(scope, answer.status, time.perf_counter() - began)


@define(eq=False, repr=False, slots=False)
class _SentAnswer:
    """Notes the status that goes out and adds the id to its headers."""

    _send: Send
    _request_id: str
    status: int | None = field(init=False, default=None)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[HEADER] = self._request_id
        await self._send(message)


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    # polling and health checks would drown all other lines
    level = log.debug if scope["method"] == "GET" and status is not None and status < _SERVER_ERROR else log.info
    level("request", method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1000, 1))


# --- no request's body is larger than the gateway is willing to hold in memory

MAX_BODY = 256 << 10
#: The limit of an egg, which goes to a file and not into memory.
MAX_EGG = 64 << 20
_EGG_PATH = re.compile(r"/projects/[^/]+/versions")


@define(eq=False, repr=False, slots=False)
class BodyLimit:
    """ASGI middleware. FastAPI's own `max_body_size` does the same, but answers in a format that is not ours."""

    app: ASGIApp
    limit: int = MAX_BODY
    egg_limit: int = MAX_EGG

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = Headers(scope=scope)
        limit = self._limit(scope)
        declared = sent.get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):  # noqa: PLR2004 - `int` of many digits is slow, and refused by Python
            # the body is not read: the connection cannot be used again
            headers = {"Connection": "close"}
            message = BodyTooLargeError(limit).detail
            await problem(scope, 413, "body_too_large", message, headers=headers)(scope, receive, send)
            return
        # the server enforces a declared length; a body without one has to be counted
        await self.app(scope, receive if "transfer-encoding" not in sent else _counting(limit, receive), send)

    def _limit(self, scope: Scope) -> int:
        return self.egg_limit if scope["method"] == "POST" and _EGG_PATH.fullmatch(scope["path"]) else self.limit


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


# --- what every answer tells a browser about itself: guess nothing, run nothing, show it in no frame, keep no copy

#: Files of the API reference, the same for everybody: a browser may keep those.
ASSETS = "/docs/assets/"
#: For data, which must run nothing, wherever a page shows it. Pages bring a policy of their own.
DATA_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_UNUSED = ("accelerometer", "camera", "geolocation", "gyroscope", "magnetometer", "microphone", "payment", "usb")
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    # not `no-referrer`: a form's `Origin` would then be "null", and our forms would look like other sites' forms
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in _UNUSED).encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
#: Headers of answers whose route has not set them.
_UNLESS_SAID = (
    (b"content-security-policy", DATA_POLICY.encode()),
    (b"cache-control", b"no-store"),
)


@define(eq=False, repr=False, slots=False)
class SecurityHeaders:
    """ASGI middleware. It changes only the beginning of an answer, so streams pass as they are."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_asset = scope["path"].startswith(ASSETS)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(name.lower(), value) for name, value in message.get("headers", ())]
                said = {name for name, _ in given} | ({b"cache-control"} if is_asset else set())
                message["headers"] = [*given, *_ALWAYS, *(pair for pair in _UNLESS_SAID if pair[0] not in said)]
            await send(message)

        await self.app(scope, receive, send_with_headers)


# --- notes every call that may change something, also a refused one, once it is known who calls

#: Fields of an answer that name what was made.
_IDS = ("job_id", "schedule_id", "task_id", "id", "name", "key_id")
#: An answer that names what was made is shorter.
_SHORT = 64 << 10
_LONGEST = 200


@define(eq=False, repr=False, slots=False)
class Audit:
    """ASGI middleware."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READING:
            await self.app(scope, receive, send)
            return
        answer = _NotedAnswer(scope, send)
        try:
            await self.app(scope, receive, answer.send)
        finally:
            answer.note()


@define(eq=False, repr=False, slots=False)
class _NotedAnswer:
    """Notes the call when the answer begins, because the answer may be a stream of hours."""

    _scope: Scope
    _send: Send
    #: The status that is noted if no answer was ever sent.
    _status: int = field(init=False, default=500)
    _is_json: bool = field(init=False, default=False)
    _is_noted: bool = field(init=False, default=False)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._is_json = Headers(raw=message["headers"]).get("content-type", "").startswith("application/json")
            if not self._is_json:
                self.note()
        elif not self._is_noted:
            self.note(message.get("body", b""))
        await self._send(message)

    def note(self, body: bytes = b"") -> None:
        """Note the call, once. A call to no address of ours, or with a method that is not possible there, changes
        nothing. Nor does a failed sign-in, which any client may try without end: wrong keys are counted by address
        and hour.
        """
        if self._is_noted or "route" not in self._scope or self._status == HTTPStatus.METHOD_NOT_ALLOWED:
            return
        self._is_noted = True
        if signs_in(self._scope) and self._status >= HTTPStatus.MULTIPLE_CHOICES:
            return
        parts: GatewayParts = self._scope["app"].state.parts
        made = _made(body) if self._is_json and self._status < HTTPStatus.MULTIPLE_CHOICES else {}
        parts[AuditTrail].note(_entry(self._scope, self._status, made, parts.clock()))


def _made(body: bytes) -> dict[str, str]:
    if len(body) > _SHORT:
        return {}
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(told, dict):
        return {}
    within = told.get("data")
    fields: dict[str, Any] = {**told, **(within if isinstance(within, dict) else {})}
    return {name: fields[name][:_LONGEST] for name in _IDS if isinstance(fields.get(name), str)}


def _entry(scope: Scope, status: int, made: dict[str, str], at: datetime) -> AuditEntry:
    state = scope.get("state", {})
    caller: Caller = state.get("caller", ANYBODY)
    key = caller.key
    named = {name: _storable(str(value)) for name, value in scope.get("path_params", {}).items()}
    return AuditEntry(
        at=at,
        user_id=key.user_id if key else None,
        key_id=key.id if key else None,
        scope=[one for one in KeyScope if one in caller.scopes][-1] if key else None,
        method=scope["method"],
        route=scope["route"].path_format,
        resources={**made, **named},
        status=status,
        request_id=state.get("request_id"),
        address=str(scope["client"][0]) if scope.get("client") else None,
    )


def _storable(text: str) -> str:
    """An address may hold half a surrogate pair, which a document cannot."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()
