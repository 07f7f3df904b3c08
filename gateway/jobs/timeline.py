"""The timeline of a job: when it was submitted, why it waited, its attempts, pauses, cancellation and end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from gateway.jobs.job import Attempt, Job, JobStatus, PastStep, StepKind, WaitingReason


class MomentKind(StrEnum):
    """What can happen to a job."""

    SUBMITTED = "submitted"
    #: It waits for its start time.
    SCHEDULED = "scheduled"
    #: It waits, for the `reason`.
    WAITING = "waiting"
    #: A node has accepted an attempt.
    DISPATCHED = "dispatched"
    #: The attempt's process has begun.
    STARTED = "started"
    #: The attempt is over, but perhaps not the job.
    ATTEMPT_ENDED = "attempt_ended"
    PAUSE_REQUESTED = "pause_requested"
    PAUSED = "paused"
    RESUMED = "resumed"
    CANCEL_REQUESTED = "cancel_requested"
    #: The job is over.
    ENDED = "ended"


class Moment(NamedTuple):
    """One entry of a timeline."""

    at: datetime
    kind: MomentKind
    #: The end of a state that lasts (`scheduled`, `waiting`, `started`, `paused`); `None` while it lasts.
    until: datetime | None = None
    attempt: int | None = None
    node: str | None = None
    #: Why the job waits; `None` if no worker has looked at it yet.
    reason: WaitingReason | None = None
    #: The status of the ended attempt, or of the ended job.
    status: JobStatus | None = None
    message: str | None = None
    #: The user who asked for it.
    by: str | None = None


#: The kinds of moments that end a wait or a pause.
_ENDS_A_WAIT = frozenset(
    {MomentKind.WAITING, MomentKind.DISPATCHED, MomentKind.PAUSED, MomentKind.RESUMED, MomentKind.ENDED}
)


def timeline(job: Job) -> list[Moment]:
    """The job's moments, the oldest first. For a job of an older release, which kept no history, only the last
    waiting reason is known.
    """
    due = _due(job)
    known = sorted(_known(job, due), key=lambda moment: moment.at)
    return [_lasting(moment, known[number + 1 :]) for number, moment in enumerate(known)]


def _known(job: Job, due: datetime) -> Iterator[Moment]:
    yield Moment(job.created_at, MomentKind.SUBMITTED, by=job.user_id)
    if due > job.created_at:
        ahead = job.status is JobStatus.SCHEDULED
        yield Moment(job.created_at, MomentKind.SCHEDULED, until=None if ahead else due)
    if job.status is not JobStatus.SCHEDULED:
        # the reason is not known until a worker has looked at the job
        yield Moment(due, MomentKind.WAITING)
    yield from map(_of_step, job.history)
    if job.waiting_reason and not any(step.kind is StepKind.WAITS for step in job.history):
        yield Moment(due, MomentKind.WAITING, reason=job.waiting_reason)
    for attempt in sorted(job.attempts.values(), key=lambda one: one.attempt):
        yield from _of_attempt(attempt)
    if job.cancel_requested_at and not any(step.kind is StepKind.CANCEL_REQUESTED for step in job.history):
        yield Moment(job.cancel_requested_at, MomentKind.CANCEL_REQUESTED)
    if job.finished_at:
        yield Moment(job.finished_at, MomentKind.ENDED, status=job.status, message=job.message)


def _due(job: Job) -> datetime:
    """The earliest time at which the job could have started. Later events may have changed `not_before`."""
    if job.slot:
        return max(job.created_at, job.slot.due)
    since = [step.at for step in job.history] + [attempt.dispatched_at for attempt in job.attempts.values()]
    return job.created_at if since and job.not_before > min(since) else max(job.created_at, job.not_before)


def _of_step(step: PastStep) -> Moment:
    kind = MomentKind.WAITING if step.kind is StepKind.WAITS else MomentKind(step.kind.value)
    return Moment(step.at, kind, reason=step.reason, message=step.message, by=step.by)


def _of_attempt(attempt: Attempt) -> Iterator[Moment]:
    # the node may have begun a moment before the worker recorded the dispatch
    accepted_at = min(attempt.dispatched_at, attempt.started_at or attempt.dispatched_at)
    dispatched = Moment(accepted_at, MomentKind.DISPATCHED, attempt=attempt.attempt, node=attempt.node)
    yield dispatched
    if attempt.started_at:
        yield dispatched._replace(at=attempt.started_at, kind=MomentKind.STARTED, until=attempt.ended_at)
    if attempt.ended_at:
        ended = dispatched._replace(at=attempt.ended_at, kind=MomentKind.ATTEMPT_ENDED)
        yield ended._replace(status=attempt.status, message=attempt.message)


def _lasting(moment: Moment, later: list[Moment]) -> Moment:
    """The moment, with its end if it is a wait or a pause that a later moment ends."""
    if moment.kind not in {MomentKind.WAITING, MomentKind.PAUSED}:
        return moment
    return moment._replace(until=next((one.at for one in later if one.kind in _ENDS_A_WAIT), None))
