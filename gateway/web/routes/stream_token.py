"""`POST /jobs/{id}/stream-token`: for browsers, whose `EventSource` cannot send a key."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.domain.errors import ConflictError
from gateway.domain.stream_token import sign
from gateway.services.job_or_schedule import JobOrSchedule
from gateway.web.access import Called
from gateway.web.dependencies import JobId, Parts
from gateway.web.key_ring import KeyRing
from gateway.web.schemas.problem import problems
from gateway.web.schemas.stream_token import StreamTokenView
from gateway.web.store_route import StoreRoute

router = APIRouter(tags=["jobs"], route_class=StoreRoute)


@router.post("/jobs/{job_id}/stream-token", summary="Open a log to a browser", responses=problems(404, 409, 503))
def issue_stream_token(job_id: JobId, parts: Parts, caller: Called) -> StreamTokenView:
    """For whoever cannot send a key: within 60 seconds `url` opens this job's log, and nothing else. What is open by
    then stays open. 409 while there are no keys, when a log takes none.
    """
    parts[JobOrSchedule].find(job_id)
    if caller.key is None:
        raise ConflictError("there are no keys, so the log is open without a token")
    return StreamTokenView.of(job_id, sign(caller.key, job_id, parts.clock(), parts[KeyRing].seal))
