"""Finds and finishes what a lost message, a killed process or a lost node left undone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

import redis
import structlog
from attrs import define, field
from pymongo.errors import PyMongoError
from redis import RedisError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport
from gateway.dispatch.dispatcher import CLOCK_MARGIN, START_SECONDS
from gateway.dispatch.fair_queue import FairQueue, NodeChoice, configured_projects
from gateway.dispatch.why_jobs_wait import PASSING, why_waits
from gateway.jobs import messages
from gateway.jobs.completion import Completion
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.messages import EventPublisher, Waker, about
from gateway.jobs.outcome import CANCELLED
from gateway.jobs.queries import JobSweeps, LiveAttempt
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import CANCEL_SECONDS, JobStore
from gateway.logs.store import LogStore
from gateway.nodes.health import NodeHealth, NodeWatch
from gateway.nodes.holds import Held, Holder, HoldStore
from gateway.nodes.store import Node, NodeStore
from gateway.projects.environment import ProjectStore

# --- compares what should run with what the nodes report and with the holds; acts only on the differences

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
#: While nothing is held, only one of this many looks asks which attempts should run.
ASK_EVERY = 8
#: Time between two deletions of unheld resources: the next crawl of the same user will soon hold them again.
FORGET_AFTER = timedelta(minutes=1)
NEVER_YET = datetime.fromtimestamp(0, UTC)
#: How many differences of one kind are handled at once; the next look comes some seconds later.
BATCH = 500


class _Absence(NamedTuple):
    heartbeat_at: datetime
    heartbeats: int


@define(eq=False, repr=False, slots=False, kw_only=True)
class Reconciliation:
    """Runs in a beat. It needs two queries to MongoDB for any number of nodes and crawls, and one or two more if
    something differs. Only workers call nodes.
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
    _forgot_at: datetime = field(init=False, default=NEVER_YET)
    #: How many looks in a row found nothing held.
    _unasked: int = field(init=False, default=-1)
    _health: NodeHealth = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._health = NodeHealth(self._nodes, self._clock)

    def run(self, nodes: Sequence[Node], dead: Collection[str], held: Sequence[Held]) -> None:
        """`nodes` and `held` were read just now, in any order. `dead` has the names of the nodes that were watched
        for long enough to know that they are dead.
        """
        live = self._live(held)
        by_name = {node.id: node for node in nodes}
        self._see_to(self._missing(live, by_name, dead), by_name, dead)
        self._end_superseded(live, [node for node in nodes if node.id not in dead])
        self._free_leaked(live, held)
        self._look_after_failing(live, nodes, dead)

    def _live(self, held: Sequence[Held]) -> list[LiveAttempt]:
        """Every live attempt holds something. So if nothing is held, this asks only now and then, to be sure."""
        self._unasked = 0 if any(one.holders for one in held) else self._unasked + 1
        return self._sweeps.live_attempts() if self._unasked % ASK_EVERY == 0 else []

    # --- attempts that should run and are missing

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
            # the attempt may have ended since it was found missing
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
        try:
            self._completion.conclude(job.id)
        except RedisError as error:
            log.warning("conclude_failed", job_id=job.id, error=str(error))

    # --- attempts that run and should not

    def _end_superseded(self, live: Iterable[LiveAttempt], nodes: Iterable[Node]) -> None:
        """Stop live attempts whose job has gone on without them or no longer exists."""
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
                self._waker.wake(messages.STOP_ATTEMPT, node.id, project, str(attempt_id))

    # --- holds that are no longer needed

    def _free_leaked(self, live: Iterable[LiveAttempt], all_held: Iterable[Held]) -> None:
        """Free the holds of attempts that do not live, and forget resources without a holder."""
        nodes = {str(one.id): one.node for one in live}
        empty: list[str] = []
        for held in all_held:
            if not held.holders:
                empty.append(held.resource)
            for holder in held.holders:
                if not _needs(held, nodes.get(holder.attempt)):
                    self._free_if_over(held, holder)
        # not those of nodes: they will soon be held again
        unused = [resource for resource in empty if not resource.startswith("node:")]
        if unused and self._clock() - self._forgot_at >= FORGET_AFTER:
            self._forgot_at = self._clock()
            self._holds.forget(unused[:BATCH])

    def _free_if_over(self, held: Held, holder: Holder) -> None:
        """Free a hold only if its attempt certainly does not run and never will: see the rule in `nodes/holds.py`."""
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
            # another process was quicker: the next look decides
            return
        log.info("hold_freed", resource=held.resource, attempt=holder.attempt)
        self._holds.free(holder.attempt, [held.resource])
        if held.resource == job.exclusive and (admitted := self._completion.admit(held.resource)):
            self._waker.wake_job(admitted)

    # --- nodes that have failed

    def _look_after_failing(self, live: Sequence[LiveAttempt], nodes: Sequence[Node], dead: Collection[str]) -> None:
        failing = {node.id: node for node in nodes if (node.failures or node.is_resting) and node.id not in dead}
        if not failing:
            return
        self._forgive_if_well(failing, [one for one in live if one.node in failing and one.is_running])
        for name in failing:
            self._waker.wake(messages.PROBE_NODE, name)

    def _forgive_if_well(self, failing: Mapping[str, Node], live: Sequence[LiveAttempt]) -> None:
        """A running crawl proves that the node can run crawls, because a crawl that it cannot run dies at once."""
        # those on probation prove the most, and all nodes may be failing
        first = sorted(live, key=lambda one: str(one.id) != failing[one.node].trial)[:BATCH]
        for job in self._sweeps.jobs(one.id.job_id for one in first).values():
            node = failing.get(job.current.node) if job.current else None
            if node and node.failures and job.current and self._runs(job, job.current, node):
                self._health.succeeded(node.id, job.current.dispatched_at)

    @staticmethod
    def _runs(job: Job, attempt: Attempt, node: Node) -> bool:
        if job.progress is not None and job.progress.completed_pages > 0:
            return True
        alive = str(AttemptId(job.id, attempt.attempt)) in node.alive
        return alive and node.heartbeat_at - attempt.dispatched_at > RUNS_AFTER


def _needs(held: Held, node: str | None) -> bool:
    """Whether an attempt on this node needs this hold; `None`: the attempt lives on no node."""
    if node is None:
        return False
    kind, _, name = held.resource.partition(":")
    return kind not in {"node", "browser"} or name == node


def _lives(job: Job, attempt: AttemptId, held: Held) -> bool:
    if job.assignment is not None and job.assignment.attempt == attempt.attempt:
        return _needs(held, job.assignment.node)
    current = job.current
    if current is None or current.attempt != attempt.attempt:
        return False
    if job.status is JobStatus.PAUSED:
        # it has no slot any more, and keeps its site
        return held.resource == job.exclusive
    if job.status is not JobStatus.RUNNING:
        return False
    return _needs(held, current.node)


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


# --- the sweeper: it finds within seconds what a lost message or a killed process left undone

#: How many jobs one sweep handles; the next sweep comes a moment later.
SWEEP_BATCH = 200
#: Seconds between two looks at the jobs that wait and at what runs on the nodes.
RECONCILE_SECONDS = 2.5
#: Seconds between two deletions of data whose retention has ended.
RETENTION_SECONDS = 60.0
#: Seconds after which a job that raised an error is looked at again.
LATER_SECONDS = 5.0


class Upcoming(NamedTuple):
    """What will be due before the next sweep."""

    #: When the next job must be looked at; `None` if there is none.
    next_at: datetime | None
    #: When the first job that waits for its start time is due; it may lie in the past.
    scheduled_at: datetime | None
    #: Whether `scheduled_at` is certain.
    is_certain: bool


@define(eq=False, repr=False, slots=False, kw_only=True)
class Sweeper:
    _jobs: JobStore
    _queue: JobQueue
    _sweeps: JobSweeps
    _nodes: NodeStore
    _completion: Completion
    _holds: HoldStore
    _fair: FairQueue
    _projects: ProjectStore
    _reconciliation: Reconciliation
    _publisher: EventPublisher
    _waker: Waker
    _dead_after: timedelta
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _watch: NodeWatch = field(init=False)
    _reconcile_at: float = field(init=False, default=float("-inf"))
    _removed_at: float = field(init=False, default=float("-inf"))
    #: Where the next look at the waiting jobs goes on.
    _explained: str = field(init=False, default="")
    _blocked_for: str = field(init=False, default="")

    def __attrs_post_init__(self) -> None:
        self._watch = NodeWatch(self._dead_after, self._monotonic)

    def sweep(self, ahead: timedelta = timedelta()) -> Upcoming:
        """Handle everything that is due, and return what becomes due within the time `ahead`. The sweep itself
        decides on attempts and settles jobs, so that this needs no broker.
        """
        now = self._clock()
        found = self._jobs.to_attend(now + ahead, SWEEP_BATCH)
        upcoming = _upcoming(found, now)
        self._attend([job for job in found if job.attend_at is not None and job.attend_at <= now])
        if self._monotonic() >= self._reconcile_at:
            # set first, so that it also holds if the reconciliation fails
            self._reconcile_at = self._monotonic() + RECONCILE_SECONDS
            self._reconcile()
        return upcoming

    def _attend(self, due: Sequence[Job]) -> None:
        """Handle all jobs whose `attend_at` has come."""
        needs_worker = False
        for job in due:
            try:
                needs_worker |= self._attend_to(job)
            except (PyMongoError, redis.RedisError):
                raise
            except Exception:
                log.exception("sweep_step_failed", job_id=job.id)
                self._jobs.attend_later(job.id, LATER_SECONDS)
        if needs_worker:
            self._waker.wake(messages.SEE_TO_OVERDUE)

    def _attend_to(self, job: Job) -> bool:
        """Whether a worker is needed."""
        if job.is_final or (job.current and job.current.exit and job.status is JobStatus.RUNNING):
            with about(job):
                self._completion.conclude_job(job)
            return False
        if job.assignment is not None:
            return True
        if job.status is JobStatus.RUNNING and job.stop_reason:
            self._waker.wake(messages.CANCEL_CRAWL, job.id)
            self._jobs.attend_later(job.id, CANCEL_SECONDS)
        elif job.stop_reason == "cancel":
            self._completion.end_waiting(job, CANCELLED)
        elif job.status is JobStatus.PAUSED:
            self._completion.look_at_paused(job)
        elif job.stop_reason == "pause":
            self._completion.pause(job)
        else:
            return self._waits_no_longer(job)
        return False

    def _waits_no_longer(self, job: Job) -> bool:
        if job.status is JobStatus.PENDING and not job.blocked:
            return True
        if job.status is not JobStatus.SCHEDULED or job.held is not None:
            self._jobs.attended(job)
        elif (ahead := (job.not_before - self._clock()).total_seconds()) > 0:
            # the job could not be read for a time
            self._jobs.attend_later(job.id, ahead)
        # otherwise its start time has come, and the tick promotes it
        return False

    def _reconcile(self) -> None:
        held = self._holds.all()
        nodes = self._nodes.all(held=held)
        dead = {node.id for node in nodes if self._watch.is_dead(node)}
        self._reconciliation.run(nodes, dead, held)
        if rests := [node.rest_until for node in nodes if node.rest_until]:
            # when the rest is over, the node is asked whether it works
            left = (min(rests) - self._clock()).total_seconds()
            self._reconcile_at = min(self._reconcile_at, self._monotonic() + max(1.0, left))
        if self._queue.is_anybody_pending():
            self._see_to_waiting(nodes)
        if self._monotonic() - self._removed_at >= RETENTION_SECONDS:
            self._removed_at = self._monotonic()
            self._waker.wake(messages.REMOVE_EXPIRED)

    def _see_to_waiting(self, nodes: list[Node]) -> None:
        self._admit_blocked()
        if not self._queue.is_empty():
            configured = configured_projects(self._projects, nodes)
            choice = NodeChoice(nodes, self._clock(), self._dead_after, configured)
            self._explain_hindered(choice)
            if (capacity := choice.capacity()) is not None and self._fair.candidate(capacity) is not None:
                self._waker.wake(messages.ENQUEUE_CRAWL)

    def _admit_blocked(self) -> None:
        """Unblock jobs whose resource is free: the process that freed it may have died before it could do so."""
        resources = self._queue.blocked_for(SWEEP_BATCH, self._blocked_for)
        # continue there next time, so that every resource gets its turn
        self._blocked_for = resources[-1] if resources else ""
        for resource in self._holds.free_of(resources) if resources else ():
            if admitted := self._completion.admit(resource):
                self._waker.wake_job(admitted)

    def _explain_hindered(self, choice: NodeChoice) -> None:
        """Jobs that still wait may now wait for another reason: record and publish that."""
        hindered = self._queue.hindered(PASSING, SWEEP_BATCH, self._explained)
        self._explained = hindered[-1].job_id if len(hindered) == SWEEP_BATCH else ""
        full, of_nodes = self._fair.full() if hindered else set(), cache(choice.reason)
        reasons = {
            one.job_id: why_waits(one.partition.user_id, of_nodes(one.partition.requirements), full)
            for one in hindered
        }
        changed = {
            one.job_id: reason for one in hindered if (reason := reasons[one.job_id]) and reason is not one.reason
        }
        for waiting in self._queue.note_waiting(changed) if changed else ():
            self._publisher.status(waiting)


def _upcoming(found: Sequence[Job], now: datetime) -> Upcoming:
    scheduled = next((job.attend_at for job in found if job.status is JobStatus.SCHEDULED and job.held is None), None)
    later = next((job.attend_at for job in found if job.attend_at is not None and job.attend_at > now), None)
    return Upcoming(later, scheduled, is_certain=scheduled is not None or len(found) < SWEEP_BATCH)
