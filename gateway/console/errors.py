"""`/console/errors`: the error groups of all runs, the page of one group, and the errors of a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Path, Request, Response
from fastapi.responses import RedirectResponse

from gateway.access.keys import Caller, Scope
from gateway.clock import utc_now
from gateway.console.days import (
    HEIGHT,
    SMALL_HEIGHT,
    SMALL_STEP,
    STEP,
    BarPart,
    DayBar,
    DayPicture,
    bar_height,
    shown_day,
)
from gateway.console.formats import count
from gateway.console.job import tab
from gateway.console.jobs import LAST, SPANS, read_query
from gateway.console.pages import Pages, Viewer, page
from gateway.error_groups.error_group import DAYS_KEPT, GONE_DAYS, ErrorGroupState
from gateway.error_groups.store import ErrorFilter, ErrorGroupStore
from gateway.errors import ErrorGroupNotFoundError
from gateway.jobs.job import JobStatus, ListedJob
from gateway.jobs.run_days import day_of
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.error_groups import (
    RUNS_LOOKED_AT,
    get_error_group,
    list_error_groups,
    list_job_error_groups,
    read_error_groups,
    runs_of,
)
from gateway.web.schemas.error_group import ErrorGroupDayView, ErrorGroupExampleView, ErrorGroupPage, ErrorsQuery

router = Pages()

#: Of an error's id, of which the commands print the beginning.
_ID_LENGTH = 32
#: The page of a spider shows at most this many groups.
_OF_SPIDER = 10
#: The width of a run's bar with its gap.
_RUN_STEP = 12
_VIEWS: tuple[tuple[str, dict[str, str]], ...] = (
    ("All", {}),
    ("Open", {"state": "open"}),
    ("Seen since last night", {"seen": "night"}),
    ("New (24 h)", {"new": "24h", "sort": "first_seen"}),
    ("Most frequent", {"state": "open", "sort": "count"}),
    ("Resolved", {"state": "resolved"}),
    ("Ignored", {"state": "ignored"}),
)


#: The last night begins at this time of yesterday, by UTC. The server does not know the zone of the browser.
_NIGHT = timedelta(hours=18)


class ErrorsPageQuery(ErrorsQuery):
    """The query of `GET /errors`, with time spans that end now: only what was last seen, or first seen, in them."""

    seen: Literal["1h", "24h", "night", "7d", "30d"] | None = None
    new: Literal["1h", "24h", "7d", "30d"] | None = None

    def resolved(self) -> ErrorsQuery:
        query = ErrorsQuery(**self.model_dump(exclude={"new", "seen"}))
        if self.seen is not None and query.since is None:
            query.since = _last_night() if self.seen == "night" else utc_now() - LAST[self.seen]
        if self.new is not None and query.new_since is None:
            query.new_since = utc_now() - LAST[self.new]
        return query


#: The list of a night has all of its errors on one page, or that many.
_OF_NIGHT = 200


def _found(asked: ErrorsPageQuery, parts: GatewayParts, caller: Caller) -> tuple[ErrorGroupPage, dict[str, bool]]:
    """The errors; and with `seen`, by error, whether it may have come earlier in that time than is known.

    Errors of the last night begin with the one that came first, if nobody asks for another order: it may have caused
    the others.
    """
    query = asked.resolved()
    if asked.seen == "night" and "sort" not in asked.model_fields_set:
        query.sort, query.limit = "oldest", _OF_NIGHT
    found, groups = read_error_groups(query, parts, caller)
    if asked.seen is None or (since := query.since) is None:
        return found, {}
    return found, {one.id: not one.knows_all_since(since) for one in groups if one.first_since(since)}


def _last_night() -> datetime:
    return day_of(utc_now()) - timedelta(days=1) + _NIGHT


@router.page("/console/errors")
@needs(Scope.READ, by_project=True)
def errors_page(request: Request, parts: Parts, caller: Called) -> Response:
    asked, problems = read_query(ErrorsPageQuery, request)
    found, first = _found(asked, parts, caller) if not problems else (ErrorGroupPage(errors=[], next=None), {})
    given = asked.model_dump(mode="json", exclude_defaults=True, exclude={"after", "user_id"})
    return page(
        request,
        "errors/list.html",
        asked=asked,
        found=found,
        first=first,
        problems=problems,
        given=given,
        views=_VIEWS,
        states=[one.value for one in ErrorGroupState],
        spans=SPANS,
        seen_spans={"night": "Since last night (18:00 UTC)", **SPANS},
        sparks=_sparks(found, parts),
        log_lines=_log_lines(found, Viewer.of(request)),
    )


@router.page("/console/errors/{error_id}")
@needs(Scope.READ)
def error_page(
    error_id: Annotated[str, Path(pattern="^[0-9a-f]{1,32}$")], request: Request, parts: Parts, caller: Called
) -> Response:
    if len(error_id) < _ID_LENGTH:
        with mongo_errors():
            found = parts[ErrorGroupStore].beginning_with(error_id, caller.limited(ErrorFilter()))
        if len(found) != 1:
            raise ErrorGroupNotFoundError(error_id)
        return RedirectResponse(Viewer.of(request).link(f"/console/errors/{found[0]}"))
    error = get_error_group(error_id, parts, caller)
    with mongo_errors():
        jobs = runs_of(parts[ErrorGroupStore].get(error_id), parts)
    return page(
        request,
        "errors/one.html",
        error=error,
        picture=_picture(error.days, parts, DAYS_KEPT, STEP, HEIGHT),
        days=DAYS_KEPT,
        width=RUNS_LOOKED_AT * _RUN_STEP,
        lately=_lately(jobs, {run.job_id: run.count for run in error.recent_runs}),
        places=places_of(error.example, Viewer.of(request)),
        may_change=Scope.CRAWL in caller.scopes,
    )


@router.page("/console/jobs/{job_id}/errors")
@needs(Scope.READ)
def errors_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    told, viewer = list_job_error_groups(job_id, parts), Viewer.of(request)
    return tab(
        request,
        job_id,
        parts,
        "errors",
        errors=told.errors,
        left_out=told.left_out,
        examples_at=[places_of(one.example, viewer) for one in told.errors],
    )


def of_spider(project: str, spider: str, request: Request, parts: GatewayParts, caller: Caller) -> dict[str, Any]:
    """The context of a spider's page about its errors."""
    query = ErrorsQuery(project=project, spider=spider, state=ErrorGroupState.OPEN, limit=_OF_SPIDER)
    found = list_error_groups(query, parts, caller)
    lines = _log_lines(found, Viewer.of(request))
    return {"errors": found, "sparks": _sparks(found, parts), "log_lines": lines}


class ErrorPlaces(NamedTuple):
    """Links to the places where an example is shown; empty for an unknown place."""

    log: str
    requests: str
    url: str


def places_of(example: ErrorGroupExampleView, viewer: Viewer) -> ErrorPlaces:
    job, log, requests = f"/console/jobs/{example.job_id}", "", ""
    if example.position is not None:
        attempt, _, start = example.position.partition("-")
        # the address of a line may be any position inside the line
        log = viewer.link(f"{job}/log") + f"#{attempt}-{int(start) + 1}"
    if example.url:
        requests = viewer.link(f"{job}/requests", q=example.url[:200]) + "#tab"
    is_link = example.url.startswith(("http://", "https://"))
    return ErrorPlaces(log, requests, example.url if is_link else "")


def _log_lines(found: ErrorGroupPage, viewer: Viewer) -> dict[str, str]:
    """By group: the address of the latest occurrence in its job's log; empty if the place is not known."""
    return {one.error_id: places_of(one.example, viewer).log for one in found.errors}


def _sparks(found: ErrorGroupPage, parts: GatewayParts) -> dict[str, DayPicture]:
    return {one.error_id: _picture(one.days, parts, GONE_DAYS, SMALL_STEP, SMALL_HEIGHT) for one in found.errors}


def _picture(
    days: Sequence[ErrorGroupDayView], parts: GatewayParts, number: int, step: int, height: int
) -> DayPicture:
    """A chart of how often the error occurred on each of `number` days, up to today."""
    today = day_of(parts.clock()).date()
    most = max((one.count for one in days), default=0)
    bars = []
    for one in days:
        place = number - 1 - (today - one.day) // timedelta(days=1)
        if 0 <= place < number:
            tall = bar_height(one.count, most, height)
            runs = f"{count(one.runs)} run{'s' if one.runs != 1 else ''}"
            title = f"{shown_day(one.day)}: {count(one.count)} in {runs}"
            part = BarPart(JobStatus.ERROR.value, round(height - tall, 1), tall)
            bars.append(DayBar(place * step, title, [part]))
    return DayPicture("Occurrences", count(most) if most else "", number * step, height, step - 1, bars)


class LateRun(NamedTuple):
    job: ListedJob
    x: int
    #: How often the run had the error; `None` if it did not, or is not over.
    times: int | None


def _lately(jobs: Sequence[ListedJob], counts: dict[str, int]) -> list[LateRun]:
    """The last runs of the spider, the oldest first. The newest is always at the right edge."""
    first = RUNS_LOOKED_AT - len(jobs)
    return [LateRun(job, (first + place) * _RUN_STEP, counts.get(job.id)) for place, job in enumerate(reversed(jobs))]
