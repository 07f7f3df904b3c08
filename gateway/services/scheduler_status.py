"""How the schedules fare: who fires them, how late, and what was fired last."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from gateway.domain.clock import Clock, utc_now
from gateway.domain.schedule import LedgerEntry, ScheduleState
from gateway.storage.client import truth_store_errors
from gateway.storage.heartbeats import BEAT, DEAD_AFTER, Heartbeat, HeartbeatStore
from gateway.storage.ledger import LedgerStore
from gateway.storage.run_statistics import RunStatistics
from gateway.storage.schedules import ScheduleStore

#: Schedules that are due at once are counted up to here.
MAX_DUE = 10_000


class SchedulerReport(NamedTuple):
    at: datetime
    #: All that were heard of lately,
    beats: list[Heartbeat]
    #: and those of them that are alive.
    alive: frozenset[str]
    due: int
    #: Since when the slot that waits longest is due, or when the next one will be.
    next_run: datetime | None
    schedules: dict[ScheduleState, int]
    #: Single crawls whose time has not come.
    one_off_jobs: int
    #: What became of the last slots, newest first.
    latest: list[LedgerEntry]


class SchedulerStatus:
    def __init__(
        self,
        *,
        schedules: ScheduleStore,
        ledger: LedgerStore,
        statistics: RunStatistics,
        heartbeats: HeartbeatStore,
        clock: Clock = utc_now,
    ) -> None:
        self._schedules = schedules
        self._ledger = ledger
        self._statistics = statistics
        self._heartbeats = heartbeats
        self._clock = clock

    def report(self, latest: int) -> SchedulerReport:
        """Raises `UnavailableError`."""
        with truth_store_errors():
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
