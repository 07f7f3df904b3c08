"""Which routes a caller may call, and which jobs and schedules it may see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Depends, Request

from gateway.access.key_store import OwnerStore
from gateway.access.keys import ANYBODY, Caller, Scope
from gateway.errors import (
    DeadLetterNotFoundError,
    JobNotFoundError,
    NotFoundError,
    RunNotFoundError,
    ScheduleNotFoundError,
    ScopeMissingError,
)
from gateway.jobs.job import job_id_of
from gateway.stores.mongo import mongo_errors
from gateway.web.authentication import is_page
from gateway.web.parts import GatewayParts

# --- which scope each route takes. A route that is not listed is for admins, and a test fails until it is listed.

#: Routes for every caller, with and without a key.
OPEN = frozenset(
    {"GET /health", "GET /health/live", "GET /docs", "GET /redoc", "POST /session", "GET /console/sign-in"}
)
_SCOPES: dict[Scope, tuple[str, ...]] = {
    Scope.READ: (
        "GET /jobs",
        "GET /jobs/count",
        "GET /jobs/points",
        "GET /jobs/{job_id}",
        "GET /jobs/{job_id}/status",
        "GET /jobs/{job_id}/logs",
        "GET /jobs/{job_id}/logs/index",
        "GET /jobs/{job_id}/logs/lines",
        "GET /jobs/{job_id}/logs/search",
        "POST /jobs/{job_id}/stream-token",
        "GET /jobs/{job_id}/items",
        "GET /jobs/{job_id}/fields",
        "GET /jobs/{job_id}/progress",
        "GET /jobs/{job_id}/timeline",
        "GET /jobs/{job_id}/runs",
        "GET /jobs/{job_id}/requests",
        "GET /jobs/{job_id}/files",
        "GET /jobs/{job_id}/files/{name}",
        "GET /events",
        "GET /dead-letters",
        "GET /schedules",
        "GET /schedules/calendar",
        "GET /schedules/{schedule_id}",
        "GET /schedules/{schedule_id}/next",
        "GET /schedules/{schedule_id}/items",
        "GET /schedules/{schedule_id}/history",
        "GET /jobs/scrape/{run_id}",
        "GET /jobs/sites",
        "GET /spiders",
        "GET /projects",
        "GET /projects/{project}/versions",
        "GET /session",
        "DELETE /session",
    ),
    Scope.CRAWL: (
        "POST /crawl",
        "POST /crawl/preview",
        "POST /jobs/bulk",
        "POST /jobs/{job_id}/cancel",
        "POST /jobs/{job_id}/pause",
        "POST /jobs/{job_id}/resume",
        "POST /jobs/{job_id}/retry",
        "DELETE /jobs/{job_id}",
        "POST /dead-letters/{letter_id}/requeue",
        "DELETE /dead-letters/{letter_id}",
        "POST /schedules",
        "PATCH /schedules/{schedule_id}",
        "DELETE /schedules/{schedule_id}",
        "POST /schedules/{schedule_id}/pause",
        "POST /schedules/{schedule_id}/resume",
        "POST /schedules/{schedule_id}/run",
        "POST /jobs/scrape",
        "GET /sites",
        "GET /sites/{name}",
        "GET /targets",
        "GET /targets/{target_id}",
    ),
    Scope.ADMIN: (
        "POST /sites",
        "PATCH /sites/{name}",
        "DELETE /sites/{name}",
        "POST /targets",
        "PATCH /targets/{target_id}",
        "DELETE /targets/{target_id}",
        "POST /projects/{project}/versions",
        "POST /projects/{project}/versions/{version}/activate",
        "POST /projects/{project}/rollback",
        "DELETE /projects/{project}/versions/{version}",
        "GET /projects/{project}/versions/{version}/dependencies",
        "GET /projects/{project}/env",
        "PUT /projects/{project}/env",
        "PUT /projects/{project}/env/{variable}",
        "DELETE /projects/{project}/env/{variable}",
        "GET /projects/{project}/settings",
        "PUT /projects/{project}/settings",
        "POST /scheduler/run",
        "GET /scheduler/status",
        "GET /jobs/queue/status",
        "GET /jobs/health",
        "GET /nodes",
        "POST /nodes/invitations",
        "GET /nodes/{node}",
        "DELETE /nodes/{node}",
        "POST /nodes/{node}/drain",
        "POST /nodes/{node}/resume",
        "GET /nodes/{node}/scrapyd/{path}",
        "POST /nodes/{node}/scrapyd/cancel.json",
        "GET /audit",
        "GET /keys",
        "POST /keys",
        "DELETE /keys/{key_id}",
    ),
    Scope.METRICS: ("GET /metrics",),
    Scope.JOIN: ("POST /nodes/join",),
}
RULES: dict[str, Scope] = {route: scope for scope, routes in _SCOPES.items() for route in routes}


def rule_like(page: str, route: str) -> None:
    """A page of the console takes the scope of the API's route that tells the same."""
    RULES[page] = RULES[route]


# --- whether a caller may call a route: its key has the scope, and what the address names is its user's own

#: Path parameters that name what belongs to a user, each with the error which says that it does not exist.
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
    """Dependency of every route, before all others: a caller who may not call the route learns nothing else.

    Raises `ScopeMissingError`. What belongs to another user gets the same error as what does not exist.
    """
    route = f"{request.method} {request.scope['route'].path_format}"
    if route in OPEN:
        return
    if is_page(request.scope["path"]):
        request.state.caller = caller_of(request).looking_as(request.query_params.get("user_id"))
    caller = caller_of(request)
    if caller is ANYBODY:
        return
    scope = RULES.get(route, Scope.ADMIN)
    if scope not in caller.scopes:
        raise ScopeMissingError(scope)
    if caller.user_id is not None and (named := list(_named(request))):
        await _require_own(request.app.state.parts, caller, named)


def _named(request: Request) -> list[tuple[str, NotFoundError]]:
    """Ids of jobs and schedules in the address, each with the error for an id that is not the caller's."""
    found = [
        (job_id_of(value) if name == "run_id" else value, _OWNED[name](value))
        for name, value in request.path_params.items()
        if name in _OWNED
    ]
    return found + [(value, JobNotFoundError(value)) for value in request.query_params.getlist("job_id")]


async def _require_own(parts: GatewayParts, caller: Caller, named: list[tuple[str, NotFoundError]]) -> None:
    with mongo_errors():
        owners = await parts.threads.look(parts[OwnerStore].of, {identity for identity, _ in named})
    for identity, error in named:
        # an id that does not exist has no owner: the route raises the same error for it
        if not all(map(caller.may_see, owners.get(identity, ()))):
            raise error
