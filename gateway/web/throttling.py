"""Limits how many requests a caller may make in a window: per user, and without keys per address.

Every answer says how many are left, in the header fields of draft-ietf-httpapi-ratelimit-headers-10.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import cast

import structlog
from attrs import define, field
from limits import RateLimitItem, RateLimitItemPerMinute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Scope

from gateway.access.audit import AuditTrail
from gateway.access.keys import ANYBODY, Caller, read_stream_token, read_token
from gateway.access.request_counter import Left, RequestCounter, Verdict, parse_rates
from gateway.errors import ForgedRequestError, TooManyError
from gateway.web.authentication import KeyRing, refuse_others, session_of, signs_in, stream_token_of
from gateway.web.errors import problem

log = structlog.get_logger("gateway.web")

#: The limit of callers with a key, if none is set.
DEFAULT = "1200/minute"
#: Paths that monitoring asks for again and again.
_UNLIMITED = frozenset({"/health", "/health/live", "/metrics"})
#: Leading bits of an IPv6 address: a customer of a provider has at least all addresses that share them.
_IPV6_PREFIX = 64


#: In a request's state: header fields that its answer gets, by name.
TOLD = "told_headers"


class RequestLimit:
    """`setting`: `GATEWAY_RATE_LIMIT`. A stream is one request, however long it is."""

    def __init__(self, setting: str | None) -> None:
        none = setting is not None and setting.lower() == "none"
        self.of_users = () if none else parse_rates(setting or DEFAULT)
        self.of_addresses = self.of_users if setting else ()

    async def refusal(self, scope: Scope) -> ASGIApp | None:
        """Count the request, and have its answer say how many are left."""
        if scope["path"] in _UNLIMITED:
            return None
        name, limits = self._limits(scope)
        verdict = await _rates(scope).take(name, limits) if limits else None
        if verdict is None:
            return None
        if verdict.wait is not None:
            return _refuse(scope, verdict, verdict.wait)
        scope["state"][TOLD] = fields(verdict.left)
        return None

    def _limits(self, scope: Scope) -> tuple[str, Sequence[RateLimitItem]]:
        caller: Caller = scope.get("state", {}).get("caller", ANYBODY)
        if caller.key:
            return f"user:{caller.key.user_id}", self.of_users
        return f"address:{address_of(scope)}", self.of_addresses


def _rates(scope: Scope) -> RequestCounter:
    return cast("RequestCounter", scope["app"].state.parts[RequestCounter])


def tell(error: Exception | None) -> None:
    """Log that no client is limited for the time being, or that this is over."""
    if error:
        log.warning("requests_are_not_limited", error=type(error).__name__)
    else:
        log.info("requests_are_limited_again")


def address_of(scope: Scope) -> str:
    """The client's address; of an IPv6 address only the part that its owner cannot choose."""
    text = str((scope.get("client") or ("unknown", 0))[0])
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
    """A policy is named by its window, in seconds."""
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
# Any page can make a browser send wrong tokens, and a neighbour on another port can plant a wrong cookie in it. So
# each way to show a key is counted by itself, and what other pages send is counted apart. What cannot be a key by its
# shape is not counted at all: MongoDB is not asked for it. So only an address that tries keys is kept from sign-in.

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
