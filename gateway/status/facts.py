"""The present state of the platform, for the metrics, the queue's status and the scheduler's status."""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from statistics import mean, median
from typing import NamedTuple, ParamSpec, TypeVar

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, utc_now
from gateway.jobs.job import FINAL_STATUSES, JobStatus, WaitingReason, success_rate
from gateway.jobs.queries import EndedJob, JobQueries, JobStatistics
from gateway.jobs.rerun import DeadLetterStore
from gateway.nodes.health import BEAT, DEAD_AFTER, WORKER, HeartbeatStore, ProcessHeartbeat
from gateway.nodes.node import NodeState
from gateway.nodes.store import Node, NodeStore
from gateway.schedules.schedule import LedgerEntry, ScheduleState
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.signals.delivery_store import CallsToCome, DeliveryStore
from gateway.stores.mongo import mongo_errors, within

Asked = ParamSpec("Asked")
Fact = TypeVar("Fact")

WINDOW = timedelta(hours=1)
#: At most this many ended jobs are kept, the latest ones.
MAX_ENDS = 20_000
#: The end of a job becomes visible at most this long after its `finished_at`.
LATENESS = timedelta(seconds=15)


@define(eq=False, repr=False, slots=False)
class RecentEnds:
    """The jobs that ended lately. Not thread-safe."""

    _statistics: JobStatistics
    _known: dict[str, EndedJob] = field(init=False, factory=dict)
    _looked_at: datetime | None = field(init=False, default=None)

    def look(self, now: datetime) -> Collection[EndedJob]:
        """The jobs that ended within `WINDOW`. Raises PyMongo's errors; then the next call reads the missed ones."""
        since = now - WINDOW
        unread = since if self._looked_at is None else max(since, self._looked_at - LATENESS)
        new = self._statistics.ended(unread, MAX_ENDS)
        # oldest first
        known = {**self._known, **{end.id: end for end in reversed(new)}}
        fresh = [end for end in known.values() if end.finished_at >= since][-MAX_ENDS:]
        self._known = {end.id: end for end in fresh}
        self._looked_at = now
        return self._known.values()


# --- how many jobs there are: few wait or run, but hundreds of millions may have ended

#: Seconds that counting the ended jobs may take.
COUNT_SECONDS = 600.0
#: A count that took longer than `CHEAP` seconds is kept for this many times as long as it took: at most one twentieth
#: of the time goes into counting.
CHEAP, SPARING = 0.1, 20
#: Seconds for which a caller waits for the ended jobs to be counted.
PATIENT = 1.0


@define(eq=False, repr=False, slots=False)
class JobCounts:
    """Counts jobs by status. Thread-safe: the ended jobs are counted in a separate thread, once for all callers."""

    _queries: JobQueries
    _patience: float = PATIENT
    _monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _counting: Future[None] | None = field(init=False, default=None)
    _ended: dict[JobStatus, int] = field(init=False, factory=dict)
    _kept_until: float = field(init=False, default=float("-inf"))

    def by_status(self) -> dict[JobStatus, int]:
        """How many jobs there are with each status. If counting takes long, the numbers of ended jobs are those of an
        earlier count, and are left out until the first count is done. Raises PyMongo's errors.
        """
        under_way = self._count_ended()
        found = {status: self._queries.in_status(status) for status in JobStatus if status not in FINAL_STATUSES}
        if under_way is not None:
            with suppress(TimeoutError):
                under_way.result(self._patience)
        return {status: count for status in JobStatus if (count := {**self._ended, **found}.get(status)) is not None}

    def _count_ended(self) -> Future[None] | None:
        """The count that is under way; `None` if the last count is still recent enough."""
        with self._lock:
            if self._monotonic() < self._kept_until:
                return None
            if self._counting is None or self._counting.done():
                self._counting = Future()
                # not in a pool, whose threads a process would wait for at its end
                threading.Thread(
                    target=self._carry_out, args=(self._counting,), name="ended-jobs", daemon=True
                ).start()
            return self._counting

    def _carry_out(self, counting: Future[None]) -> None:
        began = self._monotonic()
        failed: BaseException | None = None
        try:
            with within(COUNT_SECONDS):
                found = {status: self._queries.in_status(status) for status in FINAL_STATUSES}
        except BaseException as error:  # noqa: BLE001 - the callers that wait get it
            found, failed = self._ended, error
        now = self._monotonic()
        # a count that ran out of time has cost as much as one that succeeded
        self._kept_until = now + SPARING * (now - began) if now - began > CHEAP else now
        self._ended = found
        if failed is None:
            counting.set_result(None)
        else:
            counting.set_exception(failed)


# --- the state of the whole platform in MongoDB at a moment: the same for every gateway that asks

log = structlog.get_logger()

#: Seconds for which the facts are kept; after a failure, seconds without another try.
KEPT = 5.0
#: Seconds that all queries may take together, because Prometheus waits for the metrics for ten seconds.
PATIENCE = 4.0
#: Schedules that are due at once are counted up to this number.
MAX_DUE = 10_000


class PlatformFacts(NamedTuple):
    #: The numbers of `JobCounts.by_status`.
    by_status: dict[JobStatus, int]
    by_reason: dict[WaitingReason, int]
    #: Seconds for which the pending job that waits longest has been due.
    oldest_waiting: float
    dead_letters: int
    webhooks: CallsToCome
    schedules: dict[ScheduleState, int]
    schedules_due: int
    #: Seconds by which the occurrence that waits longest is late.
    lag: float
    one_off_jobs: int
    beats: int
    workers: int
    nodes: list[Node]
    alive: frozenset[str]
    #: The state of each node, by the node's name.
    node_states: dict[str, NodeState]
    ends: Collection[EndedJob]


@define(eq=False, repr=False, slots=False, kw_only=True)
class FactReader:
    """Reads the facts. Thread-safe: one thread reads them for all callers."""

    _counts: JobCounts
    _statistics: JobStatistics
    _deliveries: DeliveryStore
    _letters: DeadLetterStore
    _schedules: ScheduleStore
    _heartbeats: HeartbeatStore
    _nodes: NodeStore
    _recent: RecentEnds
    _node_dead_after: timedelta
    _clock: Clock = utc_now
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _read_at: float = field(init=False, default=float("-inf"))
    _facts: PlatformFacts | None = field(init=False, default=None)
    _threads: ThreadPoolExecutor = field(init=False, factory=lambda: ThreadPoolExecutor(16, "facts"))

    def facts(self) -> PlatformFacts | None:
        """Facts that are at most `KEPT` seconds old; `None` while MongoDB does not answer."""
        with self._lock:
            if time.monotonic() - self._read_at >= KEPT:
                self._facts = self._try_to_read()
                self._read_at = time.monotonic()
            return self._facts

    def _try_to_read(self) -> PlatformFacts | None:
        try:
            with within(PATIENCE):
                return self._read()
        except PyMongoError as error:
            log.warning("facts_not_read", error=type(error).__name__)
            return None

    def _read(self) -> PlatformFacts:
        """Send all queries at the same time, because each answer can take long on a slow link."""
        now = self._clock()
        by_status = self._ask(self._counts.by_status)
        by_reason = self._ask(self._statistics.waiting_reasons)
        oldest_waiting = self._ask(self._statistics.oldest_due, now)
        dead_letters = self._ask(self._letters.count)
        webhooks = self._ask(self._deliveries.to_come, now)
        schedules = {state: self._ask(self._schedules.count, state) for state in ScheduleState}
        schedules_due = self._ask(self._schedules.count_due, now, MAX_DUE)
        next_run = self._ask(self._schedules.next_run)
        one_off_jobs = self._ask(self._statistics.one_off_jobs)
        beats, workers = self._ask(self._alive, BEAT, now), self._ask(self._alive, WORKER, now)
        all_nodes = self._ask(self._nodes.all)
        ends = list(self._recent.look(now))
        nodes = all_nodes.result()
        return PlatformFacts(
            by_status=by_status.result(),
            by_reason=by_reason.result(),
            oldest_waiting=_seconds_since(oldest_waiting.result(), now),
            dead_letters=dead_letters.result(),
            webhooks=webhooks.result(),
            schedules={state: number.result() for state, number in schedules.items()},
            schedules_due=schedules_due.result(),
            lag=_seconds_since(next_run.result(), now),
            one_off_jobs=one_off_jobs.result(),
            beats=beats.result(),
            workers=workers.result(),
            nodes=nodes,
            alive=frozenset(node.id for node in nodes if node.is_alive(now, self._node_dead_after)),
            node_states={node.id: node.state(now, self._node_dead_after) for node in nodes},
            ends=ends,
        )

    def _ask(self, read: Callable[Asked, Fact], *asked: Asked.args, **more: Asked.kwargs) -> Future[Fact]:
        """Call `read` in another thread, with the deadline of this one."""
        return self._threads.submit(contextvars.copy_context().run, functools.partial(read, *asked, **more))

    def _alive(self, kind: str, now: datetime) -> int:
        return sum(now - heartbeat.at <= DEAD_AFTER for heartbeat in self._heartbeats.all(kind))


def _seconds_since(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())


# --- the state of the scheduler: which beats fire the schedules, how late, and the last decisions


class SchedulerReport(NamedTuple):
    at: datetime
    #: All beats whose heartbeats are still stored.
    beats: list[ProcessHeartbeat]
    #: Names of the beats that are alive.
    alive: frozenset[str]
    due: int
    #: When the occurrence that waits longest became due, or when the next one will be.
    next_run: datetime | None
    schedules: dict[ScheduleState, int]
    #: Single crawls whose time has not come.
    one_off_jobs: int
    #: The decisions on the last occurrences, newest first.
    latest: list[LedgerEntry]


@define(eq=False, repr=False, slots=False, kw_only=True)
class SchedulerStatus:
    _schedules: ScheduleStore
    _ledger: LedgerStore
    _statistics: JobStatistics
    _heartbeats: HeartbeatStore
    _clock: Clock = utc_now

    def report(self, latest: int) -> SchedulerReport:
        """The state of the scheduler, with the `latest` last decisions. Raises `UnavailableError`."""
        with mongo_errors():
            now, beats = self._clock(), self._heartbeats.all(BEAT)
            return SchedulerReport(
                at=now,
                beats=beats,
                alive=frozenset(beat.name for beat in beats if now - beat.at <= DEAD_AFTER),
                due=self._schedules.count_due(now, MAX_DUE),
                next_run=self._schedules.next_run(),
                schedules={state: self._schedules.count(state) for state in ScheduleState},
                one_off_jobs=self._statistics.one_off_jobs(),
                latest=self._ledger.latest(latest) if latest else [],
            )


# --- the queue: which jobs wait and why, which processes work, and how each site's runs have ended lately

#: At most this many ended runs are read, the latest ones: more of them would hardly change the figures.
MAX_RUNS = 10_000


class Durations(NamedTuple):
    """Seconds from a run's first start to its end."""

    average: float
    median: float
    longest: float


class SitePerformance(NamedTuple):
    """The runs of one site that ended within the window."""

    site: str
    counts: dict[JobStatus, int]
    #: By `SUCCESS_RULE`.
    success_rate: float | None
    durations: Durations | None
    last_ended_at: datetime


class QueueReport(NamedTuple):
    at: datetime
    since: datetime
    by_status: dict[JobStatus, int]
    by_reason: dict[WaitingReason, int]
    #: Since when the job that waits longest has been due.
    oldest_due: datetime | None
    #: Names of the workers with a recent sign of life.
    workers: list[str]
    dead_letters: int
    sites: list[SitePerformance]
    #: Whether all runs of the window were read; otherwise only the latest `MAX_RUNS`.
    complete: bool


@define(eq=False, repr=False, slots=False, kw_only=True)
class QueueStatus:
    _counts: JobCounts
    _statistics: JobStatistics
    _letters: DeadLetterStore
    _heartbeats: HeartbeatStore
    _clock: Clock = utc_now

    def report(self, window: timedelta) -> QueueReport:
        """The state of the queue, with the runs that ended within `window`. Raises `UnavailableError`."""
        with mongo_errors():
            now = self._clock()
            runs = self._statistics.ended(now - window, MAX_RUNS, of_sites=True)
            return QueueReport(
                at=now,
                since=now - window,
                by_status=self._counts.by_status(),
                by_reason=self._statistics.waiting_reasons(),
                oldest_due=self._statistics.oldest_due(now),
                workers=[one.name for one in self._heartbeats.all(WORKER) if now - one.at <= DEAD_AFTER],
                dead_letters=self._letters.count(),
                sites=by_site(runs),
                complete=len(runs) < MAX_RUNS,
            )


def by_site(runs: Iterable[EndedJob]) -> list[SitePerformance]:
    """One entry for each site, sorted by the site's name."""
    grouped: defaultdict[str, list[EndedJob]] = defaultdict(list)
    for run in runs:
        grouped[run.site or ""].append(run)
    return [_performance(site, grouped[site]) for site in sorted(grouped)]


def _performance(site: str, runs: list[EndedJob]) -> SitePerformance:
    counts = {status: sum(run.status is status for run in runs) for status in {run.status for run in runs}}
    return SitePerformance(
        site=site,
        counts=counts,
        success_rate=success_rate(counts),
        durations=_durations(runs),
        last_ended_at=max(run.finished_at for run in runs),
    )


def _durations(runs: list[EndedJob]) -> Durations | None:
    seconds = [(run.finished_at - run.started_at).total_seconds() for run in runs if run.started_at is not None]
    # never negative, although a node's clock can differ a little from ours
    seconds = [max(0.0, duration) for duration in seconds]
    return Durations(mean(seconds), median(seconds), max(seconds)) if seconds else None
