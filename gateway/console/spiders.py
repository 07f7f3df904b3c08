"""`/console/spiders/PROJECT/NAME`: the runs of one spider in comparison, and the schedules that start them."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated, Literal, NamedTuple

from fastapi import Query, Request, Response
from pydantic import Field

from gateway.access.keys import Scope
from gateway.console.comparison import two_days
from gateway.console.days import bar_height, histories_of, pictures
from gateway.console.errors import of_spider
from gateway.console.job_view import RunRow, Runs, runs
from gateway.console.pages import Pages, page
from gateway.jobs.job import GOOD_STATUSES, ListedJob
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.jobs.run_days import RunSubject, spider_subject
from gateway.projects.catalog import SpiderCatalog
from gateway.schedules.store import ScheduleFilter, ScheduleStore
from gateway.sites.store import SiteStore
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.fields import (
    FieldOverRunsView,
    SpiderFieldsQuery,
    SpiderFieldsView,
    SpiderRunView,
    get_spider_fields,
    read_fields_of_alike,
)
from gateway.web.routes.projects import AnyProjectName, SpidersQuery, list_spiders
from gateway.web.routes.run_days import SpiderName
from gateway.web.schemas.types import QueryModel, UserId

router = Pages()

#: At most this many runs, and schedules, are shown.
SHOWN, _SCHEDULES = 50, 50
#: The height of the charts, and the width of a bar with its gap.
_HEIGHT, _STEP = 96, 12
#: At most this many fields are shown, each with a chart of this height.
_FIELDS, _SMALL_HEIGHT = 60, 20


class Bar(NamedTuple):
    run: RunRow
    x: int
    #: The heights of its two bars: duration and items.
    duration: float
    items: float


JobIdText = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class SpiderPageQuery(QueryModel):
    #: The figures cover this many days.
    days: Literal["30", "90"] = "30"
    #: The field coverage is that of this schedule's runs.
    schedule_id: JobIdText | None = None
    #: The page says since which run this field has been as it is in this run.
    field: Annotated[str, Field(max_length=1000)] | None = None
    job_id: JobIdText | None = None
    user_id: UserId | None = None


@router.page("/console/spiders/{project}/{spider}")
@needs(Scope.READ)
def spider_page(
    request: Request,
    project: AnyProjectName,
    spider: SpiderName,
    *,
    query: Annotated[SpiderPageQuery, Query()],
    parts: Parts,
    caller: Called,
) -> Response:
    with mongo_errors():
        of_spider_alone = caller.limited(JobFilter(project=project, spider=spider))
        jobs = parts[JobQueries].page(of_spider_alone, SHOWN).jobs
        between = two_days(of_spider_alone, parts)
        started_by = caller.limited(ScheduleFilter(project=project, spider=spider))
        schedules, _ = parts[ScheduleStore].page(started_by, _SCHEDULES)
        sites = parts[SiteStore].all() if Scope.CRAWL in caller.scopes else []
    beside = runs(jobs, parts.clock()) if jobs else None
    subject = spider_subject(project, spider)
    history = histories_of(RunSubject.SPIDER, [subject], parts, caller, int(query.days))[subject]
    known = list_spiders(SpidersQuery(project=project, name=spider, limit=1), parts, caller).spiders
    return page(
        request,
        "spiders/one.html",
        project=project,
        spider=spider,
        info=next(iter(known), None),
        beside=beside,
        two_days=between,
        bars=_bars(beside) if beside else [],
        width=SHOWN * _STEP,
        height=_HEIGHT,
        days=query.days,
        coverage_of={"schedule_id": query.schedule_id, "field": query.field, "job_id": query.job_id},
        history=history,
        total=history.total,
        pictures=pictures(history),
        **of_spider(project, spider, request, parts, caller),
        schedules=schedules,
        sites=[one for one in sites if (one.project, one.spider) == (project, spider)],
    )


class CoverageRow(NamedTuple):
    field: FieldOverRunsView
    bars: list[CoverageBar]
    #: The run since which the field is emptier than before, and the run before that one.
    since: SpiderRunView | None
    before: SpiderRunView | None
    #: Whether it is the first run by its version.
    is_first: bool


class CoverageQuery(SpiderFieldsQuery):
    field: Annotated[str, Field(max_length=1000)] | None = None
    job_id: JobIdText | None = None


class SharedRun(NamedTuple):
    """A run, and how full a field is in it."""

    run: SpiderRunView
    share: float


class FieldStory(NamedTuple):
    """Since which run a field has been as it is in a run, and which run ended that."""

    name: str
    now: SharedRun
    since: SpiderRunView
    before: SharedRun | None
    after: SharedRun | None


class CoverageBar(NamedTuple):
    run: SpiderRunView
    x: int
    height: float
    share: float
    is_low: bool


@router.page("/console/spiders/{project}/{spider}/coverage")
@needs(Scope.READ)
def coverage(
    request: Request,
    project: AnyProjectName,
    spider: SpiderName,
    *,
    query: Annotated[CoverageQuery, Query()],
    parts: Parts,
    caller: Called,
) -> Response:
    """The part of the page with the fields. It is loaded separately, because the first count takes seconds."""
    asked = SpiderFieldsQuery(**query.model_dump(exclude={"field", "job_id"}))
    found = get_spider_fields(project, spider, asked, parts, caller)
    return page(
        request,
        "spiders/coverage.html",
        found=found,
        asked=query,
        story=_story(found, query),
        rows=_rows(found),
        version=_version(project, found, parts),
        width=len(found.runs) * _STEP,
        height=_SMALL_HEIGHT,
    )


class ProjectVersion(NamedTuple):
    """Which version of a project runs now, and which one its newest run had."""

    project: str
    latest: str | None
    #: The version to which a rollback leads.
    previous: str | None
    last: str | None


#: Shares that differ by no more than this are taken for the same.
_SAME = 0.05


def _story(found: SpiderFieldsView, asked: CoverageQuery) -> FieldStory | None:
    """`None` also if the run is not among the compared ones."""
    shares = next((one.shares for one in found.fields if one.name == asked.field), [])
    known = [SharedRun(run, share) for run, share in zip(found.runs, shares, strict=False) if share is not None]
    place = next((place for place, one in enumerate(known) if one.run.job_id == asked.job_id), None)
    if asked.field is None or place is None:
        return None
    now, first = known[place], place
    while first and known[first - 1].share <= now.share + _SAME:
        first -= 1
    after = next((one for one in known[place + 1 :] if one.share > now.share + _SAME), None)
    return FieldStory(asked.field, now, known[first].run, known[first - 1] if first else None, after)


def _version(project: str, found: SpiderFieldsView, parts: GatewayParts) -> ProjectVersion:
    last = found.runs[-1].version if found.runs else None
    known = next((one for one in parts[SpiderCatalog].projects() if one.name == project), None)
    return ProjectVersion(project, known and known.latest, known and known.previous, last)


def _rows(found: SpiderFieldsView) -> list[CoverageRow]:
    return [_coverage(field, found.runs) for field in found.fields[:_FIELDS]]


def _coverage(field: FieldOverRunsView, known: list[SpiderRunView]) -> CoverageRow:
    since = next((place for place, run in enumerate(known) if run.job_id == field.lower_since), None)
    bars = [
        CoverageBar(run, place * _STEP, max(share * _SMALL_HEIGHT, 1), share, run.job_id in field.lower_in)
        for place, (run, share) in enumerate(zip(known, field.shares, strict=True))
        if share is not None
    ]
    if since is None:
        return CoverageRow(field, bars, None, None, is_first=False)
    # there is no run before the first one
    before = known[since - 1] if since else None
    # a version that was activated again has runs before
    is_first = bool(before) and all(run.version != known[since].version for run in known[:since])
    return CoverageRow(field, bars, known[since], before, is_first)


# --- the spiders whose items are emptier than they were, on the overview

#: At most this many spiders are checked: those of the newest runs that ended well. `_NEWEST` such runs are read, and
#: each call takes at most `_SECONDS`.
_LOOKED_AT, _NEWEST, _SECONDS = 10, 100, 1.0


class UnusualSpider(NamedTuple):
    spider: str
    version: ProjectVersion
    #: The schedule whose runs these are.
    schedule_id: str | None
    rows: list[CoverageRow]

    @property
    def says(self) -> tuple[object, ...]:
        """What the overview says of it: the same for each schedule of a spider whose new version has lost a field."""
        return tuple((row.field.name, row.since.version or row.since.job_id) for row in self.rows if row.since)


class UnusualQuery(QueryModel):
    #: The index of the first spider to check.
    first: Annotated[int, Field(ge=0, lt=_LOOKED_AT)] = 0
    user_id: UserId | None = None


@router.page("/console/unusual")
@needs(Scope.READ, by_project=True)
def unusual(request: Request, query: Annotated[UnusualQuery, Query()], parts: Parts, caller: Called) -> Response:
    """A part of the overview: some spiders, and the element that loads the next part."""
    wanted = caller.limited(JobFilter(status=tuple(sorted(GOOD_STATUSES))))
    with mongo_errors():
        jobs = parts[JobQueries].page(wanted, _NEWEST).jobs
    # the runs of a spider that crawls many sites are compared schedule by schedule
    newest: dict[tuple[str, str, str | None], ListedJob] = {}
    for job in jobs:
        newest.setdefault((job.spec.project, job.spec.spider, job.schedule_id), job)
    spiders: dict[tuple[str, str], list[ListedJob]] = {}
    for (project, spider, _), job in islice(newest.items(), _LOOKED_AT):
        spiders.setdefault((project, spider), []).append(job)
    found, following = list[UnusualSpider](), query.first
    until = time.monotonic() + _SECONDS
    for compared in list(spiders.values())[query.first :]:
        counted = [(job, read_fields_of_alike(job, parts, caller)) for job in compared]
        if not all(fields.complete for _, fields in counted):
            break
        found += {one.says: one for one in (_unusual(job, fields, parts) for job, fields in counted)}.values()
        following += 1
        if time.monotonic() > until:
            break
    return page(
        request, "spiders/unusual.html", found=found, following=following if following < len(spiders) else None
    )


def _unusual(newest: ListedJob, fields: SpiderFieldsView, parts: GatewayParts) -> UnusualSpider:
    version = _version(newest.spec.project, fields, parts)
    return UnusualSpider(newest.spec.spider, version, newest.schedule_id, _rows(fields))


def _bars(beside: Runs) -> list[Bar]:
    """The bars of the runs, with the oldest on the left. The newest is always at the right edge."""
    first = SHOWN - len(beside.rows)
    return [
        Bar(
            run,
            (first + place) * _STEP,
            duration=bar_height(run.seconds or 0.0, beside.most.seconds, _HEIGHT),
            items=bar_height(run.items, beside.most.items, _HEIGHT),
        )
        for place, run in enumerate(reversed(beside.rows))
    ]
