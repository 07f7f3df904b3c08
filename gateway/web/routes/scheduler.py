"""`/scheduler`: one tick now, and how the schedules fare."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gateway.services.scheduler_status import SchedulerStatus
from gateway.services.scheduling import Scheduling
from gateway.storage.client import truth_store_errors
from gateway.web.dependencies import Parts
from gateway.web.schemas.problem import problems
from gateway.web.schemas.scheduler import SchedulerQuery, SchedulerStatusView, TickView
from gateway.web.store_route import StoreRoute

router = APIRouter(prefix="/scheduler", tags=["schedules"], route_class=StoreRoute)


@router.post("/run", summary="Fire what is due, now", responses=problems(503))
def run_scheduler(parts: Parts) -> TickView:
    """One tick, as a beat does it twice a second: beside beats it finds nothing left, without one it stands in."""
    parts.truth.require()
    with truth_store_errors():
        return TickView.of(parts[Scheduling].tick())


@router.get("/status", summary="Who fires the schedules, and how late", responses=problems(503))
async def scheduler_status(query: Annotated[SchedulerQuery, Query()], parts: Parts) -> SchedulerStatusView:
    """Living beats, what is due, by how much the most delayed slot is late, and what became of the last ones."""
    return SchedulerStatusView.of(await parts.reads.run(parts[SchedulerStatus].report, query.last))
