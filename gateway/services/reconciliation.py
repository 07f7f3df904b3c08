"""Holds what should run against what the nodes say runs, and against what is held; acts on the differences alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import structlog
from redis import RedisError

from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import DEFAULT_PROJECT, Attempt, Job, JobStatus
from gateway.domain.node_files import AttemptId, ExitReport
from gateway.services.completion import Completion
from gateway.services.dispatch import CLOCK_MARGIN, START_SECONDS
from gateway.services.node_health import NodeHealth
from gateway.services.waker import POST_AGAIN, PROBE_NODE, STOP_ATTEMPT, Waker
from gateway.storage.holds import Held, Holder, HoldStore
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps, LiveAttempt
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
#: A worker takes holds and assigns within moments. One that has not by then has died, or must not do so any more.
TAKEN_FOR = timedelta(seconds=15)
#: Of so many looks at which nobody holds anything, one asks nevertheless who should run.
ASK_EVERY = 8
#: Between two times that what nobody holds is forgotten: the next crawl of the same user is about to hold it.
FORGET_AFTER = timedelta(minutes=1)
NEVER_YET = datetime.fromtimestamp(0, UTC)
#: Differences of a kind that are seen to in one go; the next go is two seconds away.
BATCH = 500


class _Absence(NamedTuple):
    heartbeat_at: datetime
    heartbeats: int


class Reconciliation:
    """For a beat. It asks MongoDB five times however many nodes and crawls there are, and once or twice more where
    something differs. Nodes are spoken to by workers.
    """

    def __init__(
        self,
        *,
        sweeps: JobSweeps,
        queue: JobQueue,
        holds: HoldStore,
        nodes: NodeStore,
        logs: LogStore,
        completion: Completion,
        waker: Waker,
        clock: Clock = utc_now,
    ) -> None:
        self._sweeps = sweeps
        self._queue = queue
        self._holds = holds
        self._logs = logs
        self._completion = completion
        self._waker = waker
        self._health = NodeHealth(nodes, clock)
        self._clock = clock
        self._absences: dict[AttemptId, _Absence] = {}
        self._forgot_at = NEVER_YET
        #: Looks in a row at which nobody held anything.
        self._unasked = -1

    def run(self, nodes: Sequence[Node], dead: Collection[str], held: Sequence[Held]) -> None:
        """`nodes` and what is `held` as they were read just now, in any order; `dead` are those that were watched for
        long enough to say so.
        """
        live = self._live(held)
        by_name = {node.id: node for node in nodes}
        self._see_to(self._missing(live, by_name, dead), by_name, dead)
        self._end_superseded(live, [node for node in nodes if node.id not in dead])
        self._free_leaked(live, held)
        self._look_after_failing(live, nodes, dead)

    def _live(self, held: Sequence[Held]) -> list[LiveAttempt]:
        """What lives holds something: where nobody does it is asked once in a while, to be sure."""
        self._unasked = 0 if any(one.holders for one in held) else self._unasked + 1
        return self._sweeps.live_attempts() if self._unasked % ASK_EVERY == 0 else []

    # --- what should run, and is not there

    def _missing(
        self, live: Iterable[LiveAttempt], nodes: Mapping[str, Node], dead: Collection[str]
    ) -> list[AttemptId]:
        there = {name: {*node.present, *node.alive} for name, node in nodes.items()}
        running = [one for one in live if one.is_running]
        missing = [one.id for one in running if one.node in dead or str(one.id) not in there.get(one.node, ())]
        self._absences = {attempt: self._absences[attempt] for attempt in missing if attempt in self._absences}
        return missing

    def _see_to(self, missing: Sequence[AttemptId], nodes: Mapping[str, Node], dead: Collection[str]) -> None:
        jobs = self._sweeps.jobs(attempt.job_id for attempt in missing[:BATCH])
        for attempt_id in missing[:BATCH]:
            job = jobs.get(attempt_id.job_id)
            attempt = job.current if job else None
            # it may have ended since it was found
            if job is None or attempt is None or attempt.attempt != attempt_id.attempt or attempt.exit is not None:
                continue
            node = nodes.get(attempt.node)
            if node is not None and node.id in dead:
                self._declare_lost(
                    job, f"node {node.id} has not been heard of since {node.heartbeat_at:%H:%M:%S} UTC"
                )
            elif node is not None:
                self._check(job, attempt, node)

    def _check(self, job: Job, attempt: Attempt, node: Node) -> None:
        since = self._clock() - attempt.dispatched_at
        if (attempt.started_at is not None or since > NEVER) and self._is_gone(job, attempt, node):
            what = "its files are gone from" if attempt.started_at else "it was accepted, and never came to,"
            self._declare_lost(job, f"{what} node {node.id}")
        elif attempt.started_at is None and since > SILENCE and not node.is_resting:
            self._waker.wake(POST_AGAIN, job.id)

    def _is_gone(self, job: Job, attempt: Attempt, node: Node) -> bool:
        """Unknown to the tailer, though it should have been started by now and has no end: its folder was taken away,
        or there was never one.
        """
        attempt_id = AttemptId(job.id, attempt.attempt)
        # not when it started, which is told by the node's clock
        began = max(node.beating_since, attempt.dispatched_at)
        if node.heartbeat_at <= began:
            self._absences.pop(attempt_id, None)
            return False
        absence = self._absences.get(attempt_id, _Absence(began, 0))
        if absence.heartbeat_at != node.heartbeat_at:
            absence = _Absence(node.heartbeat_at, absence.heartbeats + 1)
        self._absences[attempt_id] = absence
        return absence.heartbeats >= ABSENT_HEARTBEATS

    def _declare_lost(self, job: Job, message: str) -> None:
        log.warning("attempt_lost", job_id=job.id, attempt=job.attempt, reason=message)
        facts = ExitReport(attempt=job.attempt, ended_at=self._clock(), lost=True, log_tail=message)
        shipped = self._logs.end(job.id, job.attempt)
        self._completion.record_exit(AttemptId(job.id, job.attempt), facts, shipped)
        try:
            self._completion.conclude(job.id)
        except RedisError as error:
            log.warning("conclude_failed", job_id=job.id, error=str(error))

    # --- what runs, and should not

    def _end_superseded(self, live: Iterable[LiveAttempt], nodes: Iterable[Node]) -> None:
        """Attempts that are alive though their job has gone on without them, or is gone."""
        wanted = {str(one.id) for one in live}
        strays = [
            (node, attempt_id)
            for node in nodes
            for attempt_id in filter(None, map(AttemptId.parse, node.alive))
            if str(attempt_id) not in wanted
        ][:BATCH]
        if not strays:
            return
        job_ids = {attempt_id.job_id for _, attempt_id in strays}
        jobs, there = self._sweeps.jobs(job_ids), self._sweeps.existing(job_ids)
        for node, attempt_id in strays:
            for project in _projects(attempt_id, node, jobs, there):
                log.warning("superseded_attempt", job_id=attempt_id.job_id, attempt=attempt_id.attempt, node=node.id)
                self._waker.wake(STOP_ATTEMPT, node.id, project, str(attempt_id))

    # --- what is held, and need not be

    def _free_leaked(self, live: Iterable[LiveAttempt], all_held: Iterable[Held]) -> None:
        """Holds of attempts that do not live; and what nobody holds any more."""
        nodes = {str(one.id): one.node for one in live}
        empty: list[str] = []
        for held in all_held:
            if not held.holders:
                empty.append(held.resource)
            for holder in held.holders:
                if not _needs(held, nodes.get(holder.attempt)):
                    self._free_if_over(held, holder)
        # a node's is about to be taken again
        unused = [resource for resource in empty if not resource.startswith("node:")]
        if unused and self._clock() - self._forgot_at >= FORGET_AFTER:
            self._forgot_at = self._clock()
            self._holds.forget(unused[:BATCH])

    def _free_if_over(self, held: Held, holder: Holder) -> None:
        """Before a hold is freed it is certain that its attempt runs no more, and never will: see the rule."""
        if self._clock() - holder.at < TAKEN_FOR:
            return
        attempt = AttemptId.parse(holder.attempt)
        job = self._sweeps.jobs([attempt.job_id]).get(attempt.job_id) if attempt else None
        if attempt is None or (job is None and not self._sweeps.existing([attempt.job_id])):
            self._holds.free(holder.attempt, [held.resource])
            return
        if job is None or _lives(job, attempt, held):
            return
        if attempt.attempt > job.attempt and not job.is_final and not self._queue.use_up(job.id, attempt.attempt):
            # somebody was quicker: the next go knows more
            return
        log.info("hold_freed", resource=held.resource, attempt=holder.attempt)
        self._holds.free(holder.attempt, [held.resource])
        if held.resource == job.exclusive and (admitted := self._completion.admit(held.resource)):
            self._waker.wake_job(admitted)

    # --- nodes that have failed

    def _look_after_failing(self, live: Sequence[LiveAttempt], nodes: Sequence[Node], dead: Collection[str]) -> None:
        for node in nodes:
            if node.failures and node.id not in dead:
                self._forgive_if_well(node, [one for one in live if one.node == node.id and one.is_running])
            if (node.is_resting or node.failures) and node.id not in dead:
                self._waker.wake(PROBE_NODE, node.id)

    def _forgive_if_well(self, node: Node, live: Sequence[LiveAttempt]) -> None:
        """A crawl that runs leaves no doubt that the node can run crawls: what it cannot run dies at once."""
        for job in self._sweeps.jobs(one.id.job_id for one in live).values():
            if (attempt := job.current) and self._runs(job, attempt, node):
                self._health.succeeded(node.id, attempt.dispatched_at)

    @staticmethod
    def _runs(job: Job, attempt: Attempt, node: Node) -> bool:
        if job.progress is not None and job.progress.completed_pages > 0:
            return True
        alive = str(AttemptId(job.id, attempt.attempt)) in node.alive
        return alive and node.heartbeat_at - attempt.dispatched_at > RUNS_AFTER


def _needs(held: Held, node: str | None) -> bool:
    """Whether an attempt that lives on this node, or nowhere, needs what it holds."""
    if node is None:
        return False
    kind, _, name = held.resource.partition(":")
    return kind not in {"node", "browser"} or name == node


def _lives(job: Job, attempt: AttemptId, held: Held) -> bool:
    if job.assignment is not None and job.assignment.attempt == attempt.attempt:
        return _needs(held, job.assignment.node)
    current = job.current
    if job.status is not JobStatus.RUNNING or current is None or current.attempt != attempt.attempt:
        return False
    return _needs(held, current.node)


def _projects(attempt_id: AttemptId, node: Node, jobs: Mapping[str, Job], there: Collection[str]) -> list[str]:
    """Where to look for the attempt that nobody needs any more; nowhere, if somebody does."""
    job = jobs.get(attempt_id.job_id)
    if job is not None:
        return [job.spec.project] if _is_superseded(job, attempt_id.attempt) else []
    if attempt_id.job_id in there:
        # it cannot be read
        return []
    # deleted, so it had ended elsewhere; a node that was away for long knows nothing of it
    return sorted({DEFAULT_PROJECT, *(egg.project for egg in node.eggs)})


def _is_superseded(job: Job, attempt: int) -> bool:
    """A later attempt exists, or this one was given up for lost."""
    record = job.attempts.get(str(attempt))
    return attempt < job.attempt or (record is not None and record.exit is not None and record.exit.lost)
