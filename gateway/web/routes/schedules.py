"""`/schedules`: what is run again and again, when, and what became of it."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response

from gateway.domain.recurrence import preview
from gateway.domain.schedule import Schedule, ScheduleState
from gateway.services.schedule_changes import ScheduleChanges
from gateway.services.schedule_submission import ScheduleSubmission, When
from gateway.storage.ledger import LedgerStore
from gateway.storage.schedules import ScheduleStore
from gateway.web.access import Called
from gateway.web.dependencies import Parts, RequestId, ScheduleId
from gateway.web.routes.crawl import IdempotencyKey
from gateway.web.schedule_request import change_of, order_of, when_of
from gateway.web.schemas.crawl import CrawlQuery, CrawlReceipt
from gateway.web.schemas.problem import problems
from gateway.web.schemas.schedule import (
    LedgerEntryView,
    ScheduleHistory,
    SchedulePage,
    SchedulePreview,
    ScheduleSummary,
    ScheduleView,
)
from gateway.web.schemas.schedule_request import (
    HistoryQuery,
    PreviewQuery,
    ScheduleChange,
    ScheduleRequest,
    SchedulesQuery,
)
from gateway.web.store_route import StoreRoute

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=StoreRoute)

_MILLISECOND = timedelta(milliseconds=1)


@router.get("", summary="List schedules", responses=problems(503))
async def list_schedules(query: Annotated[SchedulesQuery, Query()], parts: Parts, caller: Called) -> SchedulePage:
    """Newest first, those of sites and targets too. Pass `next` as `after` for the page that follows."""
    store = parts[ScheduleStore]
    wanted = query.to_filter()._replace(user_id=caller.only(query.user_id))
    found, following = await parts.reads.run(store.page, wanted, query.limit, query.after)
    return SchedulePage(schedules=[ScheduleSummary.of(schedule) for schedule in found], next=following)


@router.post(
    "",
    summary="Make a schedule",
    status_code=201,
    responses={
        200: {"description": "The same crawl is scheduled already: the schedule that exists", "model": ScheduleView},
        **problems(409, 413, 503),
    },
)
async def create_schedule(
    *,
    body: ScheduleRequest,
    query: Annotated[CrawlQuery, Query()],
    response: Response,
    parts: Parts,
    caller: Called,
    request_id: RequestId,
    idempotency_key: IdempotencyKey = "",
) -> ScheduleView:
    """As `POST /crawl` with an `interval`, but answered with the schedule."""
    caller.acting_for(body.user_id)
    parts.truth.require()
    order = order_of(body, parts.settings, ignore_cache=body.ignore_cache or query.ignore_cache)
    order = order._replace(idempotency_key=idempotency_key or None, correlation_id=request_id)
    when = when_of(body, body.name) or When()
    found, cached = await parts.submits.run(parts[ScheduleSubmission].submit, order, when)
    if cached:
        response.status_code = HTTPStatus.OK.value
    response.headers["Location"] = f"/schedules/{found.id}"
    return ScheduleView.of(found if isinstance(found, Schedule) else parts[ScheduleStore].get(found.id))


@router.get("/{schedule_id}", summary="Everything known of a schedule", responses=problems(404, 503))
def get_schedule(schedule_id: ScheduleId, parts: Parts) -> ScheduleView:
    return ScheduleView.of(parts[ScheduleStore].get(schedule_id))


@router.patch("/{schedule_id}", summary="Change a schedule", responses=problems(404, 409, 413, 503))
def change_schedule(schedule_id: ScheduleId, body: ScheduleChange, parts: Parts) -> ScheduleView:
    """What is given replaces what is there, all of it or nothing. Once it is answered, no run of what it was before
    begins any more; runs under way go on. Its slots stay as they are unless its times are changed.
    """
    return ScheduleView.of(parts[ScheduleChanges].apply(schedule_id, change_of(body, parts.settings)))


@router.delete("/{schedule_id}", summary="Delete a schedule", status_code=204, responses=problems(404, 409, 503))
def delete_schedule(schedule_id: ScheduleId, parts: Parts) -> None:
    """With its history. Its runs stay, also the one under way."""
    parts[ScheduleChanges].delete(schedule_id)


@router.post("/{schedule_id}/pause", summary="Pause a schedule", responses=problems(404, 409, 503))
def pause_schedule(schedule_id: ScheduleId, parts: Parts) -> ScheduleView:
    """No run begins after the answer; the one under way goes on. Slots that pass meanwhile are not made up for."""
    return ScheduleView.of(parts[ScheduleChanges].pause(schedule_id))


@router.post("/{schedule_id}/resume", summary="Resume a schedule", responses=problems(404, 409, 503))
def resume_schedule(schedule_id: ScheduleId, parts: Parts) -> ScheduleView:
    """From the first slot that is still to come."""
    return ScheduleView.of(parts[ScheduleChanges].resume(schedule_id))


@router.post(
    "/{schedule_id}/run",
    summary="Run a schedule now",
    response_model_exclude_none=True,
    responses=problems(404, 409, 503),
)
def run_schedule(schedule_id: ScheduleId, parts: Parts) -> CrawlReceipt:
    """Beside its slots, which stay as they are. 409 while a run goes on and its `overlap` is `skip`."""
    return CrawlReceipt.of(parts[ScheduleChanges].run_now(schedule_id).id, cached=False)


@router.get("/{schedule_id}/next", summary="Preview the coming runs", responses=problems(404, 503))
def preview_schedule(
    schedule_id: ScheduleId, query: Annotated[PreviewQuery, Query()], parts: Parts
) -> SchedulePreview:
    """With the jitter that they will have. For a paused schedule those it would have; none for one that has ended."""
    schedule = parts[ScheduleStore].get(schedule_id)
    count = query.count if schedule.max_runs is None else min(query.count, schedule.max_runs - schedule.runs)
    if schedule.state is ScheduleState.ENDED or count <= 0:
        return SchedulePreview.of(schedule, [])
    # a slot that is due and not yet fired is still to come
    after = min(parts.clock(), (schedule.next_run or parts.clock()) - _MILLISECOND)
    return SchedulePreview.of(schedule, preview(schedule.id, schedule.timing, after, count))


@router.get("/{schedule_id}/history", summary="What became of its slots", responses=problems(404, 503))
def schedule_history(
    schedule_id: ScheduleId, query: Annotated[HistoryQuery, Query()], parts: Parts
) -> ScheduleHistory:
    """Fired and how late, skipped and why, missed. Pass `next` as `after` for the page that follows."""
    parts[ScheduleStore].get(schedule_id)
    entries, following = parts[LedgerStore].page(schedule_id, query.limit, query.after)
    return ScheduleHistory(entries=[LedgerEntryView.of(entry) for entry in entries], next=following)
