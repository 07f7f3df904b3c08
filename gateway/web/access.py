"""Whether a caller may call a route: its key has the scope, and what the address names is its user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Depends, Request

from gateway.domain.api_key import ANYBODY, Caller, Scope
from gateway.domain.errors import (
    DeadLetterNotFoundError,
    JobNotFoundError,
    NotFoundError,
    RunNotFoundError,
    ScheduleNotFoundError,
    ScopeMissingError,
)
from gateway.domain.run import job_id_of
from gateway.storage.client import truth_store_errors
from gateway.storage.owners import OwnerStore
from gateway.web.access_rules import OPEN, RULES
from gateway.web.parts import GatewayParts

#: Parts of an address that name what belongs to a user; and how it is said that there is no such thing.
_OWNED: dict[str, Callable[[str], NotFoundError]] = {
    "job_id": JobNotFoundError,
    "schedule_id": ScheduleNotFoundError,
    "letter_id": DeadLetterNotFoundError,
    "run_id": RunNotFoundError,
}


def caller_of(request: Request) -> Caller:
    return cast("Caller", getattr(request.state, "caller", ANYBODY))


async def _called(request: Request) -> Caller:
    # not `caller_of` itself, which FastAPI would call in a thread
    return caller_of(request)


Called = Annotated[Caller, Depends(_called)]


async def authorise(request: Request) -> None:
    """Dependency of every route, before all others: whoever may not call it learns nothing else.

    Raises `ScopeMissingError`; and for what is another user's the same error as for what is not there.
    """
    caller = caller_of(request)
    route = f"{request.method} {request.scope['route'].path_format}"
    if caller is ANYBODY or route in OPEN:
        return
    scope = RULES.get(route, Scope.ADMIN)
    if scope not in caller.scopes:
        raise ScopeMissingError(scope)
    if caller.user_id is not None and (named := list(_named(request))):
        await _require_own(request.app.state.parts, caller, named)


def _named(request: Request) -> list[tuple[str, NotFoundError]]:
    """Ids of jobs and schedules in the address, each with what is said where it is not the caller's."""
    found = [
        (job_id_of(value) if name == "run_id" else value, _OWNED[name](value))
        for name, value in request.path_params.items()
        if name in _OWNED
    ]
    return found + [(value, JobNotFoundError(value)) for value in request.query_params.getlist("job_id")]


async def _require_own(parts: GatewayParts, caller: Caller, named: list[tuple[str, NotFoundError]]) -> None:
    with truth_store_errors():
        owners = await parts.reads.run(parts[OwnerStore].of, {identity for identity, _ in named})
    for identity, error in named:
        # one that is not there is left to the route, which says the same
        if not all(map(caller.may_see, owners.get(identity, ()))):
            raise error
