"""The safety net: whatever a lost message or a killed process left undone is found again within a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import redis
import structlog

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import DiscoveryBotError
from gateway.services.cancellation import CANCELLED
from gateway.services.completion import Completion
from gateway.services.waker import CALL_WEBHOOKS, ENQUEUE_CRAWL, RECONCILE_NODE, Waker
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.nodes import NodeStore

log = structlog.get_logger()

#: Jobs looked at in one sweep; the next one is a moment away.
BATCH = 200
#: Left to whoever is calling them now: two callers at once would tell everything twice.
WEBHOOK_PATIENCE = timedelta(seconds=2)
#: Seconds between two looks at a node.
RECONCILE_SECONDS = 2.0


class Sweeper:
    def __init__(
        self,
        *,
        jobs: JobStore,
        sweeps: JobSweeps,
        nodes: NodeStore,
        completion: Completion,
        waker: Waker,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._sweeps = sweeps
        self._nodes = nodes
        self._completion = completion
        self._waker = waker
        self._clock = clock
        self._monotonic = monotonic
        self._reconciled_at = float("-inf")

    def sweep(self) -> None:
        """One look at everything. Decides and settles by itself, so that no broker is needed for that."""
        self._each(self._sweeps.undecided(BATCH), self._completion.conclude)
        self._each(self._sweeps.unsettled(BATCH), self._completion.conclude)
        self._each(self._sweeps.cancelled_while_pending(BATCH), self._end_cancelled)
        for job_id in self._sweeps.webhooks_due(self._clock() - WEBHOOK_PATIENCE, BATCH):
            self._waker.wake(CALL_WEBHOOKS, job_id)
        nodes = self._nodes.all()
        now = self._clock()
        room = any(node.free_slots for node in nodes)
        if waiting := self._sweeps.waiting(now, 1) if room else self._sweeps.placed(now, 1):
            self._waker.wake(ENQUEUE_CRAWL, waiting[0])
        if self._monotonic() - self._reconciled_at >= RECONCILE_SECONDS:
            self._reconciled_at = self._monotonic()
            for node in nodes:
                self._waker.wake(RECONCILE_NODE, node.id)

    def _end_cancelled(self, job_id: str) -> None:
        self._completion.end_waiting(self._jobs.get(job_id), CANCELLED)

    def _each(self, job_ids: list[str], step: Callable[[str], object]) -> None:
        """One job that cannot be helped now must not keep the others from being looked at."""
        for job_id in job_ids:
            try:
                step(job_id)
            except (redis.RedisError, DiscoveryBotError) as error:
                log.warning("sweep_step_failed", job_id=job_id, error=str(error))
