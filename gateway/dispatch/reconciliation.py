"""Compares what should run with what the nodes report and with the holds; acts only on the differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from attrs import define, field

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport
from gateway.dispatch.dispatcher import CLOCK_MARGIN, START_SECONDS
from gateway.dispatch.steps import BATCH, Isolation
from gateway.jobs import messages
from gateway.jobs.completion import Completion
from gateway.jobs.job import FINAL_STATUSES, Attempt, Job, JobStatus
from gateway.jobs.messages import Waker
from gateway.jobs.queries import JobSweeps, JobWithHolds, LiveAttempt
from gateway.jobs.queue import JobQueue
from gateway.logs.store import LogStore
from gateway.nodes.health import NodeHealth
from gateway.nodes.holds import Held, HoldStore
from gateway.nodes.store import Node, NodeStore

log = structlog.get_logger()

#: An accepted attempt that shows no sign of life for this long is posted again.
SILENCE = timedelta(seconds=5)
#: A node that has accepted an attempt and not started it within this time never starts it.
NEVER = timedelta(seconds=START_SECONDS) + CLOCK_MARGIN
#: An attempt that has lived for this long counts as running.
RUNS_AFTER = timedelta(seconds=10)
#: An attempt counts as gone if this many heartbeats, all begun after its start, do not contain it.
ABSENT_HEARTBEATS = 3
#: A worker takes holds and assigns within moments. After this time it has died, or must not assign any more.
TAKEN_FOR = timedelta(seconds=15)


class _Absence(NamedTuple):
    heartbeat_at: datetime
    heartbeats: int


@define(eq=False, repr=False, slots=False, kw_only=True)
class Reconciliation:
    """Runs in a beat. For any number of nodes and crawls each part needs one or two queries to MongoDB if something
    differs. Only workers call nodes.
    """

    _sweeps: JobSweeps
    _queue: JobQueue
    _holds: HoldStore
    _nodes: NodeStore
    _logs: LogStore
    _completion: Completion
    _waker: Waker
    _clock: Clock = utc_now
    _absences: dict[AttemptId, _Absence] = field(init=False, factory=dict)
    _health: NodeHealth = field(init=False)
    _missing: Isolation = field(init=False)
    _strays: Isolation = field(init=False)
    _leaked: Isolation = field(init=False)
    _failing: Isolation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._health = NodeHealth(self._nodes, self._clock)
        self._missing = Isolation("missing attempt", self._clock)
        self._strays = Isolation("superseded attempt", self._clock)
        self._leaked = Isolation("hold", self._clock)
        self._failing = Isolation("crawl on a node that has failed", self._clock)

    # --- attempts that should run and are missing

    def see_to_missing(self, live: Iterable[LiveAttempt], nodes: Sequence[Node], dead: Collection[str]) -> None:
        """`dead` has the names of the nodes that were watched for long enough to know that they are dead."""
        by_name = {node.id: node for node in nodes}
        there = {node.id: {*node.present, *node.alive} for node in nodes}
        running = [one for one in live if one.is_running]
        missing = {
            str(one.id): one.id for one in running if one.node in dead or str(one.id) not in there.get(one.node, ())
        }
        self._absences = {name: self._absences[name] for name in missing.values() if name in self._absences}
        turn = self._missing.turn(missing)
        jobs = self._sweeps.jobs(attempt.job_id for attempt in turn.values())
        self._missing.each(turn.items(), lambda one: self._see_to(one, jobs.get(one.job_id), by_name, dead))

    def _see_to(
        self, attempt_id: AttemptId, job: Job | None, nodes: Mapping[str, Node], dead: Collection[str]
    ) -> None:
        attempt = job.current if job else None
        # the attempt may have ended since it was found missing
        if job is None or attempt is None or attempt.attempt != attempt_id.attempt or attempt.exit is not None:
            return
        node = nodes.get(attempt.node)
        if node is not None and node.id in dead:
            self._declare_lost(job, f"node {node.id} has not been heard of since {node.heartbeat_at:%H:%M:%S} UTC")
        elif node is not None:
            self._check(job, attempt, node)

    def _check(self, job: Job, attempt: Attempt, node: Node) -> None:
        since = self._clock() - attempt.dispatched_at
        if (attempt.started_at is not None or since > NEVER) and self._is_gone(job, attempt, node):
            what = (
                "its files have disappeared from"
                if attempt.started_at
                else "it was accepted, but it never arrived at"
            )
            self._declare_lost(job, f"{what} node {node.id}")
        elif attempt.started_at is None and since > SILENCE and not node.is_resting:
            self._waker.wake(messages.POST_AGAIN, job.id)

    def _is_gone(self, job: Job, attempt: Attempt, node: Node) -> bool:
        """Whether the tailer does not know the attempt, although it should have started by now and has not ended: its
        folder was removed or never existed.
        """
        attempt_id = AttemptId(job.id, attempt.attempt)
        # the time of its start is not used, because it comes from the node's clock
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
        self._completion.conclude(job.id)

    # --- attempts that run and should not

    def end_superseded(self, live: Iterable[LiveAttempt], nodes: Iterable[Node]) -> None:
        """Stop attempts on these nodes whose job has gone on without them or no longer exists."""
        wanted = {str(one.id) for one in live}
        turn = self._strays.turn(
            {
                f"{name} {node.id}": (attempt_id, node)
                for node in nodes
                for name in node.alive
                if name not in wanted and (attempt_id := AttemptId.parse(name))
            }
        )
        if not turn:
            return
        job_ids = {attempt_id.job_id for attempt_id, _ in turn.values()}
        jobs, there = self._sweeps.jobs(job_ids), self._sweeps.existing(job_ids)
        self._strays.each(turn.items(), lambda one: self._stop(*one, jobs, there))

    def _stop(self, attempt_id: AttemptId, node: Node, jobs: Mapping[str, Job], there: Collection[str]) -> None:
        for project in _projects(attempt_id, node, jobs, there):
            log.warning("superseded_attempt", job_id=attempt_id.job_id, attempt=attempt_id.attempt, node=node.id)
            self._waker.wake(messages.STOP_ATTEMPT, node.id, project, str(attempt_id))

    # --- holds that are no longer needed

    def free_leaked(self, live: Iterable[LiveAttempt], all_held: Iterable[Held]) -> None:
        """Free the holds of attempts that do not live."""
        nodes, before = {str(one.id): one.node for one in live}, self._clock() - TAKEN_FOR
        unneeded: defaultdict[str, list[str]] = defaultdict(list)
        for held in all_held:
            for holder in held.holders:
                if holder.at <= before and not _needs(held.resource, nodes.get(holder.attempt)):
                    unneeded[holder.attempt].append(held.resource)
        turn = self._leaked.turn(unneeded)
        jobs = self._sweeps.with_holds(attempt.job_id for attempt in map(AttemptId.parse, turn) if attempt)
        self._leaked.each(((name, name) for name in turn), lambda name: self._free_if_over(name, turn[name], jobs))

    def _free_if_over(self, name: str, resources: Sequence[str], jobs: Mapping[str, JobWithHolds | None]) -> None:
        """Free them only if the attempt certainly does not run and never will: see the rule in `nodes/holds.py`."""
        attempt = AttemptId.parse(name)
        if attempt is None or attempt.job_id not in jobs:
            self._holds.free(name, resources)
            return
        job = jobs[attempt.job_id]
        over = [one for one in resources if job and not _lives(job, attempt.attempt, one)]
        if job is None or not over:
            return
        is_to_come = attempt.attempt > job.attempt and job.status not in FINAL_STATUSES
        if is_to_come and not self._queue.use_up(attempt.job_id, attempt.attempt):
            # another process was quicker: the next look decides
            return
        log.info("holds_freed", resources=over, attempt=name)
        self._holds.free(name, over)
        if job.exclusive in over and (admitted := self._completion.admit(job.exclusive)):
            self._waker.wake_job(admitted)

    def forget_unused(self, all_held: Iterable[Held]) -> None:
        """Forget resources without a holder, but not those of nodes: they will soon be held again."""
        unused = [one.resource for one in all_held if not one.holders and not one.resource.startswith("node:")]
        if unused:
            self._holds.forget(unused[:BATCH])

    # --- nodes that have failed

    def look_after_failing(self, live: Iterable[LiveAttempt], nodes: Iterable[Node]) -> None:
        """`nodes` without the dead ones."""
        failing = {node.id: node for node in nodes if node.failures or node.is_resting}
        for name in failing:
            self._waker.wake(messages.PROBE_NODE, name)
        of_failing = [one for one in live if one.node in failing and one.is_running]
        # those on probation prove the most, and all nodes may be failing
        first = sorted(of_failing, key=lambda one: str(one.id) != failing[one.node].trial)[:BATCH]
        jobs = self._sweeps.jobs(one.id.job_id for one in first) if first else {}
        self._failing.each(jobs.items(), lambda job: self._forgive_if_well(job, failing))

    def _forgive_if_well(self, job: Job, failing: Mapping[str, Node]) -> None:
        """A running crawl proves that the node can run crawls, because a crawl that it cannot run dies at once."""
        node = failing.get(job.current.node) if job.current else None
        if node and node.failures and job.current and _runs(job, job.current, node):
            self._health.succeeded(node.id, job.current.dispatched_at)


def _runs(job: Job, attempt: Attempt, node: Node) -> bool:
    if job.progress is not None and job.progress.completed_pages > 0:
        return True
    alive = str(AttemptId(job.id, attempt.attempt)) in node.alive
    return alive and node.heartbeat_at - attempt.dispatched_at > RUNS_AFTER


def _needs(resource: str, node: str | None) -> bool:
    """Whether an attempt on this node needs this hold; `None`: the attempt lives on no node."""
    if node is None:
        return False
    kind, _, name = resource.partition(":")
    return kind not in {"node", "browser"} or name == node


def _lives(job: JobWithHolds, attempt: int, resource: str) -> bool:
    if job.assigned is not None and job.assigned[0] == attempt:
        return _needs(resource, job.assigned[1])
    if job.attempt != attempt:
        return False
    if job.status is JobStatus.PAUSED:
        # it has no slot any more, and keeps its site
        return resource == job.exclusive
    return job.status is JobStatus.RUNNING and _needs(resource, job.node)


def _projects(attempt_id: AttemptId, node: Node, jobs: Mapping[str, Job], there: Collection[str]) -> list[str]:
    """The projects under which the node may run this superseded attempt; none if the attempt is still needed."""
    job = jobs.get(attempt_id.job_id)
    if job is not None:
        return [job.spec.project] if _is_superseded(job, attempt_id.attempt) else []
    if attempt_id.job_id in there:
        # the job cannot be read
        return []
    # the job was deleted, so it had ended on another node; this node was away for long and does not know that
    return sorted({DEFAULT_PROJECT, *(egg.project for egg in node.eggs)})


def _is_superseded(job: Job, attempt: int) -> bool:
    """A later attempt exists, or this one was given up for lost."""
    record = job.attempts.get(str(attempt))
    return attempt < job.attempt or (record is not None and record.exit is not None and record.exit.lost)
