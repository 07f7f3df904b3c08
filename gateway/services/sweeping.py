"""The safety net: whatever a lost message or a killed process left undone is found again within a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

import redis
import structlog
from pymongo.errors import PyMongoError

from gateway.correlation import about
from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Job, JobStatus, WaitingReason
from gateway.domain.outcome import CANCELLED
from gateway.services.announcer import Announcer
from gateway.services.completion import Completion
from gateway.services.fair_queue import FairQueue
from gateway.services.node_choice import NodeChoice
from gateway.services.node_watch import NodeWatch
from gateway.services.reconciliation import Reconciliation
from gateway.services.waker import CANCEL_CRAWL, ENQUEUE_CRAWL, REMOVE_EXPIRED, SEE_TO_OVERDUE, Waker
from gateway.storage.holds import HoldStore
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import CANCEL_SECONDS, JobStore
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: Jobs looked at in one sweep; the next one is a moment away.
BATCH = 200
#: Seconds between two looks at who waits, and at what runs on the nodes.
RECONCILE_SECONDS = 2.5
#: Seconds between two looks at what has been kept for long enough.
RETENTION_SECONDS = 60.0
#: Seconds after which a job that could not be helped is looked at again.
LATER_SECONDS = 5.0
#: What a job waits for that comes or goes without anybody looking at the job; a back-off ends by itself.
PASSING = (
    WaitingReason.CAPACITY,
    WaitingReason.NO_NODE,
    WaitingReason.NO_SUCH_PROJECT,
    WaitingReason.DISK_FULL,
    WaitingReason.USER_QUOTA,
    WaitingReason.BACKOFF,
)


class Upcoming(NamedTuple):
    """What comes before the next sweep does."""

    #: When some job must be looked at; `None` if none must.
    next_at: datetime | None
    #: When a job that waits for its time becomes due, or was;
    scheduled_at: datetime | None
    #: and whether that is certain.
    is_certain: bool


class Sweeper:
    def __init__(
        self,
        *,
        jobs: JobStore,
        queue: JobQueue,
        sweeps: JobSweeps,
        nodes: NodeStore,
        completion: Completion,
        holds: HoldStore,
        fair: FairQueue,
        reconciliation: Reconciliation,
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
        self._holds = holds
        self._fair = fair
        self._reconciliation = reconciliation
        self._announcer = announcer
        self._waker = waker
        self._dead_after = dead_after
        self._watch = NodeWatch(dead_after, monotonic)
        self._clock = clock
        self._monotonic = monotonic
        self._reconcile_at = self._removed_at = float("-inf")
        self._explained = self._blocked_for = ""

    def sweep(self, ahead: timedelta = timedelta()) -> Upcoming:
        """One look at everything, and at what comes within the time `ahead`. Decides and settles by itself, so that
        no broker is needed for that.
        """
        now = self._clock()
        found = self._jobs.to_attend(now + ahead, BATCH)
        upcoming = _upcoming(found, now)
        self._attend([job for job in found if job.attend_at is not None and job.attend_at <= now])
        if self._monotonic() >= self._reconcile_at:
            # also where it fails
            self._reconcile_at = self._monotonic() + RECONCILE_SECONDS
            self._reconcile()
        return upcoming

    def _attend(self, due: Sequence[Job]) -> None:
        """See to all jobs that somebody must look at."""
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
            self._waker.wake(SEE_TO_OVERDUE)

    def _attend_to(self, job: Job) -> bool:
        """Whether a worker is needed."""
        if job.is_final or (job.current and job.current.exit and job.status is JobStatus.RUNNING):
            with about(job):
                self._completion.conclude_job(job)
            return False
        if job.assignment is not None:
            return True
        if job.cancel_requested_at is None:
            return self._waits_no_longer(job)
        if job.status is JobStatus.RUNNING:
            self._waker.wake(CANCEL_CRAWL, job.id)
            self._jobs.attend_later(job.id, CANCEL_SECONDS)
        else:
            self._completion.end_waiting(job, CANCELLED)
        return False

    def _waits_no_longer(self, job: Job) -> bool:
        if job.status is JobStatus.PENDING and not job.blocked:
            return True
        if job.status is not JobStatus.SCHEDULED or job.held is not None:
            self._jobs.attended(job)
        elif (ahead := (job.not_before - self._clock()).total_seconds()) > 0:
            # it could not be read for a time
            self._jobs.attend_later(job.id, ahead)
        # else its time has come, and the tick sees to it
        return False

    def _could_start(self, nodes: list[Node]) -> bool:
        room = NodeChoice(nodes, self._clock(), self._dead_after).room()
        return room is not None and self._fair.candidate(room) is not None

    def _reconcile(self) -> None:
        held = self._holds.all()
        nodes = self._nodes.all(held=held)
        dead = {node.id for node in nodes if self._watch.is_dead(node)}
        self._reconciliation.run(nodes, dead, held)
        if rests := [node.rest_until for node in nodes if node.rest_until]:
            # to ask the node whether it is well
            left = (min(rests) - self._clock()).total_seconds()
            self._reconcile_at = min(self._reconcile_at, self._monotonic() + max(1.0, left))
        if self._queue.is_anybody_pending():
            self._see_to_waiting(nodes)
        if self._monotonic() - self._removed_at >= RETENTION_SECONDS:
            self._removed_at = self._monotonic()
            self._waker.wake(REMOVE_EXPIRED)

    def _see_to_waiting(self, nodes: list[Node]) -> None:
        self._admit_blocked()
        if not self._queue.is_empty():
            self._explain_hindered(NodeChoice(nodes, self._clock(), self._dead_after))
            if self._could_start(nodes):
                self._waker.wake(ENQUEUE_CRAWL)

    def _admit_blocked(self) -> None:
        """Make up for whoever freed what they wait for, and did not live to let them go."""
        resources = self._queue.blocked_for(BATCH, self._blocked_for)
        # it goes round, however many wait for one of them
        self._blocked_for = resources[-1] if resources else ""
        for resource in self._holds.free_of(resources) if resources else ():
            if admitted := self._completion.admit(resource):
                self._waker.wake_job(admitted)

    def _explain_hindered(self, choice: NodeChoice) -> None:
        """What jobs wait for may have changed though they still have to wait."""
        hindered = self._queue.hindered(PASSING, BATCH, self._explained)
        self._explained = hindered[-1].job_id if len(hindered) == BATCH else ""
        full, of_nodes = self._fair.full() if hindered else set(), cache(choice.reason)
        reasons = {one.job_id: self._fair.reason(one.lane.user_id, of_nodes(one.lane.need), full) for one in hindered}
        changed = {
            one.job_id: reason for one in hindered if (reason := reasons[one.job_id]) and reason is not one.reason
        }
        for waiting in self._queue.note_waiting(changed) if changed else ():
            self._announcer.status(waiting)


def _upcoming(found: Sequence[Job], now: datetime) -> Upcoming:
    scheduled = next((job.attend_at for job in found if job.status is JobStatus.SCHEDULED and job.held is None), None)
    later = next((job.attend_at for job in found if job.attend_at is not None and job.attend_at > now), None)
    return Upcoming(later, scheduled, is_certain=scheduled is not None or len(found) < BATCH)
