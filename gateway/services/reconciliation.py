"""Holds what the documents say against what a node says of itself."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from redis import RedisError

from gateway.domain.clock import Clock, to_iso, utc_now
from gateway.domain.errors import DiscoveryBotError, JobNotFoundError, NodeUnreachableError, UnreadableError
from gateway.domain.job import DEFAULT_PROJECT, Attempt, Job, JobStatus
from gateway.domain.node_files import AttemptId, ExitReport
from gateway.services.completion import Completion
from gateway.services.dispatch import CLOCK_MARGIN, START_SECONDS, Dispatch
from gateway.services.node_health import NodeHealth, NodeProbe
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.logs import LogStore
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: An accepted attempt that shows no sign of life for this long is handed over again.
SILENCE = timedelta(seconds=5)
#: What a node has accepted and not started by then it never will.
NEVER = timedelta(seconds=START_SECONDS) + CLOCK_MARGIN
#: An attempt that has lived for so long runs.
RUNS_AFTER = timedelta(seconds=10)
#: So many heartbeats, all begun after its start, must not know an attempt before it is taken for gone.
ABSENT_HEARTBEATS = 3


class _Absence(NamedTuple):
    heartbeat_at: datetime
    heartbeats: int


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
        probe: NodeProbe,
        clock: Clock = utc_now,
    ) -> None:
        self._jobs = jobs
        self._sweeps = sweeps
        self._nodes = nodes
        self._logs = logs
        self._dispatch = dispatch
        self._completion = completion
        self._probe = probe
        self._health = NodeHealth(nodes, clock)
        self._clock = clock
        self._absences: dict[AttemptId, _Absence] = {}
        #: One look at a node at a time: a node that does not answer must not take every thread.
        self._looking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def node(self, name: str, last_heartbeat: str | None = None) -> None:
        """Settle every difference between the node and the jobs that are said to run there.

        `last_heartbeat` names the one after which somebody watched the node for long enough to call it dead. By the
        time that this is heard there may have been another.
        """
        lock, began_at = self._looking[name], self._clock()
        if not lock.acquire(blocking=False):
            return
        try:
            self._look(name, last_heartbeat)
        except NodeUnreachableError as error:
            # asked once is enough for this time
            log.warning("node_unreachable", node=name, error=error.message)
            self._health.failed(name, error.message, began_at)
        finally:
            lock.release()

    def _look(self, name: str, last_heartbeat: str | None) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        dead = last_heartbeat == to_iso(node.heartbeat_at)
        # what needs no answer of the node comes first
        self._free_leaked_slots(node)
        answers = not dead and self._probe.may_be_asked(node)
        for job_id in self._sweeps.running_on(name):
            if (job := self._read(job_id)) is None:
                continue
            if dead:
                self._declare_lost(job, f"node {name} has not been heard of since {node.heartbeat_at:%H:%M:%S} UTC")
            else:
                self._check(job, node, answers=answers)
        if answers:
            self._end_superseded(node)

    def _read(self, job_id: str) -> Job | None:
        """`None` for a job that is gone, or that cannot be understood: it must not keep others from being seen to."""
        try:
            return self._jobs.get(job_id)
        except JobNotFoundError:
            return None
        except UnreadableError as error:
            log.error("job_not_readable", job_id=job_id, error=str(error))  # noqa: TRY400 - the error says it all
            return None

    def _declare_lost(self, job: Job, message: str) -> None:
        attempt = job.current
        if attempt is None or attempt.exit is not None:
            return
        log.warning("attempt_lost", job_id=job.id, attempt=attempt.attempt, reason=message)
        facts = ExitReport(attempt=attempt.attempt, ended_at=self._clock(), lost=True, log_tail=message)
        shipped = self._logs.end(job.id, attempt.attempt)
        self._completion.record_exit(AttemptId(job.id, attempt.attempt), facts, shipped)
        try:
            self._completion.conclude(job.id)
        except (RedisError, DiscoveryBotError) as error:
            log.warning("conclude_failed", job_id=job.id, error=str(error))

    def _check(self, job: Job, node: Node, *, answers: bool) -> None:
        attempt = job.current
        if attempt is None or attempt.exit is not None:
            return
        now = self._clock()
        if node.failures and self._runs(job, attempt, node):
            self._health.succeeded(node.id, attempt.dispatched_at)
        overdue = attempt.started_at is not None or now - attempt.dispatched_at > NEVER
        if overdue and self._is_gone(job, attempt, node):
            what = "its files are gone from" if attempt.started_at else "it was accepted, and never came to,"
            self._declare_lost(job, f"{what} node {node.id}")
            return
        if not answers:
            return
        if attempt.started_at is None and now - attempt.dispatched_at > SILENCE:
            self._dispatch.post_again(job)
        if job.cancel_requested_at is not None and now - job.cancel_requested_at > SILENCE:
            self._dispatch.cancel_attempt(node, job.spec.project, AttemptId(job.id, attempt.attempt))

    def _runs(self, job: Job, attempt: Attempt, node: Node) -> bool:
        """Whether there is no doubt that the node can run crawls: what it cannot run dies at once."""
        if job.progress is not None and job.progress.completed_pages > 0:
            return True
        alive = str(AttemptId(job.id, attempt.attempt)) in node.alive
        return alive and node.heartbeat_at - attempt.dispatched_at > RUNS_AFTER

    def _is_gone(self, job: Job, attempt: Attempt, node: Node) -> bool:
        """Unknown to the tailer, though it should have been started by now and has no end: its folder was taken away,
        or there was never one.
        """
        attempt_id = AttemptId(job.id, attempt.attempt)
        began = max(node.beating_since, attempt.started_at or attempt.dispatched_at)
        if str(attempt_id) in {*node.present, *node.alive} or node.heartbeat_at <= began:
            self._absences.pop(attempt_id, None)
            return False
        absence = self._absences.get(attempt_id, _Absence(began, 0))
        if absence.heartbeat_at != node.heartbeat_at:
            absence = _Absence(node.heartbeat_at, absence.heartbeats + 1)
        self._absences[attempt_id] = absence
        if absence.heartbeats < ABSENT_HEARTBEATS:
            return False
        del self._absences[attempt_id]
        # its exit may have been recorded since the job was read
        fresh = self._read(job.id)
        return fresh is not None and fresh.current is not None and fresh.current.exit is None

    def _end_superseded(self, node: Node) -> None:
        """Attempts that are alive though their job has gone on without them, or is gone."""
        for attempt_id in filter(None, map(AttemptId.parse, node.alive)):
            for project in self._projects_of_superseded(attempt_id, node):
                log.warning("superseded_attempt", job_id=attempt_id.job_id, attempt=attempt_id.attempt, node=node.id)
                self._dispatch.cancel_attempt(node, project, attempt_id)

    def _projects_of_superseded(self, attempt_id: AttemptId, node: Node) -> list[str]:
        """Where to look for the attempt that nobody needs any more; nowhere, if somebody does."""
        try:
            job = self._jobs.get(attempt_id.job_id)
        except JobNotFoundError:
            # deleted, so it had ended elsewhere; a node that was away for long knows nothing of it
            return sorted({DEFAULT_PROJECT, *(egg.project for egg in node.eggs)})
        except UnreadableError:
            return []
        return [job.spec.project] if _is_superseded(job, attempt_id.attempt) else []

    def _free_leaked_slots(self, node: Node) -> None:
        for name in {*node.slots, *node.render_slots}:
            if not self._needs_slot(AttemptId.parse(name), node):
                self._nodes.free_slot(node.id, name)

    def _needs_slot(self, attempt_id: AttemptId | None, node: Node) -> bool:
        if attempt_id is None:
            return False
        try:
            job = self._jobs.get(attempt_id.job_id)
        except JobNotFoundError:
            return False
        except UnreadableError:
            return True
        return self._holds_slot(job, attempt_id.attempt, node)

    def _holds_slot(self, job: Job, attempt: int, node: Node) -> bool:
        if job.status is JobStatus.RUNNING:
            return job.current is not None and (job.current.attempt, job.current.node) == (attempt, node.id)
        if job.is_final:
            return False
        # a dispatcher takes the slot before it says so on the job
        claimed = job.claim is not None and job.claim.until > self._clock() and attempt == job.attempt + 1
        placement = job.placement
        return claimed or (placement is not None and (placement.attempt, placement.node) == (attempt, node.id))


def _is_superseded(job: Job, attempt: int) -> bool:
    """A later attempt exists, or this one was given up for lost."""
    record = job.attempts.get(str(attempt))
    return attempt < job.attempt or (record is not None and record.exit is not None and record.exit.lost)
