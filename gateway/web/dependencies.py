"""What routes ask FastAPI for."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from inspect import isclass, iscoroutinefunction
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from gateway.errors import (
    JobNotFoundError,
    ScheduleNotFoundError,
)
from gateway.web.authentication import READING
from gateway.web.parts import GatewayParts


class StoreRoute(APIRoute):
    """Checks again that MongoDB is there, just before it calls a blocking function: the call may have waited for its
    thread. Such a function takes its `parts`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint if iscoroutinefunction(endpoint) else _checked(endpoint), **options)


def _checked(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(endpoint)
    def checked(**values: Any) -> Any:
        values["parts"].readiness.refuse_if_away()
        return endpoint(**values)

    return checked


_JOB_ID = re.compile(r"[0-9a-f]{32}")


def ready_parts(request: Request) -> GatewayParts:
    """Nothing is changed before the database is prepared. Raises `UnavailableError`."""
    parts = cast("GatewayParts", request.app.state.parts)
    if request.method not in READING:
        parts.readiness.require()
    return parts


async def _parts(request: Request) -> GatewayParts:
    # not `ready_parts` itself, which FastAPI would call in a thread
    return ready_parts(request)


async def refuse_unknown_parameters(request: Request) -> None:
    """Dependency of every route. A route that is not described says itself what it refuses; HEAD is as GET is."""
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
    """Names that a function takes, and those that what it depends on takes."""
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
#: Text that is not shaped like one of our ids is answered like an id that does not exist.
JobId = Annotated[str, Depends(_job_id)]
ScheduleId = Annotated[str, Depends(_schedule_id)]
RequestId = Annotated[str, Depends(_request_id)]
