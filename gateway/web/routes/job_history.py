"""The history of a job: its counts over time, the moments of its life, and other runs of the same crawl."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import Query
from pydantic import BaseModel, Field

from gateway.access.keys import Scope
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.jobs.progress import Estimate, Point, ProgressStore, Reckoned, estimate
from gateway.jobs.queries import JobQueries
from gateway.jobs.timeline import Moment, MomentKind, timeline
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import needs
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import problems
from gateway.web.schemas.job import JobSummary
from gateway.web.schemas.types import Open, QueryModel, Timestamp

router = Router(prefix="/jobs/{job_id}", tags=["jobs"])

#: Attempts whose progress is shown, the latest ones.
MOST_ATTEMPTS = 10


class AttemptCurve(BaseModel):
    """Counts from the attempt's beginning on: all lists have the same length, and belong to the times in `at`. There
    are at most 240 points; the longer the crawl, the further apart they are.
    """

    attempt: int
    at: list[Timestamp]
    requested_pages: list[int]
    completed_pages: list[int]
    items_count: list[int]
    errors_count: list[int]
    answered_2xx: list[int]
    answered_3xx: list[int]
    answered_4xx: list[int]
    answered_5xx: list[int]

    @classmethod
    def of(cls, attempt: int, points: list[Point]) -> Self:
        columns = zip(*points, strict=True) if points else ([] for _ in Point._fields)
        return cls(attempt=attempt, **dict(zip(Point._fields, map(list, columns), strict=True)))


class EstimateView(BaseModel):
    """When the crawl ends if it goes on at the pace of the last minute."""

    at: Timestamp
    reckoned_by: Reckoned = Field(
        description="What will end it. `queue`: no request is left; `max_pages`, `max_items`, `timeout`: that limit."
    )
    queued: int = Field(description="Requests that wait or are under way.")
    done_per_s: float = Field(description="Requests that end, a second.")
    found_per_s: float = Field(description="New requests, a second. The queue gets shorter while this is smaller.")
    items_per_s: float

    @classmethod
    def of(cls, found: Estimate) -> Self:
        done, new, items = (round(rate, 3) for rate in found.pace)
        rates = {"done_per_s": done, "found_per_s": new, "items_per_s": items}
        return cls(at=found.at, reckoned_by=found.reckoned_by, queued=found.queued, **rates)


_PROGRESS = {
    "attempts": [
        {
            "attempt": 1,
            "at": ["2027-06-01T09:00:00.000Z", "2027-06-01T09:00:30.000Z", "2027-06-01T09:01:00.000Z"],
            "requested_pages": [0, 900, 1000],
            "completed_pages": [0, 240, 490],
            "items_count": [0, 238, 480],
            "errors_count": [0, 2, 4],
            "answered_2xx": [0, 236, 482],
            "answered_3xx": [0, 0, 0],
            "answered_4xx": [0, 4, 8],
            "answered_5xx": [0, 2, 4],
        }
    ],
    "estimate": {
        "at": "2027-06-01T09:02:01.000Z",
        "reckoned_by": "queue",
        "queued": 506,
        "done_per_s": 8.3,
        "found_per_s": 0.0,
        "items_per_s": 8.1,
    },
}


class JobProgressView(BaseModel, json_schema_extra={"examples": [_PROGRESS]}):
    """The progress of a job over time, attempt by attempt."""

    attempts: list[AttemptCurve] = Field(description="The latest ten.")
    estimate: EstimateView | None = Field(
        description="Null unless it runs, and while nobody can know: its queue grows, or does not move."
    )


@router.get("/progress", summary="How a job's counts went over time", responses=problems(404, 503))
@needs(Scope.READ)
def get_job_progress(job_id: JobId, parts: Parts) -> JobProgressView:
    """Kept as long as the job. Live, `progress` events say the same: see `GET /events`. For a schedule, it is the
    progress of the run under way, or of the one before.
    """
    job = parts[JobOrSchedule].job(job_id)
    if job is None:
        return JobProgressView(attempts=[], estimate=None)
    with mongo_errors():
        curves = parts[ProgressStore].of_job(job.id, MOST_ATTEMPTS)
    found = _estimate(job, curves, parts.clock())
    return JobProgressView(
        attempts=[AttemptCurve.of(attempt, points) for attempt, points in curves.items()],
        estimate=EstimateView.of(found) if found else None,
    )


def _estimate(job: Job, curves: dict[int, list[Point]], now: datetime) -> Estimate | None:
    current = job.current
    if job.status is not JobStatus.RUNNING or current is None or current.started_at is None or job.stop_reason:
        return None
    return estimate(curves.get(current.attempt, []), job.spec, current.started_at, now)


class MomentView(BaseModel):
    """What has happened to a job at a time."""

    at: Timestamp
    kind: Open[MomentKind]
    until: Timestamp | None = Field(
        description="The end of what lasts: `scheduled`, `waiting`, `started`, `paused`. Null if it goes on."
    )
    attempt: int | None
    node: str | None
    reason: Open[WaitingReason] | None = Field(
        description="Why it waits; null until a worker has looked at it, as in `GET /jobs/{job_id}/status`."
    )
    status: JobStatus | None = Field(description="Of the attempt, or of the job.")
    message: str | None
    by: str | None = Field(description="The user who asked for it; null while there are no keys.")

    @classmethod
    def of(cls, moment: Moment) -> Self:
        return cls(**moment._asdict())


_NONE = dict.fromkeys(("until", "attempt", "node", "reason", "status", "message", "by"))
_TIMELINE = {
    "moments": [
        {**_NONE, "at": "2027-06-01T09:00:00.000Z", "kind": "submitted", "by": "abc123"},
        {
            **_NONE,
            "at": "2027-06-01T09:00:00.020Z",
            "kind": "waiting",
            "until": "2027-06-01T09:00:42.000Z",
            "reason": "capacity",
        },
        {**_NONE, "at": "2027-06-01T09:00:42.000Z", "kind": "dispatched", "attempt": 1, "node": "crawler-1"},
    ]
}


class TimelineView(BaseModel, json_schema_extra={"examples": [_TIMELINE]}):
    """What has happened to a job, in order."""

    moments: list[MomentView] = Field(
        description="In the order of time. Of its waits, pauses and cancellation the last fifty steps are kept."
    )


@router.get("/timeline", summary="The moments of a job's life", responses=problems(404, 503))
@needs(Scope.READ)
def get_job_timeline(job_id: JobId, parts: Parts) -> TimelineView:
    """When the job was asked for, why it waited and for how long, its attempts, who paused or cancelled it, and its
    end. For a schedule, these are the moments of the current run, or else of the latest one.
    """
    job = parts[JobOrSchedule].whole(job_id)
    return TimelineView(moments=[MomentView.of(moment) for moment in timeline(job)] if job else [])


class RunsQuery(QueryModel):
    limit: int = Field(default=20, ge=1, le=100, description="The size of a page.")


class RunsView(BaseModel):
    """The runs of a schedule, or the tries of a job."""

    same: str = Field(description="What the runs have in common: `schedule` or `request`.", examples=["schedule"])
    runs: list[JobSummary]


@router.get("/runs", summary="The runs beside a job", responses=problems(404, 503))
@needs(Scope.READ)
def list_job_runs(job_id: JobId, query: Annotated[RunsQuery, Query()], parts: Parts) -> RunsView:
    """The newest runs of the same schedule; for a job that no schedule has made, of the same request. The job itself
    is among them.
    """
    job = parts[JobOrSchedule].job(job_id)
    if job is None:
        return RunsView(same="schedule", runs=[])
    with mongo_errors():
        runs = parts[JobQueries].runs_beside(job, query.limit)
    return RunsView(same="schedule" if job.schedule_id else "request", runs=[JobSummary.of(run) for run in runs])
