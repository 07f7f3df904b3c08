"""`GET /jobs/{job_id}/items`: the results, while the crawl runs and after."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from gateway.domain.clock import to_iso
from gateway.domain.errors import InvalidRequestError
from gateway.domain.job import Job
from gateway.web.dependencies import JobId, Wired
from gateway.web.item_export import ItemExport
from gateway.web.item_formats import FORMATS
from gateway.web.schemas.listing import ItemsQuery
from gateway.web.schemas.problem import Responses, problems

router = APIRouter(prefix="/jobs", tags=["jobs"])

#: Cursor of the page that follows, for the formats that have no place for one.
NEXT_HEADER = "X-Next"
#: When the items of an old job were removed: nothing is what is left, not what was found.
REMOVED_HEADER = "X-Removed-At"
_JSON_SCHEMA = {
    "type": "object",
    "required": ["items", "next"],
    "properties": {
        "items": {"type": "array", "items": {"type": "object"}},
        "next": {"type": ["string", "null"], "description": "`after` of the next page."},
    },
}
_CONTENT = {
    "application/json": {
        "schema": _JSON_SCHEMA,
        "example": {"items": [{"url": "https://example.com/"}], "next": None},
    },
    "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"url":"https://example.com/"}\n'},
    "text/csv": {"schema": {"type": "string"}, "example": "url\r\nhttps://example.com/\r\n"},
}
_OK = {
    "description": "The items, in the order they were scraped.",
    "content": _CONTENT,
    "headers": {
        NEXT_HEADER: {"description": "With `limit`, if more follow: `after` of the next page.",
                      "schema": {"type": "string"}},
        REMOVED_HEADER: {"description": "The items had been kept for long enough, and were removed then.",
                         "schema": {"type": "string", "format": "date-time"}},
    },
}  # fmt: skip
_RESPONSES: Responses = {200: _OK, **problems(404, 503)}


@router.get("/{job_id}/items", summary="Download items", response_class=Response, responses=_RESPONSES)
async def get_items(job_id: JobId, query: Annotated[ItemsQuery, Query()], wiring: Wired) -> Response:
    """Without `limit` all items there are at this moment, streamed. A CSV has the columns of its first items,
    or those that `fields` names.
    """
    job = await wiring.reads.run(wiring.jobs.get, job_id)
    encoder = FORMATS[query.format](query.field_names)
    export = ItemExport(wiring.items, job_id, _attempt(job, query.attempt), query.after, encoder)
    headers = {"Content-Disposition": f'attachment; filename="{job_id}.{encoder.extension}"'}
    if job.items_removed_at is not None:
        headers[REMOVED_HEADER] = to_iso(job.items_removed_at)
    if query.limit is None:
        first = await wiring.reads.run(export.next_batch)
        return StreamingResponse(export.stream(wiring.reads, first), headers=headers, media_type=encoder.media_type)
    data, following = await wiring.reads.run(export.page, query.limit)
    if following:
        headers[NEXT_HEADER] = following
    return Response(data, headers=headers, media_type=encoder.media_type)


def _attempt(job: Job, wanted: str | None) -> int | None:
    """`None` for every attempt; 0, which has no items, while there is none. Raises `InvalidRequestError`."""
    if wanted == "all":
        return None
    if wanted is not None:
        if wanted not in job.attempts:
            numbers = sorted(map(int, job.attempts))
            raise InvalidRequestError("attempt", f"must be one of {numbers}" if numbers else "there is none yet")
        return int(wanted)
    return job.current.attempt if job.current else 0
