"""Holds what the documents say against what a node says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import JobNotFoundError
from gateway.domain.job import Job, JobStatus
from gateway.domain.node_files import AttemptId, ExitReport
from gateway.services.completion import Completion
from gateway.services.dispatch import Dispatch
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.logs import LogStore
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: An accepted attempt that shows no sign of life for this long is handed over again.
SILENCE = timedelta(seconds=5)
#: Observations further apart than this do not add up: a store may have been away in between.
_MAX_GAP = 15.0


class _Watch(NamedTuple):
    """What this process has seen of a node's heartbeat; times by the monotonic clock."""

    heartbeat_at: datetime
    unchanged_since: float
    seen_at: float


class Reconciliation:
    def __init__(
        self,
        *,
        jobs: JobStore,
        sweeps: JobSweeps,
        nodes: NodeStore,
        logs: LogStore,
        dispatch: Dispatch,
        completion: Completion,
        dead_after: timedelta,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._sweeps = sweeps
        self._nodes = nodes
        self._logs = logs
        self._dispatch = dispatch
        self._completion = completion
        self._dead_after = dead_after
        self._clock = clock
        self._monotonic = monotonic
        self._watches: dict[str, _Watch] = {}

    def node(self, name: str) -> None:
        """Settle every difference between the node and the jobs that are said to run there."""
        node = self._nodes.get(name)
        if node is None:
            return
        dead = self._is_dead(node)
        for job_id in self._sweeps.running_on(name):
            try:
                job = self._jobs.get(job_id)
            except JobNotFoundError:
                continue
            if dead:
                self._declare_lost(job, node)
            else:
                self._check(job)
        self._free_leaked_slots(node)

    def _is_dead(self, node: Node) -> bool:
        """Dead is a heartbeat that *we* saw unchanged, again and again, for long enough.

        An old time stamp alone proves nothing: nobody could write one while the database was away.
        """
        now = self._monotonic()
        watch = self._watches.get(node.id)
        if watch is None or watch.heartbeat_at != node.heartbeat_at or now - watch.seen_at > _MAX_GAP:
            watch = _Watch(node.heartbeat_at, now, now)
        self._watches[node.id] = watch._replace(seen_at=now)
        return now - watch.unchanged_since >= self._dead_after.total_seconds()

    def _declare_lost(self, job: Job, node: Node) -> None:
        attempt = job.current
        if attempt is None or attempt.exit is not None:
            return
        log.warning("attempt_lost", job_id=job.id, attempt=attempt.attempt, node=node.id)
        message = f"node {node.id} has not been heard of since {node.heartbeat_at:%H:%M:%S} UTC"
        facts = ExitReport(attempt=attempt.attempt, ended_at=self._clock(), lost=True, log_tail=message)
        shipped = self._logs.end(job.id, attempt.attempt)
        self._completion.record_exit(AttemptId(job.id, attempt.attempt), facts, shipped)
        self._completion.conclude(job.id)

    def _check(self, job: Job) -> None:
        attempt = job.current
        if attempt is None or attempt.exit is not None:
            return
        now = self._clock()
        if attempt.started_at is None and now - attempt.dispatched_at > SILENCE:
            self._dispatch.post_again(job)
        if job.cancel_requested_at is not None and now - job.cancel_requested_at > SILENCE:
            self._dispatch.cancel(job)

    def _free_leaked_slots(self, node: Node) -> None:
        for job_id in node.slots:
            try:
                job = self._jobs.get(job_id)
            except JobNotFoundError:
                self._nodes.free_slot(node.id, job_id)
                continue
            if not self._holds_slot(job, node):
                self._nodes.free_slot(node.id, job_id)

    def _holds_slot(self, job: Job, node: Node) -> bool:
        if job.status is JobStatus.RUNNING:
            return job.current is not None and job.current.node == node.id
        if job.is_final:
            return False
        # a dispatcher takes the slot before it says so on the job
        claimed = job.claim is not None and job.claim.until > self._clock()
        return claimed or (job.placement is not None and job.placement.node == node.id)
