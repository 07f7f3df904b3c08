"""What MongoDB says of the whole platform at a moment: the same to every gateway that asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import JobStatus, WaitingReason
from gateway.domain.node_list import EVERY_NODE, NodeList
from gateway.domain.node_state import NodeState
from gateway.domain.schedule import ScheduleState
from gateway.services.recent_ends import RecentEnds
from gateway.storage.client import Document, within
from gateway.storage.dead_letters import DeadLetterStore
from gateway.storage.due_jobs import CallsToCome, DueJobs
from gateway.storage.ended_jobs import EndedJob, EndedJobs
from gateway.storage.heartbeats import BEAT, DEAD_AFTER, WORKER, HeartbeatStore
from gateway.storage.job_queries import JobQueries
from gateway.storage.nodes import Node, NodeStore
from gateway.storage.run_statistics import RunStatistics
from gateway.storage.schedules import ScheduleStore

log = structlog.get_logger()

#: Seconds for which an answer holds, also the answer that there is none.
KEPT = 5.0
#: Seconds that all queries may take together: whoever scrapes us waits for no more than ten.
PATIENCE = 4.0
#: Schedules that are due at once are counted up to here.
MAX_DUE = 10_000


class PlatformFacts(NamedTuple):
    at: datetime
    by_status: dict[JobStatus, int]
    by_reason: dict[WaitingReason, int]
    #: Seconds for which the pending job that waits longest has been due.
    oldest_waiting: float
    dead_letters: int
    webhooks: CallsToCome
    schedules: dict[ScheduleState, int]
    schedules_due: int
    #: Seconds by which the slot that waits longest is late.
    lag: float
    one_off_jobs: int
    beats: int
    workers: int
    nodes: list[Node]
    alive: frozenset[str]
    #: Of each of them, by name.
    node_states: dict[str, NodeState]
    ends: Collection[EndedJob]


class FactReader:
    """Several threads may ask; one of them reads for all."""

    def __init__(
        self,
        database: Database[Document],
        *,
        node_dead_after: timedelta,
        node_list: NodeList = EVERY_NODE,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queries = JobQueries(database)
        self._statistics = RunStatistics(database)
        self._due = DueJobs(database)
        self._letters = DeadLetterStore(database, clock)
        self._schedules = ScheduleStore(database, clock)
        self._heartbeats = HeartbeatStore(database, clock)
        self._nodes = NodeStore(database, clock, node_list)
        self._recent = RecentEnds(EndedJobs(database))
        self._node_dead_after = node_dead_after
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._facts: PlatformFacts | None = None

    def facts(self) -> PlatformFacts | None:
        """At most `KEPT` seconds old; `None` while MongoDB cannot be asked."""
        with self._lock:
            if self._monotonic() - self._read_at >= KEPT:
                self._facts = self._try_to_read()
                self._read_at = self._monotonic()
            return self._facts

    def _try_to_read(self) -> PlatformFacts | None:
        try:
            with within(PATIENCE):
                return self._read()
        except PyMongoError as error:
            log.warning("facts_not_read", error=type(error).__name__)
            return None

    def _read(self) -> PlatformFacts:
        now = self._clock()
        nodes = self._nodes.all()
        return PlatformFacts(
            at=now,
            by_status=self._queries.counts(),
            by_reason=self._statistics.waiting_reasons(),
            oldest_waiting=_seconds_since(self._statistics.oldest_due(now), now),
            dead_letters=self._letters.count(),
            webhooks=self._due.webhooks(now),
            schedules={state: self._schedules.count(state) for state in ScheduleState},
            schedules_due=self._schedules.count_due(now, MAX_DUE),
            lag=_seconds_since(self._schedules.next_run(), now),
            one_off_jobs=self._statistics.one_off_jobs(),
            beats=self._alive(BEAT, now),
            workers=self._alive(WORKER, now),
            nodes=nodes,
            alive=frozenset(node.id for node in nodes if node.is_alive(now, self._node_dead_after)),
            node_states={node.id: node.state(now, self._node_dead_after) for node in nodes},
            ends=list(self._recent.look(now)),
        )

    def _alive(self, kind: str, now: datetime) -> int:
        return sum(now - heartbeat.at <= DEAD_AFTER for heartbeat in self._heartbeats.all(kind))


def _seconds_since(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())
