"""`/session`: a browser shows a key once, and holds a cookie from then on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request, Response

from gateway.domain.api_key import Caller, read_token
from gateway.domain.console_session import ConsoleSession, open_session
from gateway.domain.errors import ConflictError, UnauthenticatedError, WrongKeyError
from gateway.web.access import Called
from gateway.web.dependencies import Parts
from gateway.web.failed_logins import MALFORMED
from gateway.web.key_ring import KeyRing
from gateway.web.parts import GatewayParts
from gateway.web.schemas.problem import problems
from gateway.web.schemas.session import SessionView, SignIn
from gateway.web.session_guard import forget, keep, refuse_others

#: Seconds before a wrong key is answered. That nobody guesses one is seen to by its 192 random bits.
_SLOW = 0.5

router = APIRouter(tags=["platform"])


def _session(request: Request) -> ConsoleSession | None:
    return cast("ConsoleSession | None", getattr(request.state, "session", None))


Session = Annotated[ConsoleSession | None, Depends(_session)]


@router.post("/session", summary="Sign a browser in", responses=problems(401, 409, 503))
async def sign_in(
    request: Request, response: Response, parts: Parts, caller: Called, body: SignIn | None = None
) -> SessionView:
    """With a key in the body, or in `Authorization`: the cookie that it is answered with stands for the key, for
    `GATEWAY_SESSION_SECONDS` or until the key ends. 409 while there are no keys, when nobody needs one.
    """
    refuse_others(request.scope)
    shown = caller if caller.key else await _shown(request, parts, body)
    if shown.key is None:
        raise ConflictError("there are no keys, so nobody needs a session")
    now = parts.clock()
    lifetime = timedelta(seconds=parts.settings.gateway_session_seconds)
    session = open_session(shown.key, now, lifetime, parts[KeyRing].seal)
    keep(response, session, request.scope, (session.expires_at - now).total_seconds())
    return SessionView.of(shown, session, parts[KeyRing].seal)


@router.get("/session", summary="Who is signed in", responses=problems(401, 503))
async def show_session(parts: Parts, caller: Called, session: Session) -> SessionView:
    """Whose key it is, what it may, and the CSRF token of the session, if it is one."""
    return SessionView.of(caller, session, parts[KeyRing].seal)


@router.delete("/session", status_code=204, summary="Sign a browser out", responses=problems(401, 503))
async def sign_out(parts: Parts, session: Session) -> Response:
    """The session is worthless from now on, also to whoever has a copy of it. The key stays as it is."""
    if session:
        await parts[KeyRing].end_session(session)
    response = Response(status_code=204)
    forget(response)
    return response


async def _shown(request: Request, parts: GatewayParts, body: SignIn | None) -> Caller:
    """Raises `UnauthenticatedError`, `UnavailableError`."""
    if not await parts[KeyRing].in_use():
        raise ConflictError("there are no keys, so nobody needs a session")
    if body is None:
        raise UnauthenticatedError('send a key: {"key": "db_…"}')
    key = body.key.get_secret_value().strip()
    setattr(request.state, MALFORMED, read_token(key) is None)
    try:
        return await parts[KeyRing].caller(key)
    except WrongKeyError:
        await asyncio.sleep(_SLOW)
        raise
