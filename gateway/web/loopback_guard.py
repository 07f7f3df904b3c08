"""On a loopback address: this machine only. On any: no web page that its user happens to visit.

A page cannot read our answers (no CORS, but for those that the operator lists), but it could *send* (a form, a
simple `fetch`), and by DNS rebinding it could call itself by our address. So: who connects must be local, the `Host`
must be one of our names, and what changes something must not come from an origin that is neither ours nor listed.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.domain.public_address import is_loopback
from gateway.web.errors import problem

_OUR_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class LoopbackGuard:
    """ASGI middleware. `host` is the address the gateway was told to listen at, `origins` are those of other pages
    that may call it.
    """

    def __init__(self, app: ASGIApp, host: str, origins: Iterable[str] = ()) -> None:
        self.app = app
        self.origins = frozenset(origins)
        # elsewhere whoever calls shows a key, which a page that only rebinds a name does not have
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
        if scope["method"] in _READING:
            return None
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins and origin.lower().partition("://")[2] != host:
            return f"a page of another origin ({origin}) may not change anything here"
        return None


def _name(host: str) -> str:
    """`Host` without its port; an IPv6 address keeps its brackets."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not host.endswith("]") else host
