"""The console's cookie, and whether what it is sent with comes from a page of ours.

A browser sends a cookie whoever makes it call. `SameSite=Strict` keeps other sites out, but not the neighbours on
other ports of this machine. So whatever changes something also needs the session's CSRF token, in a header that only
a page which could read it can send, and must not come from another origin.
"""

from __future__ import annotations

import hmac
import re

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from gateway.domain.console_session import ConsoleSession, read_session
from gateway.domain.errors import ForgedRequestError

CSRF_HEADER = "X-CSRF-Token"
COOKIE = "discoverybot_session"
#: Over https: then no neighbouring host can plant one (RFC 6265bis, 4.1.3.2).
SECURE_COOKIE = f"__Host-{COOKIE}"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: A form on a node's own page, which knows no token: there the browser has to name our origin.
_NODES_FORM = re.compile(r"/nodes/[^/]+/scrapyd/cancel\.json")


def session_of(scope: Scope) -> ConsoleSession | None:
    """The one that the request's cookie holds, if any; whether it is good is not asked yet."""
    cookies = HTTPConnection(scope).cookies
    text = cookies.get(SECURE_COOKIE) or cookies.get(COOKIE)
    return read_session(text) if text else None


def refuse_forgery(scope: Scope, csrf_token: str) -> None:
    """Raises `ForgedRequestError` where somebody else's page may be behind this."""
    if scope["method"] in _READING:
        return
    refuse_others(scope)
    headers = Headers(scope=scope)
    if _NODES_FORM.fullmatch(scope["path"]) and "origin" in headers:
        return
    given = headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token.encode()):
        raise ForgedRequestError(f"send {CSRF_HEADER}: GET /session tells what it is")


def refuse_others(scope: Scope) -> None:
    """Raises `ForgedRequestError` for what another origin's page sends, also if that may call us with a key."""
    headers = Headers(scope=scope)
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    is_ours = origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()
    if not is_ours or site not in {"none", "same-origin"}:
        raise ForgedRequestError("a page of another origin may not act for whoever is signed in here")


def keep(response: Response, session: ConsoleSession, scope: Scope, seconds: float) -> None:
    """Let the browser hold it for so long."""
    secure = _is_secure(scope)
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        str(session),
        max_age=int(seconds),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def forget(response: Response) -> None:
    for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
        response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")


def _is_secure(scope: Scope) -> bool:
    """Whether the browser speaks TLS: with us, or, as it or a proxy says, with whoever passes it on. A lie costs the
    liar a cookie that its browser does not send.
    """
    headers = Headers(scope=scope)
    said = (
        scope.get("scheme", ""),
        headers.get("x-forwarded-proto", ""),
        headers.get("origin", "").partition("://")[0],
    )
    return "https" in {text.lower() for text in said}
