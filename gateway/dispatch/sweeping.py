"""The sweep: it finds within seconds what a lost message, a killed process or a lost node left undone, and does it or
wakes a worker for it.

A beat takes each step of it in a thread of its own. No step needs the broker, and none needs another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import cache, partial
from typing import NamedTuple

from attrs import define, field

from gateway.clock import Clock, utc_now
from gateway.dispatch.fair_queue import FairQueue, NodeChoice, configured_projects
from gateway.dispatch.reconciliation import Reconciliation
from gateway.dispatch.steps import Isolation, Shared, Step, Steps
from gateway.dispatch.why_jobs_wait import PASSING, why_waits
from gateway.jobs import messages
from gateway.jobs.completion import Completion
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.jobs.messages import EventPublisher, Waker, about
from gateway.jobs.outcome import CANCELLED
from gateway.jobs.queries import JobSweeps, LiveAttempt
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import CANCEL_SECONDS, JobStore
from gateway.nodes.health import NodeWatch
from gateway.nodes.holds import Held, HoldStore
from gateway.nodes.store import Node, NodeStore
from gateway.projects.environment import ProjectStore

#: How many jobs that wait one run of a step reads.
SWEEP_BATCH = 200
#: How many jobs to decide on one run reads, one after the other, as long as it has time.
DECIDED = 1000
#: Seconds between two looks at the jobs that wait and at what runs on the nodes.
RECONCILE_SECONDS = 2.5
#: Seconds between two deletions of data whose retention has ended.
RETENTION_SECONDS = 60.0
#: Time between two deletions of unheld resources: the next crawl of the same user will soon hold them again.
FORGET_SECONDS = 60.0


class _Nodes(NamedTuple):
    all: list[Node]
    #: Names of those that were watched for long enough to know that they are dead.
    dead: Collection[str]

    @property
    def others(self) -> list[Node]:
        return [node for node in self.all if node.id not in self.dead]


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
    #: Carries the steps out. Default: threads of its own.
    _threads: Executor | None = None
    #: When the next job needs a worker, as far as that is known.
    next_at: datetime | None = field(init=False, default=None)
    _ahead: timedelta = field(init=False, default=timedelta())
    _watch: NodeWatch = field(init=False)
    _steps: Steps = field(init=False)
    _to_decide: Isolation = field(init=False)
    _blocked: Isolation = field(init=False)
    _explained: Isolation = field(init=False)
    # where the next look at the waiting jobs goes on
    _explained_to: str = field(init=False, default="")
    _blocked_for: str = field(init=False, default="")
    _seen_nodes: Shared[_Nodes] = field(init=False)
    _seen_holds: Shared[list[Held]] = field(init=False)
    _seen_live: Shared[list[LiveAttempt]] = field(init=False)
    _seen_choice: Shared[NodeChoice | None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = NodeWatch(self._dead_after, self._monotonic)
        self._to_decide = Isolation("job", self._clock)
        self._blocked = Isolation("exclusive resource", self._clock)
        self._explained = Isolation("waiting job", self._clock)
        self._seen_nodes = Shared(self._read_nodes, self._monotonic)
        self._seen_holds = Shared(self._holds.all, self._monotonic)
        self._seen_live = Shared(self._sweeps.live_attempts, self._monotonic)
        self._seen_choice = Shared(self._read_choice, self._monotonic)
        often = partial(Step, every=RECONCILE_SECONDS)
        steps = (
            Step("decide", self._decide),
            Step("wake_workers", self._wake_workers),
            often("missing_attempts", self._see_to_missing),
            often("superseded_attempts", self._end_superseded),
            often("leaked_holds", self._free_leaked),
            often("failing_nodes", self._look_after_failing),
            often("blocked_jobs", self._admit_blocked),
            often("hindered_jobs", self._explain_hindered),
            often("idle_slots", self._wake_for_idle_slots),
            Step("unused_holds", self._forget_unused, every=FORGET_SECONDS),
            Step("retention", lambda: self._waker.wake(messages.REMOVE_EXPIRED), every=RETENTION_SECONDS),
        )
        self._steps = Steps(steps, self._threads, self._monotonic)

    def sweep(self, ahead: timedelta = timedelta()) -> None:
        """Begin all steps that are due; waits for none. `next_at` tells later what becomes due within `ahead`."""
        self.next_at, self._ahead = None, ahead
        self._steps.begin()

    def close(self) -> None:
        self._steps.close()

    # --- jobs whose `attend_at` has come

    def _decide(self) -> None:
        """Decide on ended attempts, settle ended jobs, carry out what was asked for: none of it needs a worker."""
        due = self._jobs.to_attend(self._clock(), DECIDED, self._to_decide.late)
        self._to_decide.each(((job.id, job) for job in due), self._attend_to, self._jobs.attended)

    def _wake_workers(self) -> None:
        """A hint, for workers that do not look by themselves."""
        now = self._clock()
        first = self._jobs.first_for_worker(now + self._ahead)
        if first is not None and first <= now:
            self._waker.wake(messages.SEE_TO_OVERDUE)
        else:
            self.next_at = first

    def _attend_to(self, job: Job) -> None:
        if job.is_final or (job.current and job.current.exit and job.status is JobStatus.RUNNING):
            with about(job):
                self._completion.conclude_job(job)
        elif job.status is JobStatus.RUNNING and job.stop_reason:
            self._waker.wake(messages.CANCEL_CRAWL, job.id)
            self._jobs.attended(job, CANCEL_SECONDS)
        elif job.stop_reason == "cancel":
            self._completion.end_waiting(job, CANCELLED)
        elif job.status is JobStatus.PAUSED:
            self._completion.look_at_paused(job)
        elif job.stop_reason == "pause":
            self._completion.pause(job)
        elif job.status is JobStatus.SCHEDULED and job.held is None:
            # its start time is still to come: the job could not be read for a time
            self._jobs.attended(job, (job.not_before - self._clock()).total_seconds())
        else:
            self._jobs.attended(job)

    # --- what runs on the nodes, and what is held

    def _read_nodes(self) -> _Nodes:
        # their slots have no part in this
        nodes = self._nodes.all(held=())
        return _Nodes(nodes, {node.id for node in nodes if self._watch.is_dead(node)})

    def _see_to_missing(self) -> None:
        nodes = self._seen_nodes()
        self._reconciliation.see_to_missing(self._seen_live(), nodes.all, nodes.dead)

    def _end_superseded(self) -> None:
        self._reconciliation.end_superseded(self._seen_live(), self._seen_nodes().others)

    def _free_leaked(self) -> None:
        self._reconciliation.free_leaked(self._seen_live(), self._seen_holds())

    def _forget_unused(self) -> None:
        self._reconciliation.forget_unused(self._seen_holds())

    def _look_after_failing(self) -> float | None:
        nodes = self._seen_nodes()
        self._reconciliation.look_after_failing(self._seen_live(), nodes.others)
        rests = [node.rest_until for node in nodes.all if node.rest_until]
        # when the rest is over, the node is asked whether it works
        return max(1.0, (min(rests) - self._clock()).total_seconds()) if rests else None

    # --- jobs that wait

    def _admit_blocked(self) -> None:
        """Unblock jobs whose resource is free: the process that freed it may have died before it could do so."""
        resources = self._queue.blocked_for(SWEEP_BATCH, self._blocked_for)
        # continue there next time, so that every resource gets its turn
        self._blocked_for = resources[-1] if resources else ""
        free = self._blocked.turn({one: one for one in self._holds.free_of(resources)} if resources else {})
        self._blocked.each(free.items(), self._admit)

    def _admit(self, resource: str) -> None:
        if admitted := self._completion.admit(resource):
            self._waker.wake_job(admitted)

    def _read_choice(self) -> NodeChoice | None:
        """`None` if no job waits for a slot."""
        if self._queue.is_empty():
            return None
        nodes = self._nodes.all(attempts=False)
        return NodeChoice(nodes, self._clock(), self._dead_after, configured_projects(self._projects, nodes))

    def _wake_for_idle_slots(self) -> None:
        choice = self._seen_choice()
        if choice and (capacity := choice.capacity()) and self._fair.candidate(capacity) is not None:
            self._waker.wake(messages.ENQUEUE_CRAWL)

    def _explain_hindered(self) -> None:
        """Jobs that still wait may now wait for another reason: record and publish that."""
        if (choice := self._seen_choice()) is None:
            return
        hindered = self._queue.hindered(PASSING, SWEEP_BATCH, self._explained_to)
        self._explained_to = hindered[-1].job_id if len(hindered) == SWEEP_BATCH else ""
        full, of_nodes = self._fair.full() if hindered else set(), cache(choice.reason)
        changed: dict[str, tuple[str, WaitingReason]] = {}
        for one in hindered:
            reason = why_waits(one.partition.user_id, of_nodes(one.partition.requirements), full)
            if reason and reason is not one.reason:
                changed[one.job_id] = one.job_id, reason
        self._explained.each(self._explained.turn(changed).items(), self._explain)

    def _explain(self, change: tuple[str, WaitingReason]) -> None:
        job_id, reason = change
        for waiting in self._queue.note_waiting({job_id: reason}):
            self._publisher.status(waiting)
