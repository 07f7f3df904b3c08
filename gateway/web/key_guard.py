"""Who calls: nobody but the operator while there are no keys, else whoever shows a key."""

from __future__ import annotations

import re
from typing import cast
from urllib.parse import parse_qsl, urlencode

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.domain.api_key import ANYBODY, Caller
from gateway.domain.errors import UnauthenticatedError, UnavailableError, WrongKeyError
from gateway.web.errors import RETRY_AFTER, problem
from gateway.web.key_ring import KeyRing

#: What is the same for everybody, or what balancers and browsers ask without a key.
OPEN = frozenset({"/", "/docs", "/redoc", "/openapi.json", "/health", "/health/live"})
_OPEN_FOLDER = "/docs/assets/"
_LOG = re.compile(r"/jobs/([0-9a-f]{32})/logs")
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
        except UnauthenticatedError as error:
            headers = {"WWW-Authenticate": _challenge(error)}
            await problem(scope, 401, error.code, error.message, headers=headers)(scope, receive, send)
            return
        except UnavailableError as error:
            headers = {"Retry-After": str(RETRY_AFTER)}
            await problem(scope, 503, error.code, error.message, headers=headers)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if caller.key:
            structlog.contextvars.bind_contextvars(key_id=caller.key.id)
        await self.app(scope, receive, send)

    async def _caller(self, scope: Scope, stream_token: str | None) -> Caller:
        """Raises `UnauthenticatedError`, `UnavailableError`."""
        ring: KeyRing = scope["app"].state.wiring.keys
        if not self.required and not await ring.in_use():
            return ANYBODY
        given = Headers(scope=scope).getlist("authorization")
        if not given:
            log = _LOG.fullmatch(scope["path"])
            if log and stream_token is not None:
                return await ring.stream_caller(stream_token, log[1])
            raise UnauthenticatedError(_NO_KEY)
        scheme, _, key = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer":
            raise WrongKeyError(_NO_KEY)
        return await ring.caller(key.strip())


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


def _challenge(error: UnauthenticatedError) -> str:
    told = ', error="invalid_token"' if isinstance(error, WrongKeyError) else ""
    return f'Bearer realm="discoverybot"{told}'
