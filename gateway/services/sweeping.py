"""The safety net: whatever a lost message or a killed process left undone is found again within a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache

import redis
import structlog
from pymongo.errors import PyMongoError

from gateway.domain.clock import Clock, to_iso, utc_now
from gateway.domain.errors import JobNotFoundError, UnreadableError
from gateway.domain.job import WaitingReason
from gateway.services.announcer import Announcer
from gateway.services.cancellation import CANCELLED
from gateway.services.completion import Completion
from gateway.services.exclusion import Exclusion
from gateway.services.node_choice import NodeChoice
from gateway.services.node_watch import NodeWatch
from gateway.services.turns import Turns
from gateway.services.user_limit import UserLimit
from gateway.services.waker import ENQUEUE_CRAWL, RECONCILE_NODE, REMOVE_EXPIRED, Waker
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.nodes import NodeStore

log = structlog.get_logger()

#: Jobs looked at in one sweep; the next one is a moment away.
BATCH = 200
#: Jobs made before there were lanes that are given theirs in one sweep.
ADOPTED = 1000
#: Seconds between two looks at a node.
RECONCILE_SECONDS = 2.0
#: Seconds between two looks at what has been kept for long enough.
RETENTION_SECONDS = 60.0


class Sweeper:
    def __init__(
        self,
        *,
        jobs: JobStore,
        queue: JobQueue,
        sweeps: JobSweeps,
        nodes: NodeStore,
        completion: Completion,
        exclusion: Exclusion,
        turns: Turns,
        limit: UserLimit,
        announcer: Announcer,
        waker: Waker,
        dead_after: timedelta,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._queue = queue
        self._sweeps = sweeps
        self._nodes = nodes
        self._completion = completion
        self._exclusion = exclusion
        self._turns = turns
        self._limit = limit
        self._announcer = announcer
        self._waker = waker
        self._dead_after = dead_after
        self._watch = NodeWatch(dead_after, monotonic)
        self._clock = clock
        self._monotonic = monotonic
        self._reconciled_at = self._removed_at = float("-inf")
        self._explained = ""

    def sweep(self) -> None:
        """One look at everything. Decides and settles by itself, so that no broker is needed for that."""
        self._wake()
        self._each(self._sweeps.undecided(BATCH), self._completion.conclude)
        self._each(self._sweeps.unsettled(BATCH), self._completion.conclude)
        self._each(self._sweeps.cancelled_while_waiting(BATCH), self._end_cancelled)
        for job in self._exclusion.sweep():
            self._waker.wake_job(job)

    def _wake(self) -> None:
        nodes = self._nodes.all()
        dead = {node.id: to_iso(node.heartbeat_at) for node in nodes if self._watch.is_dead(node)}
        now = self._clock()
        choice = NodeChoice(nodes, now, self._dead_after)
        if waiting := self._waiting(now, choice):
            self._wake_for(waiting)
        if self._monotonic() - self._reconciled_at < RECONCILE_SECONDS:
            return
        self._reconciled_at = self._monotonic()
        self._limit.sweep()
        self._queue.adopt(ADOPTED)
        self._explain_hindered(now, choice)
        for node in nodes:
            self._waker.wake(RECONCILE_NODE, node.id, dead.get(node.id))
        if self._monotonic() - self._removed_at >= RETENTION_SECONDS:
            self._removed_at = self._monotonic()
            self._waker.wake(REMOVE_EXPIRED)

    def _wake_for(self, job_id: str) -> None:
        try:
            self._waker.wake_job(self._jobs.get(job_id))
        except (JobNotFoundError, UnreadableError):
            # there may be others, and a worker looks for the best by itself
            self._waker.wake(ENQUEUE_CRAWL)

    def _waiting(self, now: datetime, choice: NodeChoice) -> str | None:
        """A job that a worker could do something for."""
        if placed := self._sweeps.placed(now, 1):
            return placed[0]
        room = choice.room()
        head = self._turns.waiting(room) if room is not None else None
        return head.job_id if head else None

    def _explain_hindered(self, now: datetime, choice: NodeChoice) -> None:
        """What jobs wait for may have changed though they still have to wait."""
        full, of_nodes = self._limit.full(), cache(choice.reason)
        hindered = self._sweeps.hindered(now, BATCH, self._explained)
        self._explained = hindered[-1].job_id if len(hindered) == BATCH else ""
        changed: dict[str, WaitingReason] = {}
        for job_id, lane, known in hindered:
            reason = self._limit.reason(lane.user_id, of_nodes(lane.need), full)
            if reason is not None and reason is not known:
                changed[job_id] = reason
        self._each(list(changed), lambda job_id: self._explain(job_id, changed[job_id]))

    def _explain(self, job_id: str, reason: WaitingReason) -> None:
        if waiting := self._queue.note_waiting(job_id, reason):
            self._announcer.status(waiting)

    def _end_cancelled(self, job_id: str) -> None:
        self._completion.end_waiting(self._jobs.get(job_id), CANCELLED)

    def _each(self, job_ids: list[str], step: Callable[[str], object]) -> None:
        """One job that cannot be helped must not keep the others from being looked at; a store that is away must."""
        for job_id in job_ids:
            try:
                step(job_id)
            except (PyMongoError, redis.RedisError):
                raise
            except Exception:
                log.exception("sweep_step_failed", job_id=job_id)
