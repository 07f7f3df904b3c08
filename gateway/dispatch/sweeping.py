"""The sweep: within seconds, it finds and does the work that a lost message, a killed process or a lost node has left
undone.

A beat runs each of the sweep's steps in a thread of its own. No step depends on another step, the broker, or a node:
only workers call nodes, and they find out by themselves which ones to call.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import partial

import structlog
from attrs import define, field

from gateway.clock import Clock, utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport
from gateway.dispatch.dispatcher import CLOCK_MARGIN, RECONCILE_SECONDS, START_SECONDS
from gateway.jobs.completion import Completion
from gateway.jobs.job import FINAL_STATUSES, Attempt, Job, JobStatus
from gateway.jobs.messages import about
from gateway.jobs.queries import JobSweeps, JobWithHolds, LiveAttempt
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import CANCEL_SECONDS, JobStore
from gateway.logs.store import LogStore
from gateway.nodes.health import NodeHealth, NodeWatch
from gateway.nodes.holds import Held, HoldStore
from gateway.nodes.store import Beat, Node, NodeStore
from gateway.repeated_work import BATCH, Isolation, Shared, Step, Steps

log = structlog.get_logger()

#: How many resources that blocked jobs wait for are read in one run of a step.
SWEEP_BATCH = 200
#: Maximum number of jobs that one run decides on. It handles one after the other, as long as it has time.
DECIDED = 1000
#: Seconds between two deletions of unheld resources. It is long, because a user's next crawl often holds them again.
FORGET_SECONDS = 60.0
#: If a node has accepted an attempt and not started it within this time, it never starts it.
NEVER = timedelta(seconds=START_SECONDS) + CLOCK_MARGIN
#: An attempt that has been alive for this long counts as running.
RUNS_AFTER = timedelta(seconds=10)
#: An attempt counts as gone if this many heartbeats of its node, all after its dispatch, do not contain it.
ABSENT_HEARTBEATS = 3
#: A worker takes holds and assigns jobs within moments. If a hold is older and its job is not assigned, the worker
#: has died, or is too late to assign it.
TAKEN_FOR = timedelta(seconds=15)


@define(eq=False, repr=False, slots=False, kw_only=True)
class Sweeper:
    """Runs the steps of the sweep. Each step needs only a few queries, however many nodes and crawls there are."""

    _jobs: JobStore
    _queue: JobQueue
    _sweeps: JobSweeps
    _nodes: NodeStore
    _completion: Completion
    _holds: HoldStore
    _logs: LogStore
    _dead_after: timedelta
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    #: Runs the steps; by default, threads of its own.
    _threads: Executor | None = None
    _watch: NodeWatch = field(init=False)
    _health: NodeHealth = field(init=False)
    _steps: Steps = field(init=False)
    #: By missing attempt: the times of the heartbeats that do not contain it.
    _absences: dict[AttemptId, set[datetime]] = field(init=False, factory=dict)
    #: The resource after which the next look at blocked jobs continues.
    _blocked_for: str = field(init=False, default="")
    #: The heartbeats of all nodes by name, and the names of the nodes that are known to be dead.
    _seen_nodes: Shared[tuple[Mapping[str, Beat], Collection[str]]] = field(init=False)
    _seen_holds: Shared[list[Held]] = field(init=False)
    _seen_live: Shared[list[LiveAttempt]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = NodeWatch(self._dead_after, self._monotonic)
        self._health = NodeHealth(self._nodes, self._clock)
        self._seen_nodes = Shared(self._read_nodes, self._monotonic)
        self._seen_holds = Shared(self._holds.all, self._monotonic)
        self._seen_live = Shared(self._sweeps.live_attempts, self._monotonic)
        often = partial(Step, every=RECONCILE_SECONDS)
        steps = (
            Step("decide", self._decide),
            often("missing_attempts", self.see_to_missing),
            often("leaked_holds", self.free_leaked),
            often("failing_nodes", self.forgive),
            often("blocked_jobs", self._admit_blocked),
            Step("unused_holds", self.forget_unused, every=FORGET_SECONDS),
        )
        self._steps = Steps(steps, self._threads, self._monotonic)

    def sweep(self) -> None:
        """Begin all steps that are due, without waiting for them."""
        self._steps.begin()

    def close(self) -> None:
        self._steps.close()

    def _read_nodes(self) -> tuple[Mapping[str, Beat], Collection[str]]:
        beats = {beat.id: beat for beat in self._nodes.beats()}
        # also nodes whose document cannot be read, or is gone: if they were alive, they would write it again
        names = beats.keys() | {one.node for one in self._seen_live()}
        heard = {name: beats[name].heartbeat_at if name in beats else None for name in names}
        return beats, {name for name, at in heard.items() if self._watch.is_dead(name, at)}

    # --- jobs whose `attend_at` has come

    def _decide(self, apart: Isolation) -> None:
        """Decide on ended attempts, settle ended jobs, and carry out cancellations and pauses of waiting jobs."""
        due = self._jobs.to_attend(self._clock(), DECIDED, apart.late)
        apart.each(((job.id, job) for job in due), self._attend_to)

    def _attend_to(self, job: Job) -> None:
        if job.is_final and job.settled:
            # nothing is left to do: the job could not be read for a time
            self._jobs.attended(job)
        elif job.is_final or (job.current and job.current.exit and job.status is JobStatus.RUNNING):
            with about(job):
                self._completion.conclude_job(job)
        elif job.needs_its_node:
            # only workers ask nodes, and none has asked this one in time
            self._jobs.attended(job, CANCEL_SECONDS)
        elif job.status is JobStatus.PAUSED and job.stop_reason != "cancel":
            self._completion.look_at_paused(job)
        elif job.stop_reason:
            self._completion.stop_waiting(job)
        elif job.status is JobStatus.SCHEDULED and job.held is None:
            # its start time has not come yet: the job could not be read for a time
            self._jobs.attended(job, (job.not_before - self._clock()).total_seconds())
        else:
            self._jobs.attended(job)

    def _admit_blocked(self, apart: Isolation) -> None:
        """Unblock jobs whose resource is free: the process that freed it may have died before it unblocked them."""
        resources = self._queue.blocked_for(SWEEP_BATCH, self._blocked_for)
        # continue there next time, so that every resource gets its turn
        self._blocked_for = resources[-1] if resources else ""
        free = self._holds.free_of(resources) if resources else ()
        apart.each(((one, one) for one in free), self._completion.admit)

    # --- attempts that should run and are missing

    def see_to_missing(self, apart: Isolation) -> None:
        nodes, dead = self._seen_nodes()
        there = {name: {*node.present, *node.alive} for name, node in nodes.items()}
        missing = {
            str(one.id): one.id
            for one in self._seen_live()
            if one.is_running and (one.node in dead or str(one.id) not in there.get(one.node, ()))
        }
        self._absences = {name: self._absences[name] for name in missing.values() if name in self._absences}
        turn = apart.turn(missing)
        jobs = self._sweeps.jobs(attempt.job_id for attempt in turn.values())
        apart.each(turn.items(), lambda one: self._see_to(one, jobs.get(one.job_id), nodes, dead))

    def _see_to(
        self, attempt_id: AttemptId, job: Job | None, nodes: Mapping[str, Beat], dead: Collection[str]
    ) -> None:
        attempt = job.current if job else None
        # the attempt may have ended since it was found missing
        if job is None or attempt is None or attempt.attempt != attempt_id.attempt or attempt.exit is not None:
            return
        node = nodes.get(attempt.node)
        if attempt.node in dead:
            since = f" since {node.heartbeat_at:%H:%M:%S} UTC" if node else ""
            self._declare_lost(job, f"node {attempt.node} has not been heard of{since}")
        elif node is not None and self._is_gone(attempt_id, attempt, node):
            never = "it was accepted, but never started on"
            what = "its files have disappeared from" if attempt.started_at else never
            self._declare_lost(job, f"{what} node {node.id}")

    def _is_gone(self, attempt_id: AttemptId, attempt: Attempt, node: Beat) -> bool:
        """Whether the attempt's folder was removed, or never existed: the node's tailer does not know the attempt,
        although it should have started by now and has not ended.
        """
        if attempt.started_at is None and self._clock() - attempt.dispatched_at <= NEVER:
            return False
        # the attempt's start time is not used, because it comes from the node's clock
        began = max(node.beating_since, attempt.dispatched_at)
        heartbeats = {*self._absences.get(attempt_id, ()), node.heartbeat_at}
        self._absences[attempt_id] = {at for at in heartbeats if at > began}
        return len(self._absences[attempt_id]) >= ABSENT_HEARTBEATS

    def _declare_lost(self, job: Job, message: str) -> None:
        log.warning("attempt_lost", job_id=job.id, attempt=job.attempt, reason=message)
        facts = ExitReport(attempt=job.attempt, ended_at=self._clock(), lost=True, log_tail=message)
        shipped = self._logs.end(job.id, job.attempt)
        self._completion.record_exit(AttemptId(job.id, job.attempt), facts, shipped)
        self._completion.conclude(job.id)

    # --- holds that are no longer needed

    def free_leaked(self, apart: Isolation) -> None:
        """Free the holds of attempts that are not alive."""
        nodes, before = {str(one.id): one.node for one in self._seen_live()}, self._clock() - TAKEN_FOR
        unneeded: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
        for held in self._seen_holds():
            for holder in held.holders:
                if holder.at <= before and not _needs(held.resource, nodes.get(holder.attempt)):
                    unneeded[holder.attempt][held.resource] = holder.at
        turn = apart.turn(unneeded)
        jobs = self._sweeps.with_holds(attempt.job_id for attempt in map(AttemptId.parse, turn) if attempt)
        apart.each(((name, name) for name in turn), lambda name: self._free_if_over(name, turn[name], jobs))

    def _free_if_over(
        self, name: str, resources: Mapping[str, datetime], jobs: Mapping[str, JobWithHolds | None]
    ) -> None:
        """Free the resources only if the attempt certainly does not run and never will: see `nodes/holds.py`."""
        attempt = AttemptId.parse(name)
        if attempt is None or attempt.job_id not in jobs:
            self._holds.free(name, resources)
            return
        job = jobs[attempt.job_id]
        if job is None:
            if self._has_left(name, resources):
                log.warning("holds_of_unreadable_job_freed", resources=list(resources), attempt=name)
                self._holds.free(name, resources)
            return
        over = [one for one in resources if not _lives(job, attempt.attempt, one)]
        if not over:
            return
        is_to_come = attempt.attempt > job.attempt and job.status not in FINAL_STATUSES
        if is_to_come and not self._queue.use_up(attempt.job_id, attempt.attempt):
            # another process was faster: the next run decides
            return
        log.info("holds_freed", resources=over, attempt=name)
        self._holds.free(name, over)
        if job.exclusive in over:
            self._completion.admit(job.exclusive)

    def _has_left(self, name: str, resources: Mapping[str, datetime]) -> bool:
        """Whether an attempt certainly has no process, and will have none. This is for attempts whose job cannot be
        read: their end cannot be recorded, so the node keeps their files, and the files prove nothing.
        """
        nodes, dead = self._seen_nodes()
        for resource, taken_at in resources.items():
            kind, _, node = resource.partition(":")
            if kind != "node" or node in dead:
                continue
            if (beat := nodes.get(node)) is None:
                return self._watch.is_dead(node, None)
            # a tailer that has just been started may not have seen all processes yet
            return name not in beat.alive and beat.heartbeat_at - max(taken_at, beat.beating_since) > NEVER
        return True

    def forget_unused(self, _apart: Isolation) -> None:
        """Delete the documents of resources without a holder, except nodes, which will soon be held again."""
        held = self._seen_holds()
        unused = [one.resource for one in held if not one.holders and not one.resource.startswith("node:")]
        if unused:
            self._holds.forget(unused[:BATCH])

    # --- nodes that have failed

    def forgive(self, apart: Isolation) -> None:
        """Record failing nodes as working if a crawl runs on them: a crawl that a node cannot run dies at once."""
        _, dead = self._seen_nodes()
        failing = {node.id: node for node in self._nodes.failing() if node.id not in dead}
        if not failing:
            return
        of_failing = [one for one in self._seen_live() if one.node in failing and one.is_running]
        # attempts on probation come first: they prove the most, and there may be more attempts than one batch holds
        first = sorted(of_failing, key=lambda one: str(one.id) != failing[one.node].trial)[:BATCH]
        jobs = self._sweeps.jobs(one.id.job_id for one in first)
        apart.each(jobs.items(), lambda job: self._forgive_if_well(job, failing))

    def _forgive_if_well(self, job: Job | None, failing: Mapping[str, Node]) -> None:
        attempt = job.current if job else None
        node = failing.get(attempt.node) if attempt else None
        if job and attempt and node and _runs(job, attempt, node):
            self._health.succeeded(node.id, attempt.dispatched_at)


def _runs(job: Job, attempt: Attempt, node: Node) -> bool:
    if job.progress is not None and job.progress.completed_pages > 0:
        return True
    alive = str(AttemptId(job.id, attempt.attempt)) in node.alive
    return alive and node.heartbeat_at - attempt.dispatched_at > RUNS_AFTER


def _needs(resource: str, node: str | None) -> bool:
    """Whether an attempt on this node needs this hold. `None`: the attempt is alive on no node."""
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
        # a paused job has given up its slot, and keeps its site
        return resource == job.exclusive
    return job.status is JobStatus.RUNNING and _needs(resource, job.node)
