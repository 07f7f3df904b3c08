"""The dependencies of routes, and the routers on which blocking functions are called in threads."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from inspect import isclass, iscoroutinefunction, signature
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from gateway.errors import (
    JobNotFoundError,
    ScheduleNotFoundError,
)
from gateway.web.authentication import READING, is_page
from gateway.web.authorisation import authorise
from gateway.web.container import GatewayParts
from gateway.web.errors import problems


class Route(APIRoute):
    """Calls a blocking function in a thread, in a place of the user who asks; such a function takes its `parts`.

    FastAPI itself would call it, and any dependency that blocks, in threads that everybody shares.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        reads = READING.issuperset(options.get("methods") or {"GET"})
        is_look = reads and not is_page(path) and path.endswith("}")
        super().__init__(
            path, endpoint if iscoroutinefunction(endpoint) else _in_thread(endpoint, is_look=is_look), **options
        )
        for needed in _dependencies(self.dependant):
            if not iscoroutinefunction(needed):
                raise TypeError(f"{path}: {needed} has to be a coroutine function")


def _in_thread(endpoint: Callable[..., Any], *, is_look: bool) -> Callable[..., Any]:
    if "parts" not in signature(endpoint).parameters:
        raise TypeError(f"{endpoint} blocks, so it has to take `parts`, or it has to be a coroutine function")

    @functools.wraps(endpoint)
    async def in_thread(**values: Any) -> Any:
        threads = values["parts"].threads
        return await (threads.look if is_look else threads.run)(endpoint, **values)

    return in_thread


def _dependencies(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    for needed in dependant.dependencies:
        if needed.call is not None:
            yield needed.call
        yield from _dependencies(needed)


def operation_id(route: APIRoute) -> str:
    """How generated clients call the operation: as the function is called."""
    return route.name


class Router(APIRouter):
    """A router whose routes are `Route`s that admit each request first. All our routers are of this class."""

    def __init__(self, **options: Any) -> None:
        # here and not in a router around all: FastAPI would make each route a second time for that
        super().__init__(
            route_class=Route,
            generate_unique_id_function=operation_id,
            dependencies=[Depends(_admit)],
            responses=problems(401, 403, 422, 429, 500),
            **options,
        )


async def _admit(request: Request) -> None:
    """The dependency of every route, before all others. It is a single one, because each costs a seventh of all that
    FastAPI does for a request.
    """
    await authorise(request)
    _refuse_unknown_parameters(request)


_JOB_ID = re.compile(r"[0-9a-f]{32}")


def ready_parts(request: Request) -> GatewayParts:
    """The gateway's parts. Raises `UnavailableError` if the request can change something and the database is not
    prepared yet.
    """
    parts = cast("GatewayParts", request.app.state.parts)
    if request.method not in READING:
        parts.readiness.require()
    return parts


async def _parts(request: Request) -> GatewayParts:
    return ready_parts(request)


def _refuse_unknown_parameters(request: Request) -> None:
    """For every route. Routes outside the API's description check their own parameters, except for HEAD,
    which follows GET.
    """
    route = request.scope["route"]
    if not request.query_params or not (route.include_in_schema or request.method == "HEAD"):
        return
    known = set(_query_parameters(route.dependant))
    unknown = dict.fromkeys(name for name in request.query_params if name not in known)
    if unknown:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name), "msg": "unknown"} for name in unknown]
        )


def _query_parameters(dependant: Dependant) -> Iterator[str]:
    """Names of the query parameters of a function and of all its dependencies."""
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isclass(model) and issubclass(model, BaseModel):
            yield from (one.alias or name for name, one in model.model_fields.items())
        else:
            yield field.alias
    for needed in dependant.dependencies:
        yield from _query_parameters(needed)


def _given_by_crawl(example: str) -> Any:
    return Path(description="As `POST /crawl` gave it.", examples=[example])


async def _job_id(job_id: Annotated[str, _given_by_crawl("5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a")]) -> str:
    if not _JOB_ID.fullmatch(job_id):
        raise JobNotFoundError(job_id)
    return job_id


async def _schedule_id(schedule_id: Annotated[str, _given_by_crawl("0d4f5c6b7a8e4f1d9c2b3a4e5f607182")]) -> str:
    if not _JOB_ID.fullmatch(schedule_id):
        raise ScheduleNotFoundError(schedule_id)
    return schedule_id


async def _request_id(request: Request) -> str:
    return cast("str", request.state.request_id)


Parts = Annotated[GatewayParts, Depends(_parts)]
#: An id of one of our jobs or schedules. Text without the shape of an id is treated as an id that does not exist.
JobId = Annotated[str, Depends(_job_id)]
ScheduleId = Annotated[str, Depends(_schedule_id)]
RequestId = Annotated[str, Depends(_request_id)]
