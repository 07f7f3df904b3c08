"""The one layer that decides whether a request goes on: where it comes from, who makes it, how often, how large."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.contract.public_address import is_loopback
from gateway.errors import ForgedRequestError, UnauthenticatedError, UnavailableError, WrongKeyError
from gateway.settings import Settings
from gateway.web.authentication import READING, identify
from gateway.web.errors import BodyTooLargeError, answer_to, problem
from gateway.web.throttling import WRONG_KEY, RequestLimit, WrongKeys


class Guard:
    """ASGI middleware. What it finds out about the caller is in `request.state`."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.key_required = settings.serves_others
        self.origins = Origins(settings.gateway_host, settings.gateway_cors_origins)
        self.wrong_keys = WrongKeys(settings.gateway_cors_origins)
        self.rate = RequestLimit(settings.gateway_rate_limit)
        self.size = BodyLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # a copy, because a stream token is taken out of the scope
        sent = {**scope}
        refusal = await self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self.app(scope, self.size.counted(scope, receive), send)
        if scope.get("state", {}).get(WRONG_KEY):
            await self.wrong_keys.count(sent, scope)

    async def _refusal(self, scope: Scope) -> ASGIApp | None:
        return (
            self.origins.refusal(scope)
            or self.wrong_keys.refusal(scope)
            or await self._unknown(scope)
            or await self.rate.refusal(scope)
            or self.size.refusal(scope)
        )

    async def _unknown(self, scope: Scope) -> ASGIApp | None:
        try:
            await identify(scope, key_required=self.key_required)
        except (ForgedRequestError, UnauthenticatedError, UnavailableError) as error:
            scope.setdefault("state", {})[WRONG_KEY] = isinstance(error, WrongKeyError)
            return answer_to(error, scope)
        return None


# --- a gateway on a loopback address serves this machine only. On any address it refuses unlisted origins' pages.
#
# A page cannot read our answers (no CORS, but for the origins that the operator lists), but it could *send* requests
# (a form, a simple `fetch`), and by DNS rebinding its own name could lead to our address. So the client must be
# local, the `Host` must be one of our names, and a request that changes something must not come from an origin that
# is neither ours nor listed.

_OUR_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Origins:
    """`host` is the address that the gateway listens at, `origins` are those of other pages that may call it."""

    def __init__(self, host: str, origins: Iterable[str] = ()) -> None:
        self.origins = frozenset(origins)
        # on other addresses a client shows a key, which a page that only rebinds a name does not have
        self.local = is_loopback(host)
        self.names = _OUR_NAMES | {host.lower(), f"[{host.lower()}]"}

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """The answer to a request that may not come from there."""
        reason = self._reason(scope)
        return problem(scope, 403, "forbidden", reason) if reason else None

    def _reason(self, scope: Scope) -> str | None:
        client = scope.get("client")
        if self.local and client and not _is_loopback(client[0]):
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


#: Most requests come from few addresses.
_is_loopback = lru_cache(maxsize=256)(is_loopback)


def _name(host: str) -> str:
    """`Host` without its port; an IPv6 address keeps its brackets."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not host.endswith("]") else host


# --- no request's body is larger than the gateway is willing to hold in memory

MAX_BODY = 256 << 10
#: The limit of an egg, which goes to a file and not into memory.
MAX_EGG = 64 << 20
_EGG_PATH = re.compile(r"/projects/[^/]+/versions")


class BodyLimit:
    """FastAPI's own `max_body_size` does the same, but answers in a format that is not ours."""

    def __init__(self, limit: int = MAX_BODY, egg_limit: int = MAX_EGG) -> None:
        self.limit = limit
        self.egg_limit = egg_limit

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """The answer to a body that says that it is larger. It is not read: the connection cannot be used again."""
        limit = self._limit(scope)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):  # noqa: PLR2004 - `int` of many digits is slow, and refused by Python
            message = BodyTooLargeError(limit).detail
            return problem(scope, 413, "body_too_large", message, headers={"Connection": "close"})
        return None

    def counted(self, scope: Scope, receive: Receive) -> Receive:
        """The server enforces a declared length; a body without one has to be counted."""
        is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        return _counting(self._limit(scope), receive) if is_chunked else receive

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
