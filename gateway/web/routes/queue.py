"""`GET /jobs/queue/status`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from gateway.services.queue_status import QueueStatus
from gateway.web.dependencies import Parts
from gateway.web.schemas.problem import problems
from gateway.web.schemas.queue import QueueQuery, QueueStatusView

router = APIRouter(tags=["platform"])


@router.get("/jobs/queue/status", summary="What waits, who works, how sites fare", responses=problems(503))
async def queue_status(query: Annotated[QueueQuery, Query()], parts: Parts) -> QueueStatusView:
    """Depth by status and by what is waited for, living workers, dead letters, and for each site the success rate and
    the durations of the runs that ended within the last `hours`.
    """
    window = timedelta(hours=query.hours)
    return QueueStatusView.of(await parts.reads.run(parts[QueueStatus].report, window))
