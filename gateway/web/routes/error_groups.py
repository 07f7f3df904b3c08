"""`/errors`: the errors of all runs, grouped by what they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Path, Query, Request

from gateway.access.keys import Caller, Scope
from gateway.error_groups.error_group import GONE_DAYS, ErrorExample, ErrorGroup, ErrorGroupState, group_id
from gateway.error_groups.store import ErrorGroupStore, ErrorOrder, RunGroup
from gateway.errors import ErrorGroupNotFoundError, InvalidRequestError
from gateway.jobs.job import GOOD_STATUSES, Job, ListedJob
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.jobs.run_days import day_of
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import problems
from gateway.web.middleware import note_changes
from gateway.web.schemas.error_group import (
    ErrorGroupDetail,
    ErrorGroupExampleView,
    ErrorGroupMarkedRun,
    ErrorGroupPage,
    ErrorGroupRunView,
    ErrorGroupUpdate,
    ErrorGroupView,
    ErrorsQuery,
    JobErrorsView,
    JobErrorView,
    what_of,
)

router = Router(tags=["errors"])

ErrorGroupId = Annotated[
    str,
    Path(
        description="As `GET /errors` has it.",
        pattern="^[0-9a-f]{32}$",
        examples=["2b0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"],
    ),
]
#: Runs of the spider among which the first one without an error is looked for.
RUNS_LOOKED_AT = 50


@router.get("/errors", summary="List errors across runs", responses=problems(503))
@needs(Scope.READ, by_project=True)
def list_error_groups(query: Annotated[ErrorsQuery, Query()], parts: Parts, caller: Called) -> ErrorGroupPage:
    """Errors of all runs, grouped by what they are: exception, function and message without its values; or status and
    host. The last seen first, unless `sort` says otherwise. A run is added at its end. Pass `next` as `after` for the
    page that follows: with `q`, a page can have fewer than `limit` although others follow.
    """
    return read_error_groups(query, parts, caller)[0]


def read_error_groups(
    query: ErrorsQuery, parts: GatewayParts, caller: Caller
) -> tuple[ErrorGroupPage, list[ErrorGroup]]:
    """The page, and its groups as they are stored."""
    store = parts[ErrorGroupStore]
    with mongo_errors():
        wanted = caller.limited(query.to_filter(), query.user_id)
        if query.sort == "oldest" and query.since:
            found, following = store.oldest(wanted, query.since, query.limit), None
        else:
            order = ErrorOrder.FIRST_SEEN if query.sort == "oldest" else ErrorOrder(query.sort)
            found, following = store.page(wanted, query.limit, query.after, order)
        gone = store.gone(found)
    days = day_of(parts.clock()) - timedelta(days=GONE_DAYS - 1)
    shown = [ErrorGroupView.of(one, gone[one.id], days, query.since) for one in found]
    return ErrorGroupPage(errors=shown, next=following), found


@router.get("/errors/{error_id}", summary="An error across runs", responses=problems(404, 503))
@needs(Scope.READ)
def get_error_group(error_id: ErrorGroupId, parts: Parts, caller: Called) -> ErrorGroupDetail:
    """With its last runs, the first one without it, and where an example is in the log."""
    with mongo_errors():
        group = parts[ErrorGroupStore].get(error_id)
        if not caller.may_see(group.user_id):
            raise ErrorGroupNotFoundError(error_id)
        jobs = runs_of(group, parts)
        gone = parts[ErrorGroupStore].gone([group])[group.id]
    shown = ErrorGroupView.of(group, gone)
    recent = [
        ErrorGroupMarkedRun(**vars(ErrorGroupRunView.of(one)), mark=group.mark_for(one.job_id))
        for one in group.recent
    ]
    return ErrorGroupDetail(**dict(shown), recent_runs=recent[::-1], gone_since=_first_without(group, jobs))


@router.patch("/errors/{error_id}", summary="Resolve or reopen an error", responses=problems(404, 409, 413, 503))
@needs(Scope.CRAWL)
def update_error_group(
    error_id: ErrorGroupId, body: ErrorGroupUpdate, request: Request, parts: Parts, caller: Called
) -> ErrorGroupDetail:
    """A resolved group opens again, marked as `back`, once the error occurs in a run that began after it was
    resolved.
    """
    if body.version is not None and body.state is not ErrorGroupState.RESOLVED:
        raise InvalidRequestError("version", "is for `resolved` alone")
    before = get_error_group(error_id, parts, caller)
    with mongo_errors():
        parts[ErrorGroupStore].change(error_id, body.state, caller.name, body.version)
    after = get_error_group(error_id, parts, caller)
    note_changes(request, before, after)
    return after


@router.get("/jobs/{job_id}/errors", summary="A job's errors by what they are", responses=problems(404, 503))
@needs(Scope.READ)
def list_job_error_groups(job_id: JobId, parts: Parts) -> JobErrorsView:
    """The groups of all attempts that have ended, and whether each is new, known from earlier runs of the spider, or
    back after it was resolved. What only `print` or another process has written is in the log alone. For a schedule,
    the errors of its present or latest run.
    """
    job = parts[JobOrSchedule].job(job_id)
    if job is None:
        return JobErrorsView(errors=[], left_out=0)
    with mongo_errors():
        found, left_out = parts[ErrorGroupStore].of_run(job)
    return JobErrorsView(errors=[_of_job(job, one) for one in found], left_out=left_out)


def runs_of(group: ErrorGroup, parts: GatewayParts) -> list[ListedJob]:
    """The last runs of the group's spider, the newest first."""
    wanted = JobFilter(user_id=group.user_id, project=group.project, spider=group.spider)
    return parts[JobQueries].page(wanted, RUNS_LOOKED_AT).jobs


def _first_without(group: ErrorGroup, jobs: list[ListedJob]) -> ErrorGroupRunView | None:
    good = [job for job in jobs if job.status in GOOD_STATUSES and job.finished_at]
    later = [job for job in good if job.finished_at and job.finished_at > group.last.at]
    if not later or (len(jobs) == RUNS_LOOKED_AT and all(job.id != group.last.job_id for job in jobs)):
        return None
    first = min(later, key=lambda job: (job.finished_at, job.id))
    return ErrorGroupRunView(job_id=first.id, version=first.spec.version, at=first.finished_at, count=0)


def _of_job(job: Job, told: RunGroup) -> JobErrorView:
    one, group = told.found, told.group
    facts = one.model_dump(include={"url", "at", "log_start", "attempt"})
    example = ErrorExample(job_id=job.id, text=one.example or one.message, **facts)
    identity = group_id(job.user_id, job.spec.project, job.spec.spider, one.fingerprint)
    return JobErrorView(
        **what_of(identity, told),
        mark=told.mark,
        state=group.state if group else None,
        count=one.count,
        first_seen=ErrorGroupRunView.of(group.first) if group else None,
        runs=group.runs if group else 0,
        example=ErrorGroupExampleView.of(example),
    )
