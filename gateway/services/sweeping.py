"""The safety net: whatever a lost message or a killed process left undone is found again within a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import redis
import structlog
from pydantic import ValidationError
from pymongo.errors import PyMongoError

from gateway.domain.clock import Clock, to_iso, utc_now
from gateway.domain.errors import JobNotFoundError
from gateway.services.announcer import Announcer
from gateway.services.cancellation import CANCELLED
from gateway.services.completion import Completion
from gateway.services.exclusion import Exclusion
from gateway.services.node_choice import NodeChoice
from gateway.services.node_watch import NodeWatch
from gateway.services.waker import CALL_WEBHOOKS, ENQUEUE_CRAWL, RECONCILE_NODE, REMOVE_EXPIRED, Waker
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.nodes import NodeStore

log = structlog.get_logger()

#: Jobs looked at in one sweep; the next one is a moment away.
BATCH = 200
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
        room = choice.room()
        waiting = self._sweeps.placed(now, 1) or (self._sweeps.waiting(now, 1, room) if room else [])
        if waiting:
            self._wake_for(waiting[0])
        if self._monotonic() - self._reconciled_at < RECONCILE_SECONDS:
            return
        self._reconciled_at = self._monotonic()
        hindered = self._sweeps.hindered(now, BATCH, self._explained)
        self._explained = hindered[-1] if len(hindered) == BATCH else ""
        self._each(hindered, lambda job_id: self._explain(job_id, choice))
        for job_id in self._sweeps.webhooks_due(now, BATCH):
            self._waker.wake(CALL_WEBHOOKS, job_id)
        for node in nodes:
            self._waker.wake(RECONCILE_NODE, node.id, dead.get(node.id))
        if self._monotonic() - self._removed_at >= RETENTION_SECONDS:
            self._removed_at = self._monotonic()
            self._waker.wake(REMOVE_EXPIRED)

    def _wake_for(self, job_id: str) -> None:
        try:
            self._waker.wake_job(self._jobs.get(job_id))
        except (JobNotFoundError, ValidationError):
            # there may be others, and a worker looks for the best by itself
            self._waker.wake(ENQUEUE_CRAWL)

    def _explain(self, job_id: str, choice: NodeChoice) -> None:
        """What a job waits for may have changed though it still has to wait."""
        reason = choice.reason(self._jobs.get(job_id))
        if reason is not None and (waiting := self._queue.note_waiting(job_id, reason)):
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
