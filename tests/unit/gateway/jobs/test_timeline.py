"""What a job's document says of its life, in the order of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from jobs import make_job

from gateway.clock import utc_now
from gateway.jobs.job import Attempt, JobStatus, PastStep, StepKind, WaitingReason
from gateway.jobs.timeline import Moment, MomentKind, timeline

NOW = utc_now()


def at(second: int) -> Any:
    return NOW + timedelta(seconds=second)


def waits(second: int, reason: WaitingReason) -> PastStep:
    return PastStep(at=at(second), kind=StepKind.WAITS, reason=reason)


def told(moment: Moment) -> tuple[MomentKind, int, int | None]:
    """Its kind, and the seconds of its beginning and end."""
    return moment.kind, (moment.at - NOW).seconds, (moment.until - NOW).seconds if moment.until else None


def test_a_life_with_all_that_there_is() -> None:
    first = Attempt(
        attempt=1, node="n1", dispatched_at=at(40), started_at=at(41), ended_at=at(50),
        status=JobStatus.ERROR, message="killed",
    )  # fmt: skip
    second = Attempt(attempt=2, node="n2", dispatched_at=at(80), started_at=at(81), ended_at=at(90))
    history = [
        waits(1, WaitingReason.SITE_BUSY),
        waits(30, WaitingReason.CAPACITY),
        waits(50, WaitingReason.BACKOFF),
        PastStep(at=at(55), kind=StepKind.PAUSED, by="ada", message="paused before it began"),
        PastStep(at=at(70), kind=StepKind.RESUMED, by="bob"),
        PastStep(at=at(85), kind=StepKind.CANCEL_REQUESTED, by="bob"),
    ]
    job = make_job(
        created_at=NOW, status=JobStatus.CANCELLED, attempts={"1": first, "2": second}, history=history,
        cancel_requested_at=at(85), finished_at=at(91), message="cancelled on request",
    )  # fmt: skip
    kinds = MomentKind
    assert [told(moment) for moment in timeline(job)] == [
        (kinds.SUBMITTED, 0, None),
        (kinds.WAITING, 0, 1),
        (kinds.WAITING, 1, 30),
        (kinds.WAITING, 30, 40),
        (kinds.DISPATCHED, 40, None),
        (kinds.STARTED, 41, 50),
        (kinds.WAITING, 50, 55),
        (kinds.ATTEMPT_ENDED, 50, None),
        (kinds.PAUSED, 55, 70),
        (kinds.RESUMED, 70, None),
        (kinds.DISPATCHED, 80, None),
        (kinds.STARTED, 81, 90),
        (kinds.CANCEL_REQUESTED, 85, None),
        (kinds.ATTEMPT_ENDED, 90, None),
        (kinds.ENDED, 91, None),
    ]
    assert [moment.by for moment in timeline(job) if moment.by] == ["ada", "ada", "bob", "bob"]


def test_a_job_from_before_histories_tells_the_last_reason_of_its_waiting() -> None:
    job = make_job(created_at=NOW, waiting_reason=WaitingReason.NO_NODE)
    last = timeline(job)[-1]
    assert (last.kind, last.reason, last.until) == (MomentKind.WAITING, WaitingReason.NO_NODE, None)
    asked = make_job(created_at=NOW, status=JobStatus.RUNNING, cancel_requested_at=at(9))
    assert timeline(asked)[-1].kind is MomentKind.CANCEL_REQUESTED


def test_a_job_for_later_waits_for_its_time_first() -> None:
    job = make_job(created_at=NOW, status=JobStatus.SCHEDULED, not_before=at(60))
    assert [moment.kind for moment in timeline(job)] == [MomentKind.SUBMITTED, MomentKind.SCHEDULED]
    due = make_job(created_at=NOW, not_before=at(60))
    kinds = [(moment.kind, moment.until) for moment in timeline(due)]
    assert kinds[1:] == [(MomentKind.SCHEDULED, at(60)), (MomentKind.WAITING, None)]
