"""Badges for runs in which a field has lost values, in lists and on the page of a job, and a job's slowest request.

They are parts that pages load by themselves, because the first count of a run's fields takes seconds.
"""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import Field

from gateway.access.keys import Scope
from gateway.console.pages import Pages, page
from gateway.jobs.job import GOOD_STATUSES
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.fields import (
    FieldsQuery,
    SpiderFieldsView,
    newest_of_each,
    read_fields,
    read_fields_of_alike,
)
from gateway.web.routes.requests import RequestsQuery, read_requests
from gateway.web.schemas.types import QueryModel, UserId

router = Pages()

#: The badges of at most this many rows are looked for, in about this many seconds.
_ROWS, _SECONDS = 50, 1.0


@router.page("/console/jobs/{job_id}/notable")
@needs(Scope.READ)
def notable(request: Request, job_id: JobId, parts: Parts, caller: Called) -> Response:
    """A part of the head of a job that is over: the fields with fewer values than before, and the slowest request."""
    fields = read_fields(parts, job_id, FieldsQuery(compare="runs"), caller)
    slowest, _ = read_requests(parts, job_id, RequestsQuery(sort="-ms", limit=1))
    return page(
        request,
        "job/notable.html",
        job_id=job_id,
        lost=[one for one in fields.fields if one.lower and fields.items],
        slowest=next(iter(slowest.requests), None),
    )


class LostFieldsQuery(QueryModel):
    #: The jobs of a list.
    job_id: list[Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = Field(default_factory=list, max_length=_ROWS)
    user_id: UserId | None = None


@router.page("/console/lost-fields")
@needs(Scope.READ, by_project=True)
def lost_fields(
    request: Request, query: Annotated[LostFieldsQuery, Query()], parts: Parts, caller: Called
) -> Response:
    """The badges of a list of jobs, each for its row."""
    found: dict[str, list[str]] = {}
    if query.job_id:
        wanted = JobFilter(job_id=tuple(query.job_id), status=tuple(sorted(GOOD_STATUSES)))
        with mongo_errors():
            jobs = parts[JobQueries].page(caller.limited(wanted), _ROWS).jobs
        until = time.monotonic() + _SECONDS
        schedules = {job.id: job.schedule_id for job in jobs}
        for newest in newest_of_each(jobs, parts):
            if time.monotonic() > until:
                break
            lost = _lost(read_fields_of_alike(newest, parts, caller))
            # a run of a schedule is only compared with others of it, also if single crawls asked for the same
            own = (job_id for job_id in lost if schedules.get(job_id, "") == newest.schedule_id)
            found |= {job_id: lost[job_id] for job_id in own}
    return page(request, "jobs/lost_fields.html", found=found)


def _lost(fields: SpiderFieldsView) -> dict[str, list[str]]:
    """By job: the fields that had fewer values than usual."""
    found: dict[str, list[str]] = {}
    for one in fields.fields:
        for job_id in one.lower_in:
            found.setdefault(job_id, []).append(one.name)
    return found
