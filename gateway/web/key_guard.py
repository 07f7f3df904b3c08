"""Who calls: nobody but the operator while there are no keys, else whoever shows a key, or what one was changed for.

`Authorization` wins over a cookie: whoever sends it means it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple, cast
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
        if stream := stream_token_of(scope):
            _forget_stream_token(scope)
        try:
            caller = ANYBODY if is_open(scope["path"]) else await self._caller(scope, stream)
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
            ring: KeyRing = scope["app"].state.parts[KeyRing]
            state["until_over"] = partial(ring.until_over, caller.key, state.get("session"))
            structlog.contextvars.bind_contextvars(key_id=caller.key.id)
        await self.app(scope, receive, send)

    async def _caller(self, scope: Scope, stream: StreamTokenShown | None) -> Caller:
        """Raises `UnauthenticatedError`, `UnavailableError`."""
        ring: KeyRing = scope["app"].state.parts[KeyRing]
        if not self.required and not await ring.in_use():
            return ANYBODY
        given = Headers(scope=scope).getlist("authorization")
        if not given:
            return await _without_header(scope, ring, stream)
        scheme, _, key = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer":
            raise WrongKeyError(_NO_KEY)
        return await ring.caller(key.strip())


async def _without_header(scope: Scope, ring: KeyRing, stream: StreamTokenShown | None) -> Caller:
    """What a browser has: a stream token, a session, or a key that it is about to show."""
    if stream:
        return await ring.stream_caller(*stream)
    if signs_in(scope):
        return ANYBODY
    if session := session_of(scope):
        caller = await ring.session_caller(session)
        assert caller.key  # noqa: S101 - whoever has a session has a key
        refuse_forgery(scope, session.csrf_token(caller.key, ring.seal))
        scope.setdefault("state", {})["session"] = session
        return caller
    raise UnauthenticatedError(_NO_KEY)


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith(_OPEN_FOLDER)


def signs_in(scope: Scope) -> bool:
    return (scope["method"], scope["path"]) == _SIGN_IN


class StreamTokenShown(NamedTuple):
    token: str
    job_id: str


def stream_token_of(scope: Scope) -> StreamTokenShown | None:
    """The one in the address of a log, if any; whether it is good is not asked yet."""
    log = _LOG.fullmatch(scope["path"])
    tokens = [value for name, value in _parameters(scope) if name == "token"] if log else ()
    return StreamTokenShown(tokens[0], log[1]) if log and tokens else None


def _forget_stream_token(scope: Scope) -> None:
    """For whatever writes addresses down: the server's log is one."""
    kept = [pair for pair in _parameters(scope) if pair[0] != "token"]
    scope["query_string"] = urlencode(kept, encoding="latin-1").encode("latin-1")


def _parameters(scope: Scope) -> list[tuple[str, str]]:
    query = cast("bytes", scope.get("query_string", b""))
    return parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
