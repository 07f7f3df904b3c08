"""Who calls: nobody but the operator while there are no keys, else whoever shows a key, or what one was changed for.

`Authorization` wins over a cookie: whoever sends it means it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import cast
from urllib.parse import parse_qsl, urlencode

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.domain.api_key import ANYBODY, Caller
from gateway.domain.errors import ForgedRequestError, UnauthenticatedError, UnavailableError, WrongKeyError
from gateway.web.errors import RETRY_AFTER, challenge, problem
from gateway.web.key_ring import KeyRing
from gateway.web.session_guard import refuse_forgery, session_of

#: What is the same for everybody, or what balancers and browsers ask without a key.
OPEN = frozenset({"/", "/docs", "/redoc", "/openapi.json", "/health", "/health/live"})
_OPEN_FOLDER = "/docs/assets/"
_LOG = re.compile(r"/jobs/([0-9a-f]{32})/logs")
_SIGN_IN = ("POST", "/session")
_NO_KEY = "send a key: Authorization: Bearer db_…; `discoverybot keys create` on the server makes one"


class KeyGuard:
    """ASGI middleware; routes find the caller in `request.state`. `required`: also while there are no keys at all."""

    def __init__(self, app: ASGIApp, *, required: bool) -> None:
        self.app = app
        self.required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        token = _take_stream_token(scope)
        try:
            caller = ANYBODY if is_open(scope["path"]) else await self._caller(scope, token)
        except ForgedRequestError as error:
            await problem(scope, 403, error.code, error.message)(scope, receive, send)
            return
        except UnauthenticatedError as error:
            headers = {"WWW-Authenticate": challenge(error)}
            await problem(scope, 401, error.code, error.message, headers=headers)(scope, receive, send)
            return
        except UnavailableError as error:
            headers = {"Retry-After": str(RETRY_AFTER)}
            await problem(scope, 503, error.code, error.message, headers=headers)(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["caller"] = caller
        if caller.key:
            ring: KeyRing = scope["app"].state.wiring.keys
            state["until_over"] = partial(ring.until_over, caller.key, state.get("session"))
            structlog.contextvars.bind_contextvars(key_id=caller.key.id)
        await self.app(scope, receive, send)

    async def _caller(self, scope: Scope, stream_token: str | None) -> Caller:
        """Raises `UnauthenticatedError`, `UnavailableError`."""
        ring: KeyRing = scope["app"].state.wiring.keys
        if not self.required and not await ring.in_use():
            return ANYBODY
        given = Headers(scope=scope).getlist("authorization")
        if not given:
            return await _without_header(scope, ring, stream_token)
        scheme, _, key = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer":
            raise WrongKeyError(_NO_KEY)
        return await ring.caller(key.strip())


async def _without_header(scope: Scope, ring: KeyRing, stream_token: str | None) -> Caller:
    """What a browser has: a stream token, a session, or a key that it is about to show."""
    log = _LOG.fullmatch(scope["path"])
    if log and stream_token is not None:
        return await ring.stream_caller(stream_token, log[1])
    if (scope["method"], scope["path"]) == _SIGN_IN:
        return ANYBODY
    if session := session_of(scope):
        caller = await ring.session_caller(session)
        assert caller.key  # noqa: S101 - whoever has a session has a key
        refuse_forgery(scope, session, caller.key)
        scope.setdefault("state", {})["session"] = session
        return caller
    raise UnauthenticatedError(_NO_KEY)


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith(_OPEN_FOLDER)


def _take_stream_token(scope: Scope) -> str | None:
    """Out of the address of a log, and so out of whatever writes addresses down: the server's log is one."""
    query = cast("bytes", scope.get("query_string", b""))
    if b"token=" not in query or not _LOG.fullmatch(scope["path"]):
        return None
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    scope["query_string"] = urlencode(
        [pair for pair in pairs if pair[0] != "token"], encoding="latin-1"
    ).encode("latin-1")  # fmt: skip
    return next((value for name, value in pairs if name == "token"), None)
