"""`/`: the present state of the platform, the jobs of the last hour, and what to do about problems."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from fastapi import Request, Response

from gateway.access.keys import Caller, Scope
from gateway.clock import to_iso
from gateway.console.flags import flags_of
from gateway.console.pages import Pages, page
from gateway.datasets.store import DatasetStore, RunStore
from gateway.errors import UnavailableError
from gateway.jobs.job import FINAL_STATUSES, JobStatus, success_rate
from gateway.jobs.queries import EndedJob, JobFilter, JobQueries
from gateway.status.facts import WINDOW, FactReader, PlatformFacts
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.datasets import views
from gateway.web.routes.health import get_health
from gateway.web.routes.jobs import list_jobs
from gateway.web.routes.nodes import NodeView
from gateway.web.schemas.dataset import DatasetView
from gateway.web.schemas.job import JobPage, JobSummary
from gateway.web.schemas.types import JobsQuery

router = Pages()

#: Jobs in each list.
_SHORT = 8
#: The pages per second of at most this many running jobs are added up. A platform of usual size runs fewer at once.
_MOST = 200
#: The overview lists the datasets of at most this many held runs.
_MOST_HELD = 1000
#: The statuses of ended jobs, in the order of their parts in a bar, from its bottom to its top.
_ENDS = (JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED)
#: The number of bars for the last hour.
_BARS = 12
#: A table of sites or spiders has at most this many rows: those with the most runs.
_ROWS = 10


@router.page("/")
@needs(Scope.READ, by_project=True)
async def overview(request: Request, parts: Parts, caller: Called) -> Response:
    """Users see their jobs and the health of the platform; admins also see the figures of the whole platform."""
    # all queries are sent at once, so that on a slow link to MongoDB the page takes only as long as its slowest part
    report, (lists, figures), held = await asyncio.gather(
        get_health(Response(), parts), _lists_and_figures(parts, caller), _held(parts, caller)
    )
    ended = [job.job_id for job in lists["ended"].jobs] if lists else []
    flags = await parts.threads.run(flags_of, ended, parts, caller)
    return page(
        request, "overview.html", health=report, lists=lists, figures=figures, held=held, flags=flags, short=_SHORT
    )


async def _held(parts: GatewayParts, caller: Caller) -> list[DatasetView]:
    """The datasets with runs on which somebody has to decide."""
    if caller.projects:
        # such a caller cannot decide
        return []
    try:
        return await parts.threads.run(_with_held, parts, caller)
    except UnavailableError:
        return []


def _with_held(parts: GatewayParts, caller: Caller) -> list[DatasetView]:
    with mongo_errors():
        found = parts[DatasetStore].many(parts[RunStore].datasets_with_held(_MOST_HELD), caller.only(None))
        return views(found, parts, caller)


async def _lists_and_figures(parts: GatewayParts, caller: Caller) -> tuple[dict[str, JobPage], Figures | None]:
    try:
        if Scope.ADMIN not in caller.scopes:
            return await _lists(parts, caller), None
        lists, facts = await asyncio.gather(_lists(parts, caller), _facts(parts))
    except UnavailableError:
        # the health on the page reports that the database does not answer, and what to do
        return {}, None
    return lists, _figures(parts, facts, lists["running"])


async def _lists(parts: GatewayParts, caller: Caller) -> dict[str, JobPage]:
    running, waiting, ended = await asyncio.gather(
        list_jobs(JobsQuery(status=[JobStatus.RUNNING], limit=_MOST), parts, caller),
        list_jobs(JobsQuery(status=[JobStatus.PENDING], sort="oldest", limit=_SHORT), parts, caller),
        _last_ended(parts, caller),
    )
    return {"running": running, "waiting": waiting, "ended": JobPage(jobs=ended, next=None, searched_to=None)}


async def _last_ended(parts: GatewayParts, caller: Caller) -> list[JobSummary]:
    """The jobs that ended last, the latest first. For one user, or some projects, jobs that ended more than an hour
    ago are chosen by their creation, because no index has these by their end.
    """
    queries, wanted = parts[JobQueries], caller.limited(JobFilter())
    if wanted == JobFilter():
        return [JobSummary.of(job) for job in await parts.threads.run(queries.last_ended, _SHORT, wanted)]
    since = parts.clock() - WINDOW
    fresh = await parts.threads.run(queries.last_ended, _SHORT, wanted, since)
    found = {job.id: JobSummary.of(job) for job in fresh}
    if len(found) < _SHORT:
        older = await list_jobs(JobsQuery(status=sorted(FINAL_STATUSES), limit=_SHORT), parts, caller)
        found |= {job.job_id: job for job in older.jobs}
    return sorted(found.values(), key=lambda job: job.finished_at or since, reverse=True)[:_SHORT]


# --- the figures of the whole platform


class OutcomeShare(NamedTuple):
    """How the runs of a site, or of a spider, have ended."""

    name: str
    runs: int
    finished: int
    partial: int
    failed: int
    cancelled: int
    #: By `SUCCESS_RULE`.
    success: float | None


class Part(NamedTuple):
    """A part of a bar, in units of the picture."""

    status: JobStatus
    number: int
    x: float
    y: float
    height: float


class Bars(NamedTuple):
    """The jobs that ended in the last hour, as stacked bars in a picture of 480 × 96 units."""

    parts: list[Part]
    #: How many jobs ended with each status.
    totals: dict[JobStatus, int]
    #: The number of jobs in the tallest bar.
    most: int


class Figures(NamedTuple):
    facts: PlatformFacts
    nodes: list[NodeView]
    #: The pages per second of all running jobs; `None` if more jobs run than are added up.
    pages_per_s: float | None
    #: The start of the hour that the fields below cover, in ISO 8601 for a query.
    since: str
    bars: Bars
    pages: int
    items: int
    sites: list[OutcomeShare]
    spiders: list[OutcomeShare]


async def _facts(parts: GatewayParts) -> PlatformFacts:
    """Raises `UnavailableError`."""
    facts = await parts.threads.run(parts[FactReader].facts)
    if facts is None:
        raise UnavailableError("the database is away")
    return facts


def _figures(parts: GatewayParts, facts: PlatformFacts, running: JobPage) -> Figures:
    now = parts.clock()
    return Figures(
        facts=facts,
        nodes=[NodeView.of(node, now, parts.dead_after) for node in facts.nodes],
        pages_per_s=None if running.next else sum(job.pages_per_s for job in running.jobs),
        since=to_iso(now - WINDOW),
        bars=_bars(facts.ends, now),
        pages=sum(end.pages for end in facts.ends),
        items=sum(end.items for end in facts.ends),
        sites=_shares(facts.ends, lambda end: end.site),
        spiders=_shares(facts.ends, lambda end: end.spider),
    )


def _shares(ends: Iterable[EndedJob], name_of: Callable[[EndedJob], str | None]) -> list[OutcomeShare]:
    grouped: defaultdict[str, Counter[JobStatus]] = defaultdict(Counter)
    for end in ends:
        if name := name_of(end):
            grouped[name][end.status] += 1
    shares = [_share(name, counts) for name, counts in grouped.items()]
    return sorted(shares, key=lambda share: (-share.runs, share.name))[:_ROWS]


def _share(name: str, counts: Counter[JobStatus]) -> OutcomeShare:
    finished, partial, failed, cancelled = (counts[status] for status in _ENDS)
    return OutcomeShare(name, counts.total(), finished, partial, failed, cancelled, success_rate(counts))


_WIDTH, _HEIGHT = 480, 96


def _bars(ends: Collection[EndedJob], now: datetime) -> Bars:
    counted: defaultdict[int, Counter[JobStatus]] = defaultdict(Counter)
    for end in ends:
        counted[_place(end.finished_at, now)][end.status] += 1
    most = max((one.total() for one in counted.values()), default=0)
    parts = [part for place, counts in sorted(counted.items()) for part in _stack(place, counts, most)]
    return Bars(parts, {status: sum(one[status] for one in counted.values()) for status in _ENDS}, most)


def _place(moment: datetime, now: datetime) -> int:
    """The index of the bar in which this moment is; the last bar ends now."""
    back = max(timedelta(), now - moment) / (WINDOW / _BARS)
    return max(0, _BARS - 1 - int(back))


def _stack(place: int, counts: Counter[JobStatus], most: int) -> list[Part]:
    parts, top = list[Part](), float(_HEIGHT)
    for status in _ENDS:
        if number := counts[status]:
            height = _HEIGHT * number / most
            top -= height
            parts.append(Part(status, number, place * _WIDTH / _BARS, round(top, 2), round(height, 2)))
    return parts
