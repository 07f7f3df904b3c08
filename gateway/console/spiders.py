"""`/console/spiders/PROJECT/NAME`: how the runs of one spider went, beside each other, and what starts them."""

from __future__ import annotations

import statistics
from typing import Annotated, NamedTuple

from fastapi import Path, Request, Response

from gateway.access.keys import Scope
from gateway.console.job_view import RunRow, Runs, runs
from gateway.console.pages import Pages, page
from gateway.jobs.job import GOOD_STATUSES
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.schedules.store import ScheduleFilter, ScheduleStore
from gateway.sites.store import SiteStore
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.dependencies import Parts
from gateway.web.routes.projects import AnyProjectName, SpidersQuery, list_spiders
from gateway.web.schemas.types import Name

router = Pages()

#: Runs that are shown, and schedules.
SHOWN, _SCHEDULES = 50, 50
#: The height of the pictures, and the width of a bar with its gap.
_HEIGHT, _STEP = 96, 12

SpiderName = Annotated[Name, Path(description="As `GET /spiders` has it.", examples=["prices"])]


class Bar(NamedTuple):
    run: RunRow
    x: int
    #: Heights of the bars of its duration and of its items.
    duration: float
    items: float


class Trend(NamedTuple):
    """What the runs that have ended have in common."""

    ended: int
    #: From 0 to 1.
    success: float
    seconds: float | None
    items: float | None
    #: Errors among pages and errors.
    errors: float

    @classmethod
    def of(cls, found: list[RunRow]) -> Trend | None:
        ended = [run for run in found if run.job.is_final]
        if not ended:
            return None
        good = [run for run in ended if run.job.status in GOOD_STATUSES]
        seconds = [run.seconds for run in ended if run.seconds is not None]
        pages, errors = sum(run.pages for run in ended), sum(run.errors for run in ended)
        return cls(
            ended=len(ended),
            success=len(good) / len(ended),
            seconds=statistics.median(seconds) if seconds else None,
            items=statistics.median(run.items for run in good) if good else None,
            errors=errors / (pages + errors) if pages + errors else 0.0,
        )


@router.page("/console/spiders/{project}/{spider}")
@needs(Scope.READ)
def spider_page(
    request: Request, project: AnyProjectName, spider: SpiderName, parts: Parts, caller: Called
) -> Response:
    user_id = caller.user_id
    with mongo_errors():
        jobs = parts[JobQueries].page(JobFilter(user_id=user_id, project=project, spider=spider), SHOWN).jobs
        schedules, _ = parts[ScheduleStore].page(ScheduleFilter(user_id=user_id, spider=spider), _SCHEDULES)
        sites = parts[SiteStore].all() if Scope.CRAWL in caller.scopes else []
    beside = runs(jobs, parts.clock()) if jobs else None
    known = list_spiders(SpidersQuery(project=project, name=spider, limit=1), parts).spiders
    return page(
        request,
        "spiders/one.html",
        project=project,
        spider=spider,
        info=next(iter(known), None),
        beside=beside,
        bars=_bars(beside) if beside else [],
        width=SHOWN * _STEP,
        height=_HEIGHT,
        trend=Trend.of(beside.rows) if beside else None,
        schedules=[one for one in schedules if one.crawl is not None and one.crawl.spec.project == project],
        sites=[one for one in sites if (one.project, one.spider) == (project, spider)],
    )


def _bars(beside: Runs) -> list[Bar]:
    """The oldest on the left; the newest always at the right edge."""
    first = SHOWN - len(beside.rows)
    return [
        Bar(
            run,
            (first + place) * _STEP,
            duration=_share(run.seconds or 0.0, beside.most.seconds),
            items=_share(run.items, beside.most.items),
        )
        for place, run in enumerate(reversed(beside.rows))
    ]


def _share(value: float, most: float | None) -> float:
    """The height of a bar: also the smallest can be seen, and pointed at."""
    return max(2.0, round(_HEIGHT * value / (most or 1), 1))
