"""`POST /crawl/preview`: what `POST /crawl` would answer to a request."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.clock import to_iso
from gateway.errors import DiscoveryBotError, InvalidRequestError
from gateway.jobs.job import JobStatus, WaitingReason
from gateway.schedules.crawl_preview import Forecast, Known
from gateway.schedules.next_run import INTERVAL_JITTER
from gateway.schedules.schedule import CatchUp, Overlap, ScheduleState
from gateway.schedules.submission import When
from gateway.web.errors import status_of
from gateway.web.schemas.schedule import ComingRun, CrawlView, coming_runs
from gateway.web.schemas.types import Open, Timestamp

_TIME = "2027-06-01T07:00:00.000Z"
_ACCEPTED: JsonDict = {
    "accepted": True,
    "problems": [],
    "answer": {
        "cached": False,
        "scheduled": True,
        "job_id": None,
        "cached_at": None,
        "status": None,
        "reason": "no active schedule of yours has the same crawl at the same times",
    },
    "place": None,
    "schedule": {
        "interval": "0 9 * * *",
        "timezone": "Europe/Paris",
        "schedule_at": None,
        "ends_at": None,
        "jitter": 0,
        "overlap": "skip",
        "catch_up": "one",
        "max_runs": None,
    },
    "runs": [{"at": _TIME, "due": _TIME, "local": "2027-06-01T09:00:00+02:00", "clocks_moved_minutes": 0}],
    "crawl": None,
}
_REFUSED: JsonDict = {
    "accepted": False,
    "problems": [
        {
            "status": 403,
            "code": "forbidden_address",
            "field": "start_urls.0",
            "message": "start_urls.0: 'http://10.0.0.1/' may not be fetched: 10.0.0.1 is not a public address; allow "
            "it with CRAWL_ALLOW_NETWORKS",
            "detail": {"field": "start_urls.0"},
        }
    ],
    "answer": None,
    "place": None,
    "schedule": None,
    "runs": [],
    "crawl": None,
}


class PreviewProblem(BaseModel):
    """Why `POST /crawl` would refuse the request: its status and its error."""

    status: int
    code: str
    field: str | None = Field(description="The wrong field; null if no field is wrong.")
    message: str
    detail: Any

    @classmethod
    def of(cls, error: DiscoveryBotError) -> PreviewProblem:
        field = error.field if isinstance(error, InvalidRequestError) else None
        return cls(status=status_of(error), code=error.code, field=field, message=error.message, detail=error.detail)


class PreviewAnswer(BaseModel):
    """The job or schedule that the request would get."""

    cached: bool = Field(description="Whether a job or schedule that exists answers.")
    scheduled: bool = Field(description="Whether the crawl would run later, or again and again.")
    job_id: str | None = Field(description="The job or schedule that exists; null if there would be a new one.")
    cached_at: Timestamp | None = Field(description="When that was first asked for.")
    status: JobStatus | ScheduleState | None = Field(description="The job's status.")
    reason: str = Field(description="Why it answers, or why nothing does.")

    @classmethod
    def of(cls, known: Known | None, reason: str, *, scheduled: bool) -> PreviewAnswer:
        if known is None:
            return cls(cached=False, scheduled=scheduled, job_id=None, cached_at=None, status=None, reason=reason)
        return cls(
            cached=True,
            scheduled=scheduled,
            job_id=known.id,
            cached_at=known.since,
            status=known.state,
            reason=reason,
        )


class PreviewPlace(BaseModel):
    """Where a new job would run now."""

    node: str | None = Field(description="The node that would get it; null if it would have to wait.")
    waiting_reason: Open[WaitingReason] | None = Field(description="Why it would have to wait.")
    queue_position: int | None = Field(description="The job's place among the jobs that wait; 1 goes next.")


class PreviewedSchedule(BaseModel):
    """The requested timing, with defaults for the fields that were left out."""

    interval: str | None
    timezone: str
    schedule_at: Timestamp | None
    ends_at: Timestamp | None
    jitter: float
    overlap: Overlap
    catch_up: CatchUp
    max_runs: int | None

    @classmethod
    def of(cls, when: When) -> PreviewedSchedule:
        is_every = (when.interval or "").strip().lower().startswith("every")
        jitter = when.jitter if when.jitter is not None else (INTERVAL_JITTER if is_every else 0.0)
        fields = when._asdict()
        del fields["name"]
        return cls(**{**fields, "jitter": jitter})


Runs = Annotated[
    list[ComingRun],
    Field(description="The next ten at most, for a crawl for later. Those of a new schedule are without jitter."),
]


class CrawlPreview(BaseModel, json_schema_extra={"examples": [_ACCEPTED, _REFUSED]}):
    """What `POST /crawl` would answer now. No job is made, and nothing is reserved."""

    accepted: bool
    problems: list[PreviewProblem] = Field(description="Why it would be refused.")
    answer: PreviewAnswer | None = Field(description="Null if it would be refused.")
    place: PreviewPlace | None = Field(description="Null unless a new job would begin now.")
    schedule: PreviewedSchedule | None = Field(description="Null for a crawl that would begin now.")
    runs: Runs
    crawl: CrawlView | None = Field(
        description="The crawl as it would be, with the defaults of what was left out; null if its spider is unknown."
    )

    @classmethod
    def refused(cls, error: DiscoveryBotError) -> CrawlPreview:
        """The preview of an invalid request: it has only the error."""
        problems = [PreviewProblem.of(error)]
        return cls(accepted=False, problems=problems, answer=None, place=None, schedule=None, runs=[], crawl=None)

    @classmethod
    def of(cls, forecast: Forecast, when: When | None, cache_ttl: int, now: datetime) -> CrawlPreview:
        """The preview of a valid request. `cache_ttl` is in seconds."""
        scheduled, known = when is not None, forecast.known
        reason = _reason(forecast, when, cache_ttl)
        place = PreviewPlace(**forecast.place._asdict()) if forecast.place else None
        return cls(
            accepted=not forecast.refusals,
            problems=[PreviewProblem.of(error) for error in forecast.refusals],
            answer=None if forecast.refusals else PreviewAnswer.of(known, reason, scheduled=scheduled),
            place=place,
            schedule=PreviewedSchedule.of(when) if when else None,
            # without a valid time zone, no run is known
            runs=coming_runs(forecast.runs, when.timezone, now) if when and forecast.runs else [],
            crawl=CrawlView.of(forecast.order.crawl),
        )


def _reason(forecast: Forecast, when: When | None, cache_ttl: int) -> str:
    known = forecast.known
    if known is None and forecast.order.spec.ignore_cache:
        return "ignore_cache asks for a new one"
    if known is None and when is None:
        return f"no crawl of yours that is under way, or was asked for within {cache_ttl} seconds, is the same"
    if known is None:
        what = "active schedule" if when and when.interval else "crawl for later"
        return f"no {what} of yours has the same crawl at the same times"
    if when is None:
        return f"you asked for the same crawl at {to_iso(known.since)}; ignore_cache makes a new one"
    return f"the same crawl is scheduled since {to_iso(known.since)}; ignore_cache makes a new one"
