"""The one layer that touches every answer: its id and headers, its line in the log, its figures, its audit entry."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access.audit import AuditTrail
from gateway.access.keys import ANYBODY, Caller
from gateway.access.keys import Scope as KeyScope
from gateway.web.authentication import READING, is_for_a_browser, signs_in
from gateway.web.container import GatewayParts
from gateway.web.errors import problem
from gateway.web.guard import TOLD

log = structlog.get_logger("gateway.web")

HEADER = "X-Request-ID"
_ID_HEADER = HEADER.lower().encode()
_SANE = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_SERVER_ERROR = 500


class AnswerMiddleware:
    """ASGI middleware, the outermost. Every request is answered with an id, even if its route fails; the client's own
    `X-Request-ID` is taken if it is sane.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: ProcessMetrics,
        cors: Mapping[str, Any] | None = None,
        pages: Callable[[ASGIApp], ASGIApp] | None = None,
    ) -> None:
        """`cors` has the arguments of Starlette's `CORSMiddleware`; pages of its origins can then also read how a
        route failed. `pages` makes a layer around this one, for requests of a browser for a page.
        """
        self.app = app
        self.metrics = metrics
        self.for_browsers: ASGIApp = pages(self._answer) if pages else self._answer
        self.answered: ASGIApp = CORSMiddleware(self._answered, **cors) if cors else self._answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif is_for_a_browser(scope):
            await self.for_browsers(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == _ID_HEADER), b"")
        request_id = given.decode() if _SANE.fullmatch(given) else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id, correlation_id=request_id)
        sent = _Sent(scope, send, self.metrics, request_id)
        try:
            await self.answered(scope, receive, sent.send)
        finally:
            sent.end()

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def noticed(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self.app(scope, receive, noticed)
        except Exception:
            log.exception("request_failed", method=scope["method"], path=scope["path"])
            if began:
                raise  # the answer is sent in part: the server cuts the connection, so that it does not look complete
            message = "an internal error; the gateway's log has more under this request id"
            await problem(scope, _SERVER_ERROR, "internal_error", message)(scope, receive, send)


#: A POST that changes nothing.
_PREVIEW = "/crawl/preview"
#: Set in the state of a request whose route can change many things, and was asked only to count them.
MERELY_COUNTED = "merely_counted"


class _Sent:
    """The answer to one request, as it goes out. It may be a stream of hours, so it is noted when it begins."""

    __slots__ = ("_began", "_id", "_is_noted", "_metrics", "_scope", "_send", "_streams", "status")

    def __init__(self, scope: Scope, send: Send, metrics: ProcessMetrics, request_id: str) -> None:
        self._scope = scope
        self._send = send
        self._metrics = metrics
        self._id = request_id
        self._began = time.perf_counter()
        self._streams = False
        self._is_noted = scope["method"] in READING
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start(message)
        elif not self._is_noted:
            self._note(message.get("body", b""))
        await self._send(message)

    def _start(self, message: Message) -> None:
        scope, status = self._scope, message["status"]
        self.status = status
        given = [(name.lower(), value) for name, value in message.get("headers", ())]
        kind = dict(given).get(b"content-type", b"")
        message["headers"] = _complete(given, self._id, scope)
        self._metrics.answered(scope, status, time.perf_counter() - self._began)
        if kind.startswith(b"text/event-stream"):
            self._streams = True
            self._metrics.streams.inc()
        if not self._is_noted and not kind.startswith(b"application/json"):
            self._note()

    def end(self) -> None:
        seconds = time.perf_counter() - self._began
        if self._streams:
            self._metrics.streams.dec()
        if self.status is None:
            self._metrics.answered(self._scope, _SERVER_ERROR, seconds)
        if not self._is_noted:
            self._note()
        _log_request(self._scope, self.status, seconds)

    def _note(self, body: bytes = b"") -> None:
        """Note the call for the audit, once."""
        self._is_noted = True
        if not self._scope.get("state", {}).get(MERELY_COUNTED):
            note_call(self._scope, self.status or _SERVER_ERROR, body)


def note_call(scope: Scope, status: int, body: bytes, **more: str) -> None:
    """Note a call for the audit, with its answer, and with more that is named beside its resources.

    These calls are not noted: a call that has no route, because the address is unknown or the guard refused it; a
    method that is not possible; a preview, which changes nothing and is a POST only because it is too long for an
    address; and a failed sign-in, because a client can try endlessly: wrong keys are counted by address and hour.
    """
    refused = status >= HTTPStatus.MULTIPLE_CHOICES
    if (
        scope["path"] == _PREVIEW
        or "route" not in scope
        or status == HTTPStatus.METHOD_NOT_ALLOWED
        or (refused and signs_in(scope))
    ):
        return
    parts: GatewayParts = scope["app"].state.parts
    parts[AuditTrail].note(parts.clock(), **_facts(scope, status, {**more, **_made(body, refused=refused)}))


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    # polling and health checks would drown all other lines
    level = log.debug if scope["method"] == "GET" and status is not None and status < _SERVER_ERROR else log.info
    level("request", method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1000, 1))


# --- headers that keep a browser from guessing types, running scripts, showing answers in frames and caching them

#: Files of the API reference, the same for everybody: a browser may keep those.
ASSETS = "/docs/assets/"
#: The policy of answers that are data: a browser runs nothing in them. Pages set a policy of their own.
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


def _complete(given: list[tuple[bytes, bytes]], request_id: str, scope: Scope) -> list[tuple[bytes, bytes]]:
    """All header fields of the answer. Only its beginning is changed, so streams pass as they are."""
    state = scope["state"]
    said = {name for name, _ in given}
    told = [(name.lower().encode(), value.encode()) for name, value in state.get(TOLD, {}).items()]
    if said & {_ID_HEADER, *(name for name, _ in told)}:
        given = [pair for pair in given if pair[0] not in {_ID_HEADER, *(name for name, _ in told)}]
    if scope["path"].startswith(ASSETS):
        said.add(b"cache-control")
    unsaid = [pair for pair in _UNLESS_SAID if pair[0] not in said]
    return [*given, *told, (_ID_HEADER, request_id.encode()), *_ALWAYS, *unsaid]


# --- what one gateway process measures of itself: its requests, its streams, and the process

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Stands for the path of a request that has no route, because a client can invent any number of paths.
_NO_ROUTE = "unmatched"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ProcessMetrics:
    """The metrics of one application: two applications in one process have their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.requests = Counter(
            "discoverybot_http_requests",
            "Requests that were answered, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "discoverybot_http_request_duration_seconds",
            "Seconds until the answer began; the time that a stream goes on after that is not counted.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.streams = Gauge(
            "discoverybot_stream_clients", "Clients that follow an event stream now.", registry=self.registry
        )
        #: By method, route and status: finding them by their labels takes longer than counting.
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        key = (method, getattr(scope.get("route"), "path", _NO_ROUTE), status)
        known = self._known.get(key)
        if known is None:
            found = self.requests.labels(method, key[1], str(status)), self.seconds.labels(method, key[1])
            known = self._known[key] = found
        known[0].inc()
        known[1].observe(seconds)


# --- the audit trail's entry for a call

#: Fields of an answer that name a created object.
_IDS = ("job_id", "schedule_id", "task_id", "id", "name", "key_id")
#: Fields of an answer about many jobs: what was done to them, and to how many.
_ACTS = ("action", "done")
#: Parameters of an address that name a record: a version that is deployed.
_ASKED = ("version",)
#: Longer bodies are not searched for the ids of created objects.
_SHORT = 64 << 10
_LONGEST = 200


def _made(body: bytes, *, refused: bool) -> dict[str, str]:
    """The created objects in the answer, or the codes of its refusal."""
    if not body or len(body) > _SHORT:
        return {}
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(told, dict):
        return {}
    if refused:
        return _codes(told.get("error"))
    within = told.get("data")
    fields: dict[str, Any] = {**told, **(within if isinstance(within, dict) else {})}
    made = {name: fields[name][:_LONGEST] for name in _IDS if isinstance(fields.get(name), str)}
    return made | ({name: str(fields[name]) for name in _ACTS} if fields.keys() >= {*_ACTS} else {})


def _codes(error: Any) -> dict[str, str]:
    """The error's code, and why the first node that gives a reason has refused. Words may hold what is secret."""
    if not isinstance(error, dict):
        return {}
    detail = error.get("detail")
    nodes = detail.get("nodes") if isinstance(detail, dict) else None
    reasons = (one.get("reason") for one in nodes or () if isinstance(one, dict))
    found = {"error": error.get("code"), "reason": next(filter(None, reasons), None)}
    return {name: code[:_LONGEST] for name, code in found.items() if isinstance(code, str)}


def _facts(scope: Scope, status: int, made: dict[str, str]) -> dict[str, Any]:
    """The fields of an `AuditEntry`."""
    state = scope.get("state", {})
    caller: Caller = state.get("caller", ANYBODY)
    key = caller.key
    asked = QueryParams(scope.get("query_string", b""))
    named = {name: asked[name] for name in _ASKED if name in asked} | scope.get("path_params", {})
    named = {name: _storable(str(value)) for name, value in named.items()}
    return {
        "user_id": key.user_id if key else None,
        "key_id": key.id if key else None,
        "scope": [one for one in KeyScope if one in caller.scopes][-1] if key else None,
        "method": scope["method"],
        "route": scope["route"].path_format,
        "resources": {**made, **named},
        "changes": state.get("changes") or None,
        "status": status,
        "request_id": state.get("request_id"),
        "address": str(scope["client"][0]) if scope.get("client") else None,
    }


#: Fields that change with each change.
_ALWAYS_DIFFERENT = frozenset({"rev", "updated_at"})
#: An entry has the changes of at most this many fields.
_MOST_CHANGES = 20


def note_changes(request: Request, before: BaseModel, after: BaseModel, secret: Collection[str] = ()) -> None:
    """Have the audit trail note which fields of a record the call has changed. `before` and `after` are the views
    that the API shows, without hidden values; of the fields in `secret` only the names are noted.
    """
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    names = [name for name in new if old.get(name) != new[name] and name not in _ALWAYS_DIFFERENT]
    shown = {name: [_cut(old.get(name)), _cut(new[name])] for name in names[:_MOST_CHANGES]}
    request.state.changes = shown | {name: ["***", "***"] for name in secret if name in shown}


def _cut(value: Any) -> str:
    return _storable(orjson.dumps(value).decode())


def _storable(text: str) -> str:
    """An address may hold half a surrogate pair, which a document cannot."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()
