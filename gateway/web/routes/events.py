"""`GET /events`: many jobs in one stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from gateway.web.access import Called
from gateway.web.event_stream.overview import MAX_JOBS
from gateway.web.event_stream.streams import EventStreams
from gateway.web.schemas.problem import problems
from gateway.web.schemas.types import UserId

_EXAMPLE = 'event: status\ndata: {"job_id":"…","user_id":"abc123","status":"running","attempt":1}\n\n'

router = APIRouter(tags=["jobs"])


@router.get(
    "/events",
    summary="Follow many jobs at once",
    response_class=Response,
    responses={
        200: {
            "description": "A `snapshot`, then `status` and `progress` as they come",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **problems(404, 422, 503),
    },
)
async def follow_jobs(
    request: Request,
    caller: Called,
    job_id: Annotated[list[str], Query(default_factory=list, max_length=MAX_JOBS, description="Only these")],
    user_id: Annotated[UserId | None, Query(description="Only this user's")] = None,
) -> Response:
    """All jobs that are not final, and those that come; with `job_id`, given once per job, only these."""
    streams: EventStreams = request.app.state.event_streams
    return await streams.overview(job_id, caller.only(user_id))
