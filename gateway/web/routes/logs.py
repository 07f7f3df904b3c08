"""`GET /jobs/{id}/logs`: follow it live, or take what there is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from gateway.domain.errors import InvalidRequestError
from gateway.web.event_stream.line_filter import MAX_TEXT, LineFilter
from gateway.web.event_stream.log_download import NDJSON, TEXT
from gateway.web.event_stream.streams import EventStreams
from gateway.web.schemas.problem import problems

EVENT_STREAM = "text/event-stream"
#: What `Accept` may ask for; the first one is given where it does not matter.
_OFFERED = (EVENT_STREAM, TEXT, NDJSON)
_EXAMPLE = (
    'retry: 2000\n\nevent: log\nid: 1-78\ndata: {"ts":"…","level":"INFO","logger":"seo","msg":"Spider opened"}\n\n'
)

router = APIRouter(tags=["jobs"])


@router.get(
    "/jobs/{job_id}/logs",
    summary="Follow the log, or download it",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events from the first line on, or the log so far",
            "content": {
                EVENT_STREAM: {"schema": {"type": "string"}, "example": _EXAMPLE},
                TEXT: {"schema": {"type": "string"}},
                NDJSON: {"schema": {"type": "string"}},
            },
        },
        204: {"description": "The client has seen the end: stop"},
        **problems(404, 422, 503),
    },
)
async def follow_log(
    job_id: str,
    request: Request,
    *,
    level: Annotated[str | None, Query(description="Lowest level shown, `DEBUG` to `CRITICAL`")] = None,
    q: Annotated[
        str | None, Query(max_length=MAX_TEXT, description="Text in message or logger, of either case")
    ] = None,
    attempt: Annotated[int | None, Query(ge=1, le=999_999, description="Downloads: this one instead of all")] = None,
    last_event_id: Annotated[str | None, Query(description="Where `Last-Event-ID` cannot be sent")] = None,
    token: Annotated[str | None, Query(description="Of `POST …/stream-token`, where a key cannot be sent")] = None,
) -> Response:
    """`Accept: text/event-stream` (also the default) follows the log; `text/plain` and `application/x-ndjson` are
    what there is of it by now. `Last-Event-ID` resumes a stream after that event.
    """
    # declared for the reader of the API; taken from the request beside the headers of that purpose
    del last_event_id, token
    streams: EventStreams = request.app.state.event_streams
    wanted = LineFilter.of(level, q)
    media_type = preferred_media_type(request.headers.get("accept", ""))
    if media_type == EVENT_STREAM:
        if attempt is not None:
            raise InvalidRequestError("attempt", "is for downloads (Accept: text/plain): a stream has every attempt")
        return await streams.response(job_id, request, wanted=wanted)
    return await streams.download(job_id, media_type, wanted, attempt)


def preferred_media_type(accept: str) -> str:
    """The offered type that `Accept` likes best; the stream where it says nothing of ours."""
    best, best_quality = _OFFERED[0], 0.0
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((_quality(text[2:]) for text in parameters if text.startswith("q=")), 1.0)
        if name in _OFFERED and quality > best_quality:
            best, best_quality = name, quality
    return best


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
