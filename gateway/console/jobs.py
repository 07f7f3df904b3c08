"""`/console/jobs`: the jobs that match a filter; `/console/dead-letters`: failed jobs without further retries."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import orjson
from fastapi import Request, Response
from pydantic import Field, ValidationError

from gateway.access.keys import Caller, Scope
from gateway.access.saved_views import ListName
from gateway.clock import to_iso, utc_now
from gateway.console.flags import flags_of
from gateway.console.pages import Pages, Viewer, page
from gateway.console.saved_views import own_views
from gateway.jobs.advice import WAITS_FOR
from gateway.jobs.job import LIVE_STATUSES, JobStatus, WaitingReason
from gateway.jobs.queries import JobOrder
from gateway.projects.catalog import SpiderCatalog
from gateway.schedules.schedule import ScheduleState
from gateway.sites.store import SiteStore
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.jobs import DeadLettersQuery, list_dead_letters, list_jobs
from gateway.web.routes.schedules import schedules_page
from gateway.web.schemas.schedule import SchedulesQuery
from gateway.web.schemas.types import JobsFilter, JobsQuery, QueryModel, UserId

router = Pages()

#: Time spans that end now. A saved view with such a span stays up to date.
LAST = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
#: The same in words, for a field that offers them.
SPANS = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
#: Why a job waits, in a few words.
WAITING = {reason: WAITS_FOR[reason] for reason in WaitingReason}
#: Fields of a filter, each with its words, in the order in which they are shown.
_SAID = {
    "q": "text",
    "user": "user",
    "spider": "spider",
    "project": "project",
    "site": "site",
    "host": "host",
    "tag": "tag",
    "schedule_id": "schedule",
    "waiting_reason": "waiting reason",
    "since": "created after",
    "until": "created before",
    "started_since": "started after",
    "started_until": "started before",
    "finished_since": "ended after",
    "finished_until": "ended before",
}
#: Views that the page offers. Their names have the same meaning as on the overview: a partial run is not a failed
#: one. Who asks what went wrong last night wants to see both.
_VIEWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("All", {"sort": "newest"}),
    ("Running", {"status": ["running"]}),
    ("Waiting", {"status": ["pending"]}),
    ("Active", {"status": sorted(LIVE_STATUSES)}),
    ("Failed", {"status": ["error"]}),
    ("Failed or partial (24 h)", {"status": ["partial", "error"], "ended": "24h"}),
)


#: The columns that a user can choose, in the order in which they are shown, each with its words; and the default
#: columns. The status and the name of the job are always shown.
ListedColumn = Literal[
    "created", "started", "ended", "duration", "pages", "items", "errors", "version", "site", "node", "attempts",
    "priority", "reason", "user",
]  # fmt: skip
_COLUMNS: dict[str, str] = {name: name.capitalize() for name in get_args(ListedColumn)}
_USUAL = ("created", "duration", "pages", "items", "errors", "user")
#: Columns by which a list can be sorted, because there is an index, each with its orders; the first is the default.
_SORTS: dict[str, tuple[str, ...]] = {
    "created": (JobOrder.NEWEST, JobOrder.OLDEST),
    "started": (JobOrder.STARTED,),
    "ended": (JobOrder.ENDED,),
}
_ORDERS = {"newest": "Newest first", "oldest": "Oldest first", "started": "Last started", "ended": "Last ended"}


class JobsPageQuery(JobsQuery):
    """The query of `GET /jobs`, with time spans that end now (`last`, `ended`) and the columns of the list. The owner
    of the jobs is `user`, because `user_id` in a page's address lets an admin view the page as a user.
    """

    user: UserId | None = Field(default=None)
    last: Literal["1h", "24h", "7d", "30d"] | None = Field(default=None)
    ended: Literal["1h", "24h", "7d", "30d"] | None = Field(default=None)
    columns: list[ListedColumn] = Field(default_factory=list, max_length=len(_COLUMNS))

    def resolved(self) -> JobsQuery:
        query = JobsQuery(**self.model_dump(exclude={"last", "ended", "user", "columns"}))
        query.user_id = self.user or query.user_id
        if self.last is not None and query.since is None:
            query.since = utc_now() - LAST[self.last]
        if self.ended is not None and query.finished_since is None:
            query.finished_since = utc_now() - LAST[self.ended]
        return query


@router.page("/console/jobs")
@needs(Scope.READ, by_project=True)
async def jobs(request: Request, parts: Parts, caller: Called) -> Response:
    kept = await parts.threads.run(own_views, ListName.JOBS, request, parts, caller)
    if isinstance(kept, Response):
        return kept
    asked, problems = read_query(JobsPageQuery, request)
    query = asked.resolved()
    found = await list_jobs(query, parts, caller) if not problems else None
    given = asked.model_dump(mode="json", exclude_defaults=True)
    return page(
        request,
        "jobs/list.html",
        asked=asked,
        found=found,
        problems=problems,
        given={name: value for name, value in given.items() if name != "after"},
        # `user_id` is the user as whom an admin views the page, and not a condition
        condition={name: value for name, value in given.items() if name not in {"after", "user_id", "columns"}},
        **_columns(asked, Viewer.of(request)),
        filter=_filter(query),
        views=_VIEWS,
        kept=kept,
        chips=list(_chips(asked)),
        schedule_name=await _schedule_name(asked, parts, caller),
        crawling=await parts.threads.run(_crawling, asked, parts, caller),
        flags=await parts.threads.run(flags_of, [job.job_id for job in found.jobs], parts, caller) if found else {},
        known=await parts.threads.run(_known, parts, caller),
        statuses=list(JobStatus),
        reasons=list(WaitingReason),
        waiting=WAITING,
        spans=SPANS,
        now=utc_now(),
        without=_without,
    )


def _columns(asked: JobsPageQuery, viewer: Viewer) -> dict[str, Any]:
    """The context of the template about columns: which ones there are, and how the list can be sorted."""
    there = [one for one in _COLUMNS if one != "user" or (viewer.may("read_all") and not viewer.looks_as)]
    usual = [one for one in there if one in _USUAL]
    return {
        "all_columns": {one: _COLUMNS[one] for one in there},
        "usual": usual,
        "columns": [one for one in there if one in asked.columns] or usual,
        # the part of the query that stays the same in links that change the filter
        "look": {"columns": asked.columns} if asked.columns else {},
        "sorts": _SORTS,
        "orders": _ORDERS,
    }


#: A field of the filter suggests at most this many names.
_SUGGESTED = 1000


def _known(parts: GatewayParts, caller: Caller) -> dict[str, list[str]]:
    """Suggestions for the fields of a spider and a site, independent of the jobs in the list."""
    spiders = {info.name for info in parts[SpiderCatalog].select() if caller.may_see_projects([info.project])}
    sites = [site.name for site in parts[SiteStore].all() if caller.may_see_projects([site.project])]
    return {"spiders": sorted(spiders)[:_SUGGESTED], "sites": sites[:_SUGGESTED]}


async def _schedule_name(asked: JobsPageQuery, parts: GatewayParts, caller: Caller) -> str | None:
    """The name of the schedule whose runs the list shows, if the caller may see the schedule."""
    if asked.schedule_id is None:
        return None
    query = SchedulesQuery(q=asked.schedule_id, user_id=asked.user_id)
    found = (await parts.threads.run(schedules_page, query, parts, caller)).schedules
    # the search also finds schedules that have this id as text elsewhere
    names = (one.name or one.spider or one.site for one in found if one.schedule_id == asked.schedule_id)
    return next(names, None)


class Crawling(NamedTuple):
    """The schedules that crawl a host."""

    #: The ids of those that can be paused.
    schedules: list[str]
    #: The sites that have the others.
    sites: list[str]
    is_more: bool
    #: Of paused ones, the ids of those that can be resumed.
    paused: list[str]


def _crawling(asked: JobsPageQuery, parts: GatewayParts, caller: Caller) -> Crawling | None:
    if asked.host is None:
        return None
    user_id = asked.user or asked.user_id
    query = SchedulesQuery(host=asked.host, state=ScheduleState.ACTIVE, user_id=user_id, limit=200)
    found = schedules_page(query, parts, caller)
    resting = schedules_page(query.model_copy(update={"state": ScheduleState.PAUSED}), parts, caller).schedules
    paused = [one.schedule_id for one in resting if one.site is None]
    own = [one.schedule_id for one in found.schedules if one.site is None]
    sites = sorted({one.site for one in found.schedules if one.site is not None})
    return Crawling(own, sites, found.next is not None, paused) if found.schedules or paused else None


@router.page("/console/dead-letters")
@needs(Scope.READ, by_project=True)
async def dead_letters(request: Request, parts: Parts, caller: Called) -> Response:
    kept = await parts.threads.run(own_views, ListName.DEAD_LETTERS, request, parts, caller)
    if isinstance(kept, Response):
        return kept
    asked, problems = read_query(DeadLettersQuery, request)
    found = await list_dead_letters(asked, parts, caller) if not problems else None
    given = asked.model_dump(mode="json", exclude_defaults=True)
    wanted = {name: value for name, value in given.items() if name not in {"after", "limit"}}
    return page(
        request,
        "jobs/dead_letters.html",
        kept=kept,
        asked=asked,
        found=found,
        problems=problems,
        given={name: value for name, value in given.items() if name != "after"},
        filter=orjson.dumps({**wanted, "dead": True}).decode(),
    )


Query = TypeVar("Query", bound=QueryModel)


def read_query(kind: type[Query], request: Request) -> tuple[Query, list[str]]:
    """The query without empty fields, which a form sends too, and the problems of a query that is invalid."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if value.strip():
            given[name] = [*given.get(name, []), value] if name in {"status", "job_id", "columns"} else value
    try:
        return kind.model_validate(given), []
    except ValidationError as error:
        return kind(), [
            f"{'.'.join(map(str, one['loc']))}: {one['msg'].removeprefix('Value error, ')}" for one in error.errors()
        ]


def _without(given: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in given.items() if other != name}


def _filter(query: JobsQuery) -> str:
    """The filter as JSON, which scripts send to `GET /jobs/count`, `GET /jobs/points` and `POST /jobs/bulk`."""
    wanted = query.model_dump(include=set(JobsFilter.model_fields), exclude_defaults=True)
    times = {name: to_iso(value) for name, value in wanted.items() if name.endswith(("since", "until"))}
    return orjson.dumps({**wanted, **times}).decode()


def _chips(asked: JobsPageQuery) -> Iterator[tuple[str, str, Any]]:
    """Each condition besides the status: its name in the query, its words, and its value."""
    values = asked.model_dump(exclude_none=True)
    yield from ((name, words, values[name]) for name, words in _SAID.items() if name in values)
    if asked.job_id:
        yield "job_id", "jobs by id:", str(len(asked.job_id))
    if asked.last:
        yield "last", "created:", SPANS[asked.last].lower()
    if asked.ended:
        yield "ended", "ended:", SPANS[asked.ended].lower()
    if asked.dead:
        yield "dead", "dead letters", ""
    if asked.sort != "newest":
        yield "sort", _ORDERS[asked.sort].lower(), ""
