"""`/schedules`: repeated crawls, their times, and what happened at each time."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from gateway.access.keys import Caller, Scope
from gateway.jobs.queries import JobQueries
from gateway.schedules.calendar import ScheduleCalendar, coming
from gateway.schedules.edits import ScheduleChanges
from gateway.schedules.firing import Scheduling
from gateway.schedules.schedule import LedgerKind, Schedule, ScheduleState
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.schedules.submission import ScheduleSubmission, When
from gateway.sites.hosts import HostLookup
from gateway.status.facts import SchedulerReport, SchedulerStatus
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, RequestId, Router, ScheduleId
from gateway.web.errors import problems
from gateway.web.middleware import note_changes
from gateway.web.routes.crawl import IdempotencyKey, change_of, order_of, when_of
from gateway.web.schemas.calendar import CalendarQuery, SchedulesCalendar
from gateway.web.schemas.crawl import CrawlQuery, CrawlReceipt
from gateway.web.schemas.schedule import (
    HistoryQuery,
    LedgerEntryView,
    PreviewQuery,
    ScheduleCreate,
    ScheduleHistory,
    SchedulePage,
    SchedulePreview,
    SchedulesQuery,
    ScheduleSummary,
    ScheduleUpdate,
    ScheduleView,
)
from gateway.web.schemas.types import QueryModel, Timestamp

router = Router(prefix="/schedules", tags=["schedules"])


@router.get("", summary="List schedules", responses=problems(503))
@needs(Scope.READ, by_project=True)
async def list_schedules(query: Annotated[SchedulesQuery, Query()], parts: Parts, caller: Called) -> SchedulePage:
    """Newest first, those of sites and targets too. Pass `next` as `after` for the page that follows."""
    return await parts.threads.run(schedules_page, query, parts, caller)


def schedules_page(query: SchedulesQuery, parts: GatewayParts, caller: Caller) -> SchedulePage:
    wanted = caller.limited(query.to_filter(), query.user_id)
    if wanted.host is not None:
        wanted = wanted._replace(host=parts[HostLookup].find(wanted.host.name))
    with mongo_errors():
        found, following = parts[ScheduleStore].page(wanted, query.limit, query.after)
    return SchedulePage(schedules=[ScheduleSummary.of(schedule) for schedule in found], next=following)


@router.post(
    "",
    summary="Create a schedule",
    status_code=201,
    responses={
        200: {"description": "The same crawl is scheduled already: the existing schedule", "model": ScheduleView},
        **problems(409, 413, 503),
    },
)
@needs(Scope.CRAWL)
async def create_schedule(
    *,
    body: ScheduleCreate,
    query: Annotated[CrawlQuery, Query()],
    response: Response,
    parts: Parts,
    caller: Called,
    request_id: RequestId,
    idempotency_key: IdempotencyKey = "",
) -> ScheduleView:
    """As `POST /crawl` with an `interval`, but answered with the schedule."""
    order = await order_of(body, query, caller, parts)
    order = order.with_request(idempotency_key or None, request_id)
    when = when_of(body) or When()
    found, cached = await parts.threads.run(parts[ScheduleSubmission].submit, order, when)
    if cached:
        response.status_code = HTTPStatus.OK.value
    response.headers["Location"] = f"/schedules/{found.id}"
    return ScheduleView.of(found if isinstance(found, Schedule) else parts[ScheduleStore].get(found.id))


@router.get("/calendar", summary="Past and coming runs of many schedules", responses=problems(503))
@needs(Scope.READ, by_project=True)
async def get_schedule_calendar(
    query: Annotated[CalendarQuery, Query()], parts: Parts, caller: Called
) -> SchedulesCalendar:
    """The past and coming occurrences between two times, by schedule, the newest schedules first. Schedules without
    an occurrence are left out. Pass `next` as `after` for the page that follows.
    """
    return await parts.threads.run(calendar_page, query, parts, caller)


def calendar_page(query: CalendarQuery, parts: GatewayParts, caller: Caller) -> SchedulesCalendar:
    wanted = caller.limited(query.to_filter(), query.user_id)
    since, until = query.between(parts.clock())
    found = parts[ScheduleCalendar].page(wanted, since, until, query.limit, query.after)
    return SchedulesCalendar.of(found, since, until)


@router.get("/{schedule_id}", summary="Everything known of a schedule", responses=problems(404, 503))
@needs(Scope.READ)
def get_schedule(schedule_id: ScheduleId, parts: Parts) -> ScheduleView:
    """Its times and its state, and what it crawls."""
    return ScheduleView.of(parts[ScheduleStore].get(schedule_id))


@router.patch("/{schedule_id}", summary="Change a schedule", responses=problems(404, 409, 413, 503))
@needs(Scope.CRAWL)
def update_schedule(
    schedule_id: ScheduleId, body: ScheduleUpdate, request: Request, parts: Parts, caller: Called
) -> ScheduleView:
    """The given fields replace the old ones, all of them or none. After the answer, no run of the old version begins;
    runs under way go on. The occurrences stay as they are unless the schedule's times are changed.
    """
    before = get_schedule(schedule_id, parts)
    change = change_of(body, parts.settings)._replace(budget_key=caller.budget_key)
    after = ScheduleView.of(parts[ScheduleChanges].apply(schedule_id, change))
    note_changes(request, before, after)
    return after


@router.delete("/{schedule_id}", summary="Delete a schedule", status_code=204, responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def delete_schedule(schedule_id: ScheduleId, parts: Parts) -> None:
    """Deletes the schedule with its history. Its runs stay, also the one under way."""
    parts[ScheduleChanges].delete(schedule_id)


@router.post("/{schedule_id}/pause", summary="Pause a schedule", responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def pause_schedule(schedule_id: ScheduleId, parts: Parts) -> ScheduleView:
    """No run begins after the answer; the one under way goes on. Occurrences in between are not made up for."""
    return ScheduleView.of(parts[ScheduleChanges].pause(schedule_id))


@router.post("/{schedule_id}/resume", summary="Resume a schedule", responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def resume_schedule(schedule_id: ScheduleId, parts: Parts, caller: Called) -> ScheduleView:
    """The schedule goes on with the first occurrence that is still to come."""
    return ScheduleView.of(parts[ScheduleChanges].resume(schedule_id, caller.budget_key))


@router.post(
    "/{schedule_id}/run",
    summary="Run a schedule now",
    response_model_exclude_none=True,
    responses=problems(404, 409, 503),
)
@needs(Scope.AGENT)
def run_schedule(schedule_id: ScheduleId, parts: Parts, caller: Called) -> CrawlReceipt:
    """Starts a run beside the occurrences, which stay. 409 while a run goes on and `overlap` is `skip`."""
    return CrawlReceipt.of(parts[ScheduleChanges].run_now(schedule_id, caller.budget_key).id, cached=False)


@router.get("/{schedule_id}/next", summary="Preview the coming runs", responses=problems(404, 503))
@needs(Scope.READ)
def preview_schedule(
    schedule_id: ScheduleId, query: Annotated[PreviewQuery, Query()], parts: Parts
) -> SchedulePreview:
    """The times include the jitter. A paused schedule shows the times that it would have; an ended one shows none."""
    schedule, now = parts[ScheduleStore].get(schedule_id), parts.clock()
    return SchedulePreview.of(schedule, coming(schedule, now, query.count), now)


@router.get("/{schedule_id}/history", summary="The history of a schedule's occurrences", responses=problems(404, 503))
@needs(Scope.READ)
def list_schedule_history(
    schedule_id: ScheduleId, query: Annotated[HistoryQuery, Query()], parts: Parts
) -> ScheduleHistory:
    """Occurrences: fired and how late, skipped and why, or missed. Pass `next` as `after` for the next page."""
    parts[ScheduleStore].get(schedule_id)
    entries, following = parts[LedgerStore].page(schedule_id, query.limit, query.after)
    fired = [entry.job_id for entry in entries if entry.kind is LedgerKind.FIRED]
    statuses = parts[JobQueries].statuses(fired)
    views = [LedgerEntryView.of(entry, statuses.get(entry.job_id)) for entry in entries]
    return ScheduleHistory(entries=views, next=following)


class TickView(BaseModel):
    """What one tick did."""

    fired: list[str] = Field(description="Ids of the jobs of occurrences that were due and were fired.")
    skipped: list[str] = Field(
        description="Ids that the jobs of skipped occurrences would have had: the previous run had not ended."
    )
    missed: list[str] = Field(
        description="Ids that the jobs of missed occurrences would have had: no beat fired them in time."
    )
    promoted: list[str] = Field(description="Ids of single crawls whose `schedule_at` has come.")
    due_left: int = Field(description="How many schedules are still due.")
    next_due: Timestamp | None = Field(description="When the next work is due, as far as is known.")


class SchedulerQuery(QueryModel):
    last: int = Field(default=20, ge=0, le=200, description="How many entries of the ledger to return.")


class SchedulerProcess(BaseModel):
    """A process that starts what is due, and whether it lives."""

    name: str = Field(description="`beat:<host>:<process>`.")
    alive: bool
    last_seen_at: Timestamp


class OccurrenceDecision(BaseModel):
    """The decision on one occurrence."""

    schedule_id: str
    job_id: str = Field(
        description="The run's job; if the occurrence was not fired, the id that its job would have had."
    )
    kind: LedgerKind
    due: Timestamp
    recorded_at: Timestamp
    late_by_seconds: float
    missed: int = Field(
        description="How many other occurrences this run makes up for, or were missed together with this one."
    )
    reason: str | None


class SchedulerStatusView(BaseModel):
    """Whether what is due is started, and how late."""

    at: Timestamp
    beats_alive: int
    beats: list[SchedulerProcess] = Field(description="The beats with a recent sign of life.")
    due: int = Field(description="How many schedules are due and not fired yet; counted up to 10,000.")
    lag_seconds: float = Field(description="How late the most delayed of them is; 0 if none is due.")
    next_run: Timestamp | None = Field(description="When the next occurrence of any schedule is due, or was due.")
    schedules: dict[ScheduleState, int] = Field(description="The number of schedules in each state.")
    one_off_jobs: int = Field(description="How many single crawls have a `schedule_at` in the future.")
    last_fires: list[OccurrenceDecision] = Field(
        description="The latest entries in the ledger of all schedules, newest first."
    )

    @classmethod
    def of(cls, report: SchedulerReport) -> SchedulerStatusView:
        late = (report.at - report.next_run).total_seconds() if report.next_run else 0
        return cls(
            at=report.at,
            beats_alive=len(report.alive),
            beats=[
                SchedulerProcess(name=beat.name, alive=beat.name in report.alive, last_seen_at=beat.at)
                for beat in report.beats
            ],
            due=report.due,
            lag_seconds=max(0.0, late),
            next_run=report.next_run,
            schedules=report.schedules,
            one_off_jobs=report.one_off_jobs,
            last_fires=[OccurrenceDecision(**entry.model_dump()) for entry in report.latest],
        )


# --- `/scheduler`: one tick now, and how the schedules fare

scheduler_router = Router(prefix="/scheduler", tags=["schedules"])


@scheduler_router.post("/run", summary="Fire what is due, now", responses=problems(503))
@needs(Scope.ADMIN)
def run_scheduler(parts: Parts) -> TickView:
    """Does what a beat does in one tick. While a beat runs, nothing is left to do; without one, this replaces it."""
    with mongo_errors():
        return TickView(**parts[Scheduling].tick()._asdict())


@scheduler_router.get("/status", summary="Which beats fire the schedules, and how late", responses=problems(503))
@needs(Scope.ADMIN)
async def get_scheduler_status(query: Annotated[SchedulerQuery, Query()], parts: Parts) -> SchedulerStatusView:
    """Living beats, what is due, how late the most delayed occurrence is, and the decisions on the last ones."""
    return SchedulerStatusView.of(await parts.threads.run(parts[SchedulerStatus].report, query.last))
