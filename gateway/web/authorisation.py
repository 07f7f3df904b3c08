"""Which routes a caller may call, and which jobs and schedules it may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple, TypeVar, cast

from fastapi import Depends, Request

from gateway.access.key_store import OwnerStore
from gateway.access.keys import ANYBODY, Caller, Scope
from gateway.errors import (
    AlertNotFoundError,
    AlertRuleNotFoundError,
    DeadLetterNotFoundError,
    EndpointNotFoundError,
    ErrorGroupNotFoundError,
    JobNotFoundError,
    NotFoundError,
    NotYourUserError,
    ProjectNotFoundError,
    ProjectsOnlyError,
    RunNotFoundError,
    ScheduleNotFoundError,
    ScopeMissingError,
)
from gateway.jobs.job import job_id_of
from gateway.projects.catalog import project_name
from gateway.stores.mongo import mongo_errors
from gateway.web.authentication import READING, is_page
from gateway.web.container import GatewayParts

# --- which scope a route needs: a decorator of the route's function names it. A function without one is for admins.

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_MARK, _BY_PROJECT = "_scope", "_by_project"


def needs(scope: Scope, *, by_project: bool | None = None) -> Callable[[Endpoint], Endpoint]:
    """Decorator of a route's function: its callers' keys have this scope. `by_project`: whether keys that read some
    projects may call it, because it shows nothing of others; by default if its address names what is of a project.
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _MARK, scope)
        setattr(endpoint, _BY_PROJECT, by_project)
        return endpoint

    return mark


def for_everybody(endpoint: Endpoint) -> Endpoint:
    """Decorator of a route's function: anybody may call it, with and without a key."""
    setattr(endpoint, _MARK, None)
    return endpoint


def scope_of(endpoint: Callable[..., Any]) -> Scope | None:
    """The scope that a caller needs; `None` if the route is for everybody."""
    scope: Scope | None = getattr(endpoint, _MARK, Scope.ADMIN)
    return scope


#: Path parameters whose project is checked before the route is called.
_OF_PROJECTS = frozenset({"project", "job_id", "schedule_id", "run_id", "letter_id", "error_id"})


def is_by_project(endpoint: Callable[..., Any], names: Iterable[str]) -> bool:
    """Whether a caller who may see some projects may call it; `names` are those of its path parameters."""
    marked: bool | None = getattr(endpoint, _BY_PROJECT, None)
    return not _OF_PROJECTS.isdisjoint(names) if marked is None else marked


# --- whether a caller may call a route: its key has the scope, and the named jobs and schedules are its user's own

#: Path parameters that name what belongs to a user, each with the error which says that it does not exist.
_OWNED: dict[str, Callable[[str], NotFoundError]] = {
    "job_id": JobNotFoundError,
    "schedule_id": ScheduleNotFoundError,
    "letter_id": DeadLetterNotFoundError,
    "endpoint_id": EndpointNotFoundError,
    "rule_id": AlertRuleNotFoundError,
    "alert_id": AlertNotFoundError,
    "error_id": ErrorGroupNotFoundError,
    "run_id": RunNotFoundError,
}
#: Where it is; all others are jobs, or schedules, whose ids may stand where a job's is expected.
_KEPT_IN = {"endpoint_id": "endpoints", "rule_id": "alert_rules", "alert_id": "alerts", "error_id": "error_groups"}
_JOBS = ("jobs", "schedules")
#: Parameters of queries that name a job.
_IN_QUERY = ("job_id", "other_job_id")


def caller_of(request: Request) -> Caller:
    return cast("Caller", getattr(request.state, "caller", ANYBODY))


async def _called(request: Request) -> Caller:
    # not `caller_of` itself, which FastAPI would call in a thread
    return caller_of(request)


Called = Annotated[Caller, Depends(_called)]


async def authorise(request: Request) -> None:
    """For every route, before all else: a caller who may not call the route learns nothing else.

    Raises `ScopeMissingError`, `ProjectsOnlyError`. An object of another user, or of a project that the
    caller may not see, gets the same error as an object that does not exist; or `NotYourUserError` if the caller may
    see it.
    """
    scope = scope_of(request.scope["endpoint"])
    if scope is None:
        return
    if scope is Scope.READ:
        request.state.caller = caller_of(request).reading()
    if is_page(request.scope["path"]):
        request.state.caller = caller_of(request).looking_as(request.query_params.get("user_id"))
    caller = caller_of(request)
    if caller is ANYBODY:
        return
    if scope not in caller.scopes:
        raise ScopeMissingError(scope)
    if caller.is_agent and scope is Scope.READ and request.method not in READING:
        # a route that stores something for readers, such as their views: agents store nothing
        raise ScopeMissingError(Scope.CRAWL)
    if caller.projects:
        _require_project(request, caller)
    if (caller.user_id is not None or caller.projects) and (named := list(_named(request))):
        await _require_own(request.app.state.parts, caller, named)


def _require_project(request: Request, caller: Caller) -> None:
    if not is_by_project(request.scope["endpoint"], request.path_params):
        raise ProjectsOnlyError(caller.projects)
    named: str | None = request.path_params.get("project")
    if named is not None and not caller.may_see_projects([project_name(named)]):
        raise ProjectNotFoundError(named)


class _Named(NamedTuple):
    """An id in the address, with the error if it does not belong to the caller."""

    id: str
    error: NotFoundError
    #: The collections that may have the id.
    kept_in: tuple[str, ...] = _JOBS


def _named(request: Request) -> list[_Named]:
    found = [
        _Named(
            job_id_of(value) if name == "run_id" else value,
            _OWNED[name](value),
            (_KEPT_IN[name],) if name in _KEPT_IN else _JOBS,
        )
        for name, value in request.path_params.items()
        if name in _OWNED
    ]
    asked = (value for name in _IN_QUERY for value in request.query_params.getlist(name))
    return found + [_Named(value, JobNotFoundError(value)) for value in asked]


async def _require_own(parts: GatewayParts, caller: Caller, named: list[_Named]) -> None:
    with mongo_errors():
        ids = {one.id for one in named}
        collections = dict.fromkeys(name for one in named for name in one.kept_in)
        owners = await parts.threads.look(parts[OwnerStore].of, ids, collections)
    for identity, error, _ in named:
        # an id that does not exist has no owner: the route raises the same error for it
        found = owners.get(identity, ())
        if not all(caller.may_see_projects(owner.projects) for owner in found):
            raise error
        if others := [owner.user_id for owner in found if not caller.may_see(owner.user_id)]:
            raise NotYourUserError(others[0]) if Scope.READ_ALL in caller.scopes else error
