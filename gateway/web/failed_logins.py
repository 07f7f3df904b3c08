"""Whoever shows one wrong key after the other is not listened to for a while.

Nobody guesses 192 random bits; but each guess at another key's id costs the database a question, and fills the log.
An address that is being ignored is let in with what this process has seen to be right: one client with an old
key does not lock out those beside it.
"""

from __future__ import annotations

import time
from collections import OrderedDict

import structlog
from limits import RateLimitItemPerMinute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.redis.request_rates import RequestRates
from gateway.web.key_guard import signs_in, stream_token_of
from gateway.web.key_ring import KeyRing
from gateway.web.request_rate import address_of, refuse
from gateway.web.session_guard import session_of

log = structlog.get_logger("gateway.web")

#: Wrong keys, tokens and sessions of one address.
_ALLOWED = RateLimitItemPerMinute(60)
#: Addresses that are ignored at once; whoever has more of them is beyond our means.
_MOST = 10_000
_UNAUTHENTICATED = 401
_MESSAGE = "too many wrong keys came from this address: ask again in {} seconds"


class FailedLogins:
    """ASGI middleware, around the one that asks who calls."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._ignored: OrderedDict[str, float] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = address_of(scope)
        if (wait := self._wait(address)) and _shows_unknown(scope):
            await refuse(_MESSAGE.format(wait), wait)(scope, receive, send)
            return
        watch = _Watch(send)
        await self.app(scope, receive, watch.send)
        if watch.failed:
            scope["app"].state.wiring.audit.note_failed_login(address)
            await self._count(scope["app"].state.wiring.rates, address)

    def _wait(self, address: str) -> int:
        until = self._ignored.get(address)
        if until is None:
            return 0
        left = until - time.monotonic()
        if left <= 0:
            del self._ignored[address]
        return max(0, int(left) + 1) if left > 0 else 0

    async def _count(self, rates: RequestRates, address: str) -> None:
        verdict = await rates.take(f"wrong-keys:{address}", (_ALLOWED,))
        if verdict is None or verdict.wait is None:
            return
        log.warning("wrong_keys", address=address, seconds=verdict.wait)
        self._ignored[address] = time.monotonic() + verdict.wait
        if len(self._ignored) > _MOST:
            self._ignored.popitem(last=False)


class _Watch:
    """Whether what was shown is good for nothing; not, whether nothing was."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.failed = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == _UNAUTHENTICATED:
            self.failed = "invalid_token" in Headers(raw=message["headers"]).get("www-authenticate", "")
        await self._send(message)


def _shows_unknown(scope: Scope) -> bool:
    """A key, stream token or session that this process has not seen to be right, or a form to try a key in."""
    keys: KeyRing = scope["app"].state.wiring.keys
    if (given := Headers(scope=scope).get("authorization")) is not None:
        return not keys.remembers(given.partition(" ")[2].strip())
    if stream := stream_token_of(scope):
        return not keys.remembers_stream(*stream)
    session = session_of(scope)
    return signs_in(scope) or (session is not None and not keys.remembers_session(session))
