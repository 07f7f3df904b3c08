"""The one layer that decides whether a request is served: by its origin, its caller, its rate and its size."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import cast
from weakref import WeakValueDictionary

import structlog
from attrs import define, field
from limits import RateLimitItemPerMinute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access.audit import AuditTrail
from gateway.access.keys import Caller, read_stream_token, read_token
from gateway.access.request_counter import Left, RequestCounter, Verdict, parse_rates
from gateway.contract.public_address import is_loopback
from gateway.errors import (
    ForgedRequestError,
    TooManyError,
    UnauthenticatedError,
    UnavailableError,
    WrongKeyError,
)
from gateway.settings import Settings
from gateway.web.authentication import (
    READING,
    STATIC,
    KeyRing,
    identify,
    refuse_others,
    session_of,
    signs_in,
    stream_token_of,
)
from gateway.web.call_queue import VISITOR, Visitor, set_visitor
from gateway.web.errors import BodyTooLargeError, answer_to, problem

log = structlog.get_logger("gateway.web")

#: nginx's status for a client that closed the connection: it is only counted.
_CLIENT_GONE = 499


class Guard:
    """ASGI middleware. What it finds out about the caller is in `request.state`."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.key_required = settings.serves_others
        self.origins = Origins(settings.gateway_host, settings.gateway_cors_origins)
        self.wrong_keys = WrongKeys(settings.gateway_cors_origins)
        self.rate = RequestLimit(settings.gateway_rate_limit)
        self.size = BodyLimit()
        self.turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # a copy, because a stream token is taken out of the scope
        sent = {**scope}
        visitor = Visitor(f"address:{address_of(scope)}", reads=scope["method"] in READING)
        scope.setdefault("state", {})[VISITOR] = visitor
        set_visitor(visitor)
        try:
            refusal = await self._refusal(scope)
            await self.turns.next(visitor.name)
            await (refusal or self.app)(scope, self.size.counted(scope, receive), send)
        except asyncio.CancelledError:
            if not visitor.is_gone:
                raise
            await problem(scope, _CLIENT_GONE, "client_gone", "the client did not wait")(scope, receive, send)
        finally:
            visitor.end()
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
        except (ForgedRequestError, TooManyError, UnauthenticatedError, UnavailableError) as error:
            scope.setdefault("state", {})[WRONG_KEY] = isinstance(error, WrongKeyError)
            return answer_to(error, scope)
        caller: Caller = scope["state"]["caller"]
        if caller.key:
            scope["state"][VISITOR].name = f"user:{caller.key.user_id}"
        return None


# --- all requests are handled on one event loop, which many requests of one user would otherwise occupy for seconds


@define(eq=False, repr=False, slots=False)
class Turns:
    """A user's requests begin one after the other, with a round of the event loop between them, in which requests of
    other users can begin.
    """

    _of_users: WeakValueDictionary[str, asyncio.Lock] = field(init=False, factory=WeakValueDictionary)

    async def next(self, user: str) -> None:
        async with self._of_users.setdefault(user, asyncio.Lock()):
            await asyncio.sleep(0)


# --- a gateway on a loopback address serves this machine only. On any address it refuses unlisted origins' pages.
#
# A page cannot read our answers, because CORS allows only the origins that the operator lists. But it could *send*
# requests (a form, a simple `fetch`), and by DNS rebinding its own name could lead to our address. So the client must
# be local, the `Host` must be one of our names, and a request that changes something must come from our own origin or
# a listed one.

_OUR_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Origins:
    """`host` is the address that the gateway listens at, `origins` are those of other pages that may call it."""

    def __init__(self, host: str, origins: Iterable[str] = ()) -> None:
        self.origins = frozenset(origins)
        # `Host` is checked on loopback only: elsewhere clients show a key, which a page that rebinds a name lacks
        self.local = is_loopback(host)
        self.names = _OUR_NAMES | {host.lower(), f"[{host.lower()}]"}

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """The answer to a request whose client, `Host` or origin is not allowed; `None` for any other request."""
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
        """The answer to a body whose declared length is too large. It is not read, so the connection is closed."""
        limit = self._limit(scope)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):  # noqa: PLR2004 - `int` of many digits is slow, and refused by Python
            message = BodyTooLargeError(limit).detail
            return problem(scope, 413, "body_too_large", message, headers={"Connection": "close"})
        return None

    def counted(self, scope: Scope, receive: Receive) -> Receive:
        """`receive` with a limit. Only a chunked body is counted: the server enforces a declared length."""
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


# --- limits how many requests a caller may make in a window: per user, and without keys per address.
#
# Every answer says how many are left, in the header fields of draft-ietf-httpapi-ratelimit-headers-10.

#: The limit of callers with a key, if none is set.
DEFAULT = "1200/minute"
#: Paths that monitoring asks for again and again.
_UNLIMITED = frozenset({"/health", "/health/live", "/metrics"})
#: Leading bits of an IPv6 address: a customer of a provider has at least all addresses that share them.
_IPV6_PREFIX = 64


#: The place in a request's state for further header fields of the answer, by name.
TOLD = "told_headers"


class RequestLimit:
    """`setting`: `GATEWAY_RATE_LIMIT`. A stream is one request, however long it is."""

    def __init__(self, setting: str | None) -> None:
        none = setting is not None and setting.lower() == "none"
        self.of_users = () if none else parse_rates(setting or DEFAULT)
        self.of_addresses = self.of_users if setting else ()

    async def refusal(self, scope: Scope) -> ASGIApp | None:
        """Count the request, and add to its answer how many requests are left."""
        if scope["path"] in _UNLIMITED or scope["path"].startswith(STATIC):
            return None
        caller: Caller = scope["state"]["caller"]
        limits = self.of_users if caller.key else self.of_addresses
        verdict = await _rates(scope).take(scope["state"][VISITOR].name, limits) if limits else None
        if verdict is None:
            return None
        if verdict.wait is not None:
            return _refuse(scope, verdict, verdict.wait)
        scope["state"][TOLD] = fields(verdict.left)
        return None


def _rates(scope: Scope) -> RequestCounter:
    return cast("RequestCounter", scope["app"].state.parts[RequestCounter])


def tell(error: Exception | None) -> None:
    """Log that requests are not limited for the time being because of the error, or that they are again (`None`)."""
    if error:
        log.warning("requests_are_not_limited", error=type(error).__name__)
    else:
        log.info("requests_are_limited_again")


def address_of(scope: Scope) -> str:
    """The client's address; of an IPv6 address only the part that its owner cannot choose."""
    return _of_owner(str((scope.get("client") or ("unknown", 0))[0]))


@lru_cache(maxsize=256)  # most requests come from few addresses
def _of_owner(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))
    return text


def refuse(scope: Scope, message: str, wait: int, headers: dict[str, str] | None = None) -> ASGIApp:
    fields_of_refusal = {"Retry-After": str(wait), **(headers or {})}
    return problem(scope, 429, TooManyError.code, message, headers=fields_of_refusal)


def _refuse(scope: Scope, verdict: Verdict, wait: int) -> ASGIApp:
    spent = next(one for one in verdict.left if one.remaining == 0)
    message = (
        f"{spent.quota} requests in {spent.window} seconds are allowed (GATEWAY_RATE_LIMIT): ask again in {wait}"
    )
    return refuse(scope, f"{message} seconds", wait, fields(verdict.left))


def fields(left: Sequence[Left]) -> dict[str, str]:
    """The header fields for these limits. Each policy is named by its window in seconds."""
    return {
        "RateLimit-Policy": ", ".join(f'"{one.window}s";q={one.quota};w={one.window}' for one in left),
        "RateLimit": ", ".join(f'"{one.window}s";r={one.remaining};t={one.reset}' for one in left),
    }


# --- an address that shows one wrong key after the other is ignored for a while.
#
# Nobody can guess 192 random bits; but each guess at another key's id costs a query to MongoDB, and fills the log.
# Requests from an ignored address still pass with a key that this process knows to be right: one client with an old
# key does not lock out the others at its address.
#
# Any page can make a browser send wrong tokens, and a page on another port can plant a wrong cookie in it. So each
# way to show a key is counted by itself, and requests of other origins' pages are counted apart. Text that does not
# have the shape of a key is not counted at all, because MongoDB is not asked for it. So only an address that tries
# keys is kept from signing in.

#: Wrong keys, tokens or sessions that one address may show.
_ALLOWED = RateLimitItemPerMinute(60)
#: Addresses that are ignored at the same time. An attacker with more addresses is beyond our means.
_MOST = 10_000
#: Set in the request's state if the key, token or session that it shows is wrong.
WRONG_KEY = "wrong_key"
#: Set there if the key in the body cannot be one by its shape.
MALFORMED = "malformed_key"
_MESSAGE = "too many wrong keys came from this address: ask again in {} seconds"


@define(eq=False, repr=False, slots=False)
class WrongKeys:
    _origins: Collection[str] = ()
    _ignored: OrderedDict[str, float] = field(init=False, factory=OrderedDict)

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """The answer to a request of an ignored address."""
        if self._ignored and (wait := self._wait(self._name(scope))) and not _is_known(scope):
            return refuse(scope, _MESSAGE.format(wait), wait)
        return None

    async def count(self, sent: Scope, scope: Scope) -> None:
        """Count a wrong key; `sent` is the scope as it came."""
        parts = scope["app"].state.parts
        parts[AuditTrail].note_failed_login(address_of(scope))
        if not scope["state"].get(MALFORMED):
            await self._count(parts[RequestCounter], self._name(sent))

    def _name(self, scope: Scope) -> str | None:
        """The name under which wrong keys are counted; `None` for a request that does not count."""
        shown = _shown(scope)
        return f"{shown}{self._sender(scope)}:{address_of(scope)}" if shown else None

    def _sender(self, scope: Scope) -> str:
        if Headers(scope=scope).get("origin") in self._origins:
            return ""
        try:
            refuse_others(scope)
        except ForgedRequestError:
            return "-of-others"
        return ""

    def _wait(self, name: str | None) -> int:
        until = self._ignored.get(name) if name else None
        if name is None or until is None:
            return 0
        left = until - time.monotonic()
        if left <= 0:
            del self._ignored[name]
            return 0
        return int(left) + 1

    async def _count(self, rates: RequestCounter, name: str | None) -> None:
        verdict = await rates.take(f"wrong-keys:{name}", (_ALLOWED,)) if name else None
        if name is None or verdict is None or verdict.wait is None:
            return
        shown, _, address = name.partition(":")
        log.warning("wrong_keys", address=address, shown=shown, seconds=verdict.wait)
        self._ignored[name] = time.monotonic() + verdict.wait
        if len(self._ignored) > _MOST:
            self._ignored.popitem(last=False)


def _shown(scope: Scope) -> str | None:
    """What kind of key the request shows; `None` if it cannot be a key by its shape."""
    if (given := Headers(scope=scope).get("authorization")) is not None:
        return "key" if read_token(_key_in(given)) else None
    if stream := stream_token_of(scope):
        return "stream-token" if read_stream_token(stream.token) else None
    if signs_in(scope):
        return "sign-in"
    return "session" if session_of(scope) else None


def _is_known(scope: Scope) -> bool:
    """Whether this process knows the key to be right. It cannot know that of a form that signs in."""
    keys: KeyRing = scope["app"].state.parts[KeyRing]
    if (given := Headers(scope=scope).get("authorization")) is not None:
        return keys.remembers(_key_in(given))
    if stream := stream_token_of(scope):
        return keys.remembers_stream(*stream)
    session = None if signs_in(scope) else session_of(scope)
    return session is not None and keys.remembers_session(session)


def _key_in(given: str) -> str:
    return given.partition(" ")[2].strip()
