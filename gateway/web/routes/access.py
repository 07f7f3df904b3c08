"""`/session` and `GET /audit`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, cast

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, Field, JsonValue, SecretStr

from gateway.access.audit import AuditFilter, AuditKind, AuditStore
from gateway.access.keys import Caller, ConsoleSession, Scope, open_session, read_token
from gateway.errors import ConflictError, ScopeMissingError, UnauthenticatedError, WrongKeyError
from gateway.jobs.budgets import Budgets
from gateway.web.authentication import KeyRing, forget, keep, refuse_others, session_of
from gateway.web.authorisation import Called, for_everybody, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.guard import MALFORMED, WRONG_KEY
from gateway.web.routes.keys import BUDGET_EXAMPLE, KeyBudgetView, left_of
from gateway.web.schemas.types import Body, Cursor, Name, Open, QueryModel, QueryTime, SearchText, Timestamp, UserId

_KEY = f"db_4f1d9c2b3a4e_{'0d4f5c6b' * 6}"
_VIEW: dict[str, JsonValue] = {
    "user_id": "abc123",
    "scopes": ["read", "crawl"],
    "projects": [],
    "key_id": "4f1d9c2b3a4e",
    "expires_at": "2027-06-01T21:00:00.000Z",
    "csrf_token": "0d4f5c6b7a8e4f1d" * 4,
    "budget": BUDGET_EXAMPLE,
}


class SignInRequest(Body, json_schema_extra={"examples": [{"key": _KEY}]}):
    """The key to sign in with."""

    key: SecretStr = Field(
        max_length=200, description="`db_<id>_<secret>`; leave it out if `Authorization` has the key."
    )


class SessionView(BaseModel, json_schema_extra={"examples": [_VIEW]}):
    """Whose key or session it is, and what it may do."""

    user_id: str | None = Field(description="The user that the caller acts for; `null` while there are no keys.")
    scopes: list[Open[Scope]] = Field(description="What the caller may do, with the scopes that its own include.")
    projects: list[str] = Field(description="The projects that the caller may read; empty if all.")
    key_id: str | None
    expires_at: Timestamp | None = Field(description="When the session ends; without a session, when the key does.")
    csrf_token: str | None = Field(description="The value for `X-CSRF-Token`; `null` without a session.")
    budget: KeyBudgetView | None = Field(description="How much the key's crawls may use today; `null` for no limit.")

    @classmethod
    async def of(cls, caller: Caller, session: ConsoleSession | None, parts: GatewayParts) -> SessionView:
        key, seal = caller.key, parts[KeyRing].seal
        # most keys have none, so most callers take no thread
        left = await parts.threads.run(left_of, key, parts[Budgets]) if caller.budget_key else None
        return cls(
            user_id=key.user_id if key else None,
            scopes=[scope for scope in Scope if scope in caller.scopes],
            projects=list(caller.projects),
            key_id=key.id if key else None,
            expires_at=session.expires_at if session else key.expires_at if key else None,
            csrf_token=session.csrf_token(key, seal) if session and key else None,
            budget=KeyBudgetView.of(left) if left else None,
        )


#: Seconds before the answer to a wrong key. Its 192 random bits, not this pause, keep a key from being guessed.
_SLOW = 0.5

session_router = Router(tags=["access"])


async def _session(request: Request) -> ConsoleSession | None:
    return cast("ConsoleSession | None", getattr(request.state, "session", None))


Session = Annotated[ConsoleSession | None, Depends(_session)]


@session_router.post("/session", summary="Sign a browser in", responses=problems(401, 409, 503))
@for_everybody
async def sign_in(
    request: Request, response: Response, parts: Parts, caller: Called, body: SignInRequest | None = None
) -> SessionView:
    """Takes a key in the body, or in `Authorization`. The cookie in the answer stands for the key, for
    `GATEWAY_SESSION_SECONDS` or until the key ends. A session that the browser had before ends. 409 while there are
    no keys, because no session is needed then. The console is for people: an agent's key opens no session.
    """
    refuse_others(request.scope)
    shown = caller if caller.key else await _shown(request, parts, body)
    if shown.key is None:
        raise ConflictError("there are no keys, so nobody needs a session")
    if shown.is_agent:
        raise ScopeMissingError(Scope.CRAWL)
    now = parts.clock()
    lifetime = timedelta(seconds=parts.settings.gateway_session_seconds)
    session = open_session(shown.key, now, lifetime, parts[KeyRing].seal)
    await _end(session_of(request.scope), parts[KeyRing])
    keep(response, session, request.scope, (session.expires_at - now).total_seconds())
    return await SessionView.of(shown, session, parts)


@session_router.get("/session", summary="Who is signed in", responses=problems(401, 503))
@needs(Scope.READ, by_project=True)
async def get_session(parts: Parts, caller: Called, session: Session) -> SessionView:
    """Whose key it is, what the caller may do, and the session's CSRF token if the caller has a session."""
    return await SessionView.of(caller, session, parts)


@session_router.delete("/session", status_code=204, summary="Sign a browser out", responses=problems(401, 503))
@needs(Scope.READ, by_project=True)
async def sign_out(parts: Parts, session: Session) -> Response:
    """From now on the session is worthless, and so is every copy of its cookie. The key stays as it is."""
    if session:
        await parts[KeyRing].end_session(session)
    response = Response(status_code=204)
    forget(response)
    return response


async def _end(session: ConsoleSession | None, ring: KeyRing) -> None:
    """End the session that a new one replaces: its cookie is gone afterwards. Raises `UnavailableError`."""
    if session is None:
        return
    with suppress(WrongKeyError):  # the session has ended, or the gateway has not made the cookie
        await ring.session_caller(session)
        await ring.end_session(session)


async def _shown(request: Request, parts: GatewayParts, body: SignInRequest | None) -> Caller:
    """The caller with the key in the body. Raises `ConflictError`, `UnauthenticatedError`, `UnavailableError`."""
    if not await parts[KeyRing].in_use():
        raise ConflictError("there are no keys, so nobody needs a session")
    if body is None:
        raise UnauthenticatedError('send a key: {"key": "db_…"}')
    key = body.key.get_secret_value().strip()
    setattr(request.state, MALFORMED, read_token(key) is None)
    try:
        return await parts[KeyRing].caller(key)
    except WrongKeyError:
        setattr(request.state, WRONG_KEY, True)
        await asyncio.sleep(_SLOW)
        raise


_EXAMPLE: dict[str, JsonValue] = {
    "id": "3c1f0b7e5a6d4e2f8b9a0c1d2e3f4a5b",
    "at": "2027-06-01T09:00:01.250Z",
    "kind": "call",
    "user_id": "abc123",
    "key_id": "4f1d9c2b3a4e",
    "scope": "crawl",
    "method": "POST",
    "route": "/jobs/{job_id}/cancel",
    "resources": {"job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"},
    "changes": {},
    "status": 200,
    "request_id": "0b9f6f1c2f0e4c3d9a4f5e6d7c8b9a01",
    "address": "192.0.2.7",
    "count": None,
    "last_at": None,
}


class AuditQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="Only calls with this user's keys.")
    key_id: Name | None = Field(default=None, description="Only calls with this key.")
    route: SearchText | None = Field(
        default=None,
        description="Only this route, as it is written here: `/jobs/{job_id}/cancel`; or only this command.",
    )
    kind: AuditKind | None = Field(default=None, description="Only entries of this kind.")
    since: QueryTime | None = Field(
        default=None, description="Only calls at or after this time; RFC 3339 with an offset."
    )
    until: QueryTime | None = Field(default=None, description="Only calls before this time.")
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")

    def to_filter(self) -> AuditFilter:
        return AuditFilter(**self.model_dump(exclude={"limit", "after"}))


class AuditView(BaseModel, json_schema_extra={"examples": [_EXAMPLE]}):
    """One call that may have changed something."""

    id: str
    at: Timestamp = Field(description="When it was called; for failed logins, the first of them.")
    kind: Open[AuditKind] = Field(description="`login_failed`: the wrong keys that one address sent within an hour.")
    user_id: str | None = Field(description="The user of the key; null while there are no keys.")
    key_id: str | None
    scope: Open[Scope] | None = Field(description="The highest scope of the key.")
    method: str | None
    route: str | None = Field(description="The route that was called, or the command that was run on the server.")
    resources: dict[str, str] = Field(
        description="The records that the path names, those that were created, and the codes of a refusal."
    )
    changes: dict[str, list[str]] = Field(
        description="The fields of the record that the call has changed: before and after it, as JSON, of which the "
        "first 200 characters are kept."
    )
    status: int | None = Field(description="The status of the answer.")
    request_id: str | None = Field(
        description="The same id is in the log, and is the `correlation_id` of jobs that the call created."
    )
    address: str | None = Field(description="The client's address; for a command, its user and machine.")
    count: int | None = Field(description="How many logins failed.")
    last_at: Timestamp | None = Field(description="When the last of them failed.")


class AuditPage(BaseModel):
    """A page of the audit log."""

    entries: list[AuditView]
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")


audit_router = Router(tags=["access"])


@audit_router.get("/audit", summary="Who did what", responses=problems(503))
@needs(Scope.ADMIN)
async def list_audit_entries(query: Annotated[AuditQuery, Query()], parts: Parts) -> AuditPage:
    """Calls that may have changed something, refused ones too, newest first. A call appears within a second. Pass
    `next` as `after` for the page that follows.
    """
    found, following = await parts.threads.run(parts[AuditStore].page, query.to_filter(), query.limit, query.after)
    return AuditPage(entries=[AuditView(**entry.model_dump()) for entry in found], next=following)
