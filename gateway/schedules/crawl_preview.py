"""The answer that a request for a crawl would get, and when and where the crawl would run, without submitting it.

The checks and searches are those of the submissions. Nothing is written, claimed or counted.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from attrs import define

from gateway import errors
from gateway.clock import Clock, utc_now
from gateway.dispatch.fair_queue import FairQueue, NodeChoice, configured_projects
from gateway.dispatch.why_jobs_wait import why_waits
from gateway.jobs.admission import Admission
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.jobs.queries import JobQueries
from gateway.jobs.store import JobStore
from gateway.jobs.submission import RequestedCrawl, Submission
from gateway.nodes.store import NodeStore
from gateway.projects.catalog import WorkCheck
from gateway.projects.environment import ProjectStore
from gateway.schedules.calendar import coming
from gateway.schedules.next_run import OccurrenceTime, preview
from gateway.schedules.schedule import Schedule, ScheduleState
from gateway.schedules.submission import ScheduleSubmission, When
from gateway.stores.mongo import mongo_errors

Answer = TypeVar("Answer")

#: How many coming runs a forecast shows.
MOST_RUNS = 10
_Refusal = errors.InvalidRequestError | errors.TooManyError


class Known(NamedTuple):
    """The existing job or schedule that would answer the request."""

    id: str
    #: When it was first asked for.
    since: datetime
    state: JobStatus | ScheduleState


class ForecastPlace(NamedTuple):
    """Where a crawl that begins now would run, or why it would wait."""

    node: str | None
    waiting_reason: WaitingReason | None
    #: 1 is the job that starts next.
    queue_position: int | None


class Forecast(NamedTuple):
    #: Why the request would be refused; empty if it would be accepted.
    refusals: list[_Refusal]
    #: The order, with the version that would run.
    order: RequestedCrawl
    known: Known | None = None
    #: `None` unless a new job would begin now.
    place: ForecastPlace | None = None
    #: The next runs of a request for later. Those of a new schedule are without jitter, which depends on its id.
    runs: Sequence[OccurrenceTime] = ()


@define(eq=False, repr=False, slots=False, kw_only=True)
class Forecasts:
    _submission: Submission
    _schedules: ScheduleSubmission
    _check: WorkCheck
    _jobs: JobStore
    _queries: JobQueries
    _admission: Admission
    _nodes: NodeStore
    _projects: ProjectStore
    _fair: FairQueue
    _executor: Executor
    _dead_after: timedelta
    _clock: Clock = utc_now

    async def of(self, order: RequestedCrawl, when: When | None) -> Forecast:
        """The order's forecast. `when` is `None` for a crawl that would begin now. Raises `UnavailableError`."""
        pinned, refusals = await self._run(self._looked_through, order)
        if not refusals and (forecast := await self._answered(order, pinned, when)):
            return forecast
        refusals += await self._run(self._refused_as_new, pinned, when)
        if when is not None:
            return Forecast(refusals, pinned, runs=self._runs(when))
        place = None if refusals else await self._run(self._place, pinned)
        return Forecast(refusals, pinned, place=place)

    def _looked_through(self, order: RequestedCrawl) -> tuple[RequestedCrawl, list[_Refusal]]:
        """The order with its exact version, and the refusals that even a repeated request would get, because of its
        addresses, its project or its version.
        """
        refusals = [*_refusals(*self._check.address_checks(order.spec, order.crawl.webhooks))]
        try:
            return order.with_spec(self._check.pin(order.spec)), refusals
        except errors.InvalidRequestError as error:
            return order, [*refusals, error]

    async def _answered(self, order: RequestedCrawl, pinned: RequestedCrawl, when: When | None) -> Forecast | None:
        """The forecast if an existing job or schedule answers."""
        if when is None:
            receipt = await self._submission.look(order)
            known = await self._run(self._job, receipt.job_id) if receipt else None
            return Forecast([], pinned, known) if known else None
        found = await self._run(self._schedules.look, order, when)
        if found is None:
            return None
        if isinstance(found.found, Job):
            return Forecast([], pinned, _known_job(found.found), runs=self._runs(when))
        schedule = found.found
        known = Known(schedule.id, schedule.created_at, schedule.state)
        return Forecast([], pinned, known, runs=self._runs_of(schedule))

    def _job(self, job_id: str) -> Known | None:
        """The job; `None` if another request is about to make it, or if it was deleted."""
        with mongo_errors(), suppress(errors.JobNotFoundError):
            return _known_job(self._jobs.get(job_id))
        return None

    def _refused_as_new(self, pinned: RequestedCrawl, when: When | None) -> list[_Refusal]:
        times = self._schedules.time_checks(when) if when else ()
        checks: list[Callable[[], object]] = [*times, lambda: self._check.means(pinned.spec)]
        if when is None:
            checks.append(lambda: self._admission.require_room(pinned.user_id))
            checks.append(lambda: self._jobs.budgets.require(pinned.by.budget_key, pinned.spec))
        else:
            checks.append(lambda: self._schedules.require_room(pinned.user_id, when))
        with mongo_errors():
            return [*_refusals(*checks)]

    def _place(self, pinned: RequestedCrawl) -> ForecastPlace:
        """The place that the dispatcher would give the job now."""
        job = pinned.to_job("", self._clock())
        with mongo_errors():
            nodes, needs = self._nodes.all(attempts=False), job.partition.requirements
            configured = configured_projects(self._projects, nodes)
            choice = NodeChoice(nodes, self._clock(), self._dead_after, configured)
            reason = why_waits(job.user_id, choice.reason(needs), self._fair.full())
            position = self._queries.queue_position(job, self._fair.running)
        node = choice.place(needs) if reason is None else None
        return ForecastPlace(node.id if node else None, reason, position)

    def _runs(self, when: When) -> list[OccurrenceTime]:
        """The next runs; empty if the times of the request are wrong."""
        now = self._clock()
        timing = when.timing(now)
        if timing is None:
            return [OccurrenceTime(when.schedule_at, when.schedule_at)] if when.schedule_at else []
        with suppress(errors.InvalidRequestError):
            count = min(MOST_RUNS, when.max_runs or MOST_RUNS)
            return preview("", timing.model_copy(update={"jitter": 0}), now, count)
        return []

    def _runs_of(self, schedule: Schedule) -> list[OccurrenceTime]:
        is_active = schedule.state is ScheduleState.ACTIVE
        return coming(schedule, self._clock(), MOST_RUNS) if is_active else []

    async def _run(self, function: Callable[..., Answer], *args: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._executor, functools.partial(function, *args))


def _known_job(job: Job) -> Known:
    return Known(job.id, job.created_at, job.status)


def _refusals(*checks: Callable[[], object]) -> Iterator[_Refusal]:
    for check in checks:
        try:
            check()
        except (errors.InvalidRequestError, errors.TooManyError) as error:
            yield error
