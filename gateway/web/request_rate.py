"""Each caller makes so many requests in a while and no more: its user's, and without keys its address's.

What it has left is told with every answer, in the header fields of draft-ietf-httpapi-ratelimit-headers-10.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import cast

import structlog
from limits import RateLimitItem
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.domain.api_key import ANYBODY, Caller
from gateway.domain.errors import TooManyError
from gateway.redis.request_rates import Left, RequestRates, Verdict, parse_rates
from gateway.web.errors import problem

log = structlog.get_logger("gateway.web")

#: Of whoever shows a key, where no limit is set.
DEFAULT = "1200/minute"
#: Asked by what watches over us, again and again.
_UNLIMITED = frozenset({"/health", "/health/live", "/metrics"})
#: Bits of an IPv6 address that one customer of a provider has to himself at least.
_IPV6_PREFIX = 64


class RequestRate:
    """ASGI middleware. `setting`: `GATEWAY_RATE_LIMIT`. A stream is one request, however long it is."""

    def __init__(self, app: ASGIApp, setting: str | None) -> None:
        self.app = app
        none = setting is not None and setting.lower() == "none"
        self.of_users = () if none else parse_rates(setting or DEFAULT)
        self.of_addresses = self.of_users if setting else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNLIMITED:
            await self.app(scope, receive, send)
            return
        name, limits = self._limits(scope)
        verdict = await _rates(scope).take(name, limits) if limits else None
        if verdict is None:
            await self.app(scope, receive, send)
        elif verdict.wait is None:
            await self.app(scope, receive, _telling(verdict.left, send))
        else:
            await _refuse(verdict, verdict.wait)(scope, receive, send)

    def _limits(self, scope: Scope) -> tuple[str, Sequence[RateLimitItem]]:
        caller: Caller = scope.get("state", {}).get("caller", ANYBODY)
        if caller.key:
            return f"user:{caller.key.user_id}", self.of_users
        return f"address:{address_of(scope)}", self.of_addresses


def _rates(scope: Scope) -> RequestRates:
    return cast("RequestRates", scope["app"].state.parts[RequestRates])


def tell(error: Exception | None) -> None:
    """That nobody is limited for the time being, and that it is over."""
    if error:
        log.warning("requests_are_not_limited", error=type(error).__name__)
    else:
        log.info("requests_are_limited_again")


def address_of(scope: Scope) -> str:
    """Who is connected; of an IPv6 address the part that its owner cannot choose."""
    text = str((scope.get("client") or ("unknown", 0))[0])
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))
    return text


def refuse(message: str, wait: int, headers: dict[str, str] | None = None) -> ASGIApp:
    async def refused(scope: Scope, receive: Receive, send: Send) -> None:
        told = {"Retry-After": str(wait), **(headers or {})}
        await problem(scope, 429, TooManyError.code, message, headers=told)(scope, receive, send)

    return refused


def _refuse(verdict: Verdict, wait: int) -> ASGIApp:
    spent = next(one for one in verdict.left if one.remaining == 0)
    message = (
        f"{spent.quota} requests in {spent.window} seconds are allowed (GATEWAY_RATE_LIMIT): ask again in {wait}"
    )
    return refuse(f"{message} seconds", wait, fields(verdict.left))


def fields(left: Sequence[Left]) -> dict[str, str]:
    """A policy is named by its window, in seconds."""
    return {
        "RateLimit-Policy": ", ".join(f'"{one.window}s";q={one.quota};w={one.window}' for one in left),
        "RateLimit": ", ".join(f'"{one.window}s";r={one.remaining};t={one.reset}' for one in left),
    }


def _telling(left: Sequence[Left], send: Send) -> Send:
    async def telling(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(fields(left))
        await send(message)

    return telling
