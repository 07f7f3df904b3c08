"""How the queue fares: what waits and why, who works, and how each site's runs have gone lately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import mean, median
from typing import NamedTuple

from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import JobStatus, WaitingReason
from gateway.storage.client import truth_store_errors
from gateway.storage.dead_letters import DeadLetterStore
from gateway.storage.heartbeats import DEAD_AFTER, WORKER, HeartbeatStore
from gateway.storage.job_queries import JobQueries
from gateway.storage.run_statistics import EndedRun, RunStatistics

#: Ended runs that are looked at, the latest: beyond them a window tells no more than they do.
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
    #: Of those that were not cancelled: the share that lacks nothing.
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
    #: Names of those that gave a sign of life lately.
    workers: list[str]
    dead_letters: int
    sites: list[SitePerformance]
    #: All runs of the window were looked at, not only the latest.
    complete: bool


class QueueStatus:
    def __init__(
        self,
        *,
        queries: JobQueries,
        statistics: RunStatistics,
        letters: DeadLetterStore,
        heartbeats: HeartbeatStore,
        clock: Clock = utc_now,
    ) -> None:
        self._queries = queries
        self._statistics = statistics
        self._letters = letters
        self._heartbeats = heartbeats
        self._clock = clock

    def report(self, window: timedelta) -> QueueReport:
        """Raises `UnavailableError`."""
        with truth_store_errors():
            now = self._clock()
            runs = self._statistics.ended_runs(now - window, MAX_RUNS)
            return QueueReport(
                at=now,
                since=now - window,
                by_status=self._queries.counts(),
                by_reason=self._statistics.waiting_reasons(),
                oldest_due=self._statistics.oldest_due(now),
                workers=[one.name for one in self._heartbeats.all(WORKER) if now - one.at <= DEAD_AFTER],
                dead_letters=self._letters.count(),
                sites=by_site(runs),
                complete=len(runs) < MAX_RUNS,
            )


def by_site(runs: Iterable[EndedRun]) -> list[SitePerformance]:
    """By the site's name."""
    grouped: defaultdict[str, list[EndedRun]] = defaultdict(list)
    for run in runs:
        grouped[run.site].append(run)
    return [_performance(site, grouped[site]) for site in sorted(grouped)]


def _performance(site: str, runs: list[EndedRun]) -> SitePerformance:
    counts = {status: sum(run.status is status for run in runs) for status in {run.status for run in runs}}
    judged = len(runs) - counts.get(JobStatus.CANCELLED, 0)
    return SitePerformance(
        site=site,
        counts=counts,
        success_rate=counts.get(JobStatus.FINISHED, 0) / judged if judged else None,
        durations=_durations(runs),
        last_ended_at=max(run.finished_at for run in runs),
    )


def _durations(runs: list[EndedRun]) -> Durations | None:
    seconds = [(run.finished_at - run.started_at).total_seconds() for run in runs if run.started_at is not None]
    # a node's clock may be a little off ours
    seconds = [max(0.0, duration) for duration in seconds]
    return Durations(mean(seconds), median(seconds), max(seconds)) if seconds else None
