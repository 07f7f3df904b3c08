"""How the runs of a spider, project, schedule or site went, day by day."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Self

from fastapi import Path, Query
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.access.keys import Caller, Scope
from gateway.jobs.job import SUCCESS_RULE, JobStatus
from gateway.jobs.run_days import SUMS_KEPT, RunDays, RunHistory, RunSubject, RunTotals, spider_subject
from gateway.schedules.store import ScheduleStore
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, Router, ScheduleId
from gateway.web.errors import problems
from gateway.web.routes.projects import AnyProjectName
from gateway.web.routes.sites import NamedSite
from gateway.web.schemas.types import Name, QueryModel, UserId

router = Router()

_SUMS: JsonDict = {
    "runs": 24,
    "finished": 22,
    "partial": 1,
    "error": 1,
    "cancelled": 0,
    "success_rate": 0.9583,
    "pages": 4800,
    "items": 2310,
    "errors": 12,
    "error_share": 0.0025,
    "median_seconds": 107.6,
}

#: A spider of any project; it may be gone since.
SpiderName = Annotated[Name, Path(description="As `GET /spiders` has it.", examples=["prices"])]


class RunSumsView(BaseModel):
    """Jobs that have ended."""

    runs: int = Field(description="How many have ended; with which status, the next four say.")
    finished: int
    partial: int
    error: int
    cancelled: int
    success_rate: float | None = Field(description=f"{SUCCESS_RULE} From 0 to 1; null without such.")
    pages: int
    items: int
    errors: int
    error_share: float | None = Field(description="Errors among pages and errors; null if there are neither.")
    median_seconds: float | None = Field(
        description="From the first start to the end, right to 9 %; null if none was started."
    )

    @classmethod
    def fields_of(cls, sums: RunTotals) -> dict[str, Any]:
        ends = (JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED)
        return {
            "runs": sums.ended,
            **{status.value: sums.runs.get(status.value, 0) for status in ends},
            "success_rate": _rounded(sums.success),
            **sums.model_dump(include={"pages", "items", "errors"}),
            "error_share": _rounded(sums.error_share),
            "median_seconds": None if sums.median_seconds is None else round(sums.median_seconds, 1),
        }


class RunDayView(RunSumsView):
    """How the runs of a day went."""

    day: date = Field(description="The day (UTC) on which these jobs ended.")


class RunDaysView(
    BaseModel, json_schema_extra={"examples": [{"total": _SUMS, "days": [{"day": "2027-06-01", **_SUMS}]}]}
):
    """How runs went, day by day."""

    total: RunSumsView = Field(description="The sums of all these days.")
    days: list[RunDayView] = Field(description="Every day, the oldest first; the last one is today.")

    @classmethod
    def of(cls, history: RunHistory) -> Self:
        days = [RunDayView(day=day.day.date(), **RunSumsView.fields_of(day.totals)) for day in history.days]
        return cls(total=RunSumsView(**RunSumsView.fields_of(history.total)), days=days)


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


class RunDaysQuery(QueryModel):
    days: int = Field(default=30, ge=1, le=SUMS_KEPT.days, description="How many days, today included.")
    user_id: UserId | None = Field(default=None, description="Only the jobs of this user.")


@router.get(
    "/spiders/{project}/{spider}/days", tags=["spiders"], summary="A spider's runs by day", responses=problems(503)
)
@needs(Scope.READ)
def get_spider_days(
    project: AnyProjectName, spider: SpiderName, query: Annotated[RunDaysQuery, Query()], parts: Parts, caller: Called
) -> RunDaysView:
    """How its runs went, day by day and together: how many ended well, items, errors and durations. These are sums,
    kept for 400 days: they also have jobs that retention has removed. A day without runs is there with zeros.
    """
    return _answer(RunSubject.SPIDER, spider_subject(project, spider), query, parts, caller)


@router.get("/projects/{project}/days", tags=["projects"], summary="A project's runs by day", responses=problems(503))
@needs(Scope.READ)
def get_project_days(
    project: AnyProjectName, query: Annotated[RunDaysQuery, Query()], parts: Parts, caller: Called
) -> RunDaysView:
    """As the days of a spider, for all spiders of a project."""
    return _answer(RunSubject.PROJECT, project, query, parts, caller)


@router.get(
    "/schedules/{schedule_id}/days",
    tags=["schedules"],
    summary="A schedule's runs by day",
    responses=problems(404, 503),
)
@needs(Scope.READ)
def get_schedule_days(
    schedule_id: ScheduleId, query: Annotated[RunDaysQuery, Query()], parts: Parts, caller: Called
) -> RunDaysView:
    """As the days of a spider, for the runs of a schedule, including those that were started by hand."""
    parts[ScheduleStore].get(schedule_id)
    return _answer(RunSubject.SCHEDULE, schedule_id, query, parts, caller)


@router.get("/sites/{name}/days", tags=["sites"], summary="A site's runs by day", responses=problems(503))
@needs(Scope.CRAWL)
def get_site_days(
    name: NamedSite, query: Annotated[RunDaysQuery, Query()], parts: Parts, caller: Called
) -> RunDaysView:
    """As the days of a spider, for a site. Keys without the scope `admin` get only their own users' runs."""
    return _answer(RunSubject.SITE, name, query, parts, caller)


def _answer(kind: RunSubject, subject: str, query: RunDaysQuery, parts: GatewayParts, caller: Caller) -> RunDaysView:
    user_id = caller.only(query.user_id)
    with mongo_errors():
        (history,) = parts[RunDays].histories(kind, [subject], query.days, user_id).values()
    return RunDaysView.of(history)
