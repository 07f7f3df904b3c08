"""A job's log, live or so far, and `GET /events`: many jobs in one stream."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.access.keys import Scope, sign
from gateway.errors import ConflictError, InvalidRequestError
from gateway.jobs.queries import JobFilter
from gateway.schedules.store import JobOrSchedule
from gateway.web.authentication import KeyRing
from gateway.web.authorisation import Called, needs
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import problems
from gateway.web.event_stream.log_lines import MAX_TEXT, NDJSON, TEXT, LineFilter
from gateway.web.event_stream.overview_stream import MAX_JOBS
from gateway.web.event_stream.streams import EventStreams
from gateway.web.schemas.stream import EVENT_STREAM, LOG, MANY_JOBS, event_content
from gateway.web.schemas.types import LogLevel, Timestamp, UserId

_JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_TOKEN = f"st_4f1d9c2b3a4e_1811840460_{'0d4f5c6b7a8e4f1d' * 4}"


class StreamTokenView(BaseModel):
    """A token with which a browser can follow a log."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "token": _TOKEN,
                    "expires_at": "2027-06-01T09:01:00.000Z",
                    "url": f"/jobs/{_JOB}/logs?token={_TOKEN}",
                }
            ]
        }
    )

    token: str
    expires_at: Timestamp
    url: str = Field(description="The URL for an `EventSource`.")


# --- `POST /jobs/{id}/stream-token`: for browsers, whose `EventSource` cannot send a key

token_router = Router(tags=["jobs"])


@token_router.post(
    "/jobs/{job_id}/stream-token", summary="Let a browser follow a log", responses=problems(404, 409, 503)
)
@needs(Scope.READ)
def create_stream_token(job_id: JobId, parts: Parts, caller: Called) -> StreamTokenView:
    """For clients that cannot send a key: for 60 seconds `url` opens this job's log, and nothing else. A stream that
    is open by then stays open. 409 while there are no keys, because a log needs none then.
    """
    parts[JobOrSchedule].find(job_id)
    if caller.key is None:
        raise ConflictError("there are no keys, so the log is open without a token")
    token = sign(caller.key, job_id, parts.clock(), parts[KeyRing].seal)
    return StreamTokenView(token=str(token), expires_at=token.expires_at, url=f"/jobs/{job_id}/logs?token={token}")


# --- `GET /jobs/{id}/logs`: follow the log live, or read it as far as it exists

#: What `Accept` may ask for; the first one is the default.
_OFFERED = (EVENT_STREAM, TEXT, NDJSON)
_LOGS_EXAMPLE = (
    'retry: 2000\n\nevent: log\nid: 1-78\ndata: {"ts":"…","level":"INFO","logger":"seo","msg":"Spider opened"}\n\n'
)

_Level = Annotated[LogLevel | None, Query(description="Only lines of this level or higher, `DEBUG` to `CRITICAL`")]
_Text = Annotated[
    str | None,
    Query(
        max_length=MAX_TEXT,
        description="Only lines with this text in the message or the logger's name, in upper or lower case",
    ),
]
_FORMATS = {"text": TEXT, "jsonl": NDJSON}

router = Router(tags=["jobs"])


@router.get(
    "/jobs/{job_id}/logs",
    summary="Follow the log",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events from the first line on",
            "content": event_content(LOG, _LOGS_EXAMPLE),
        },
        204: {"description": "The client has received the end of the stream: do not reconnect"},
        **problems(404, 422, 503),
    },
)
@needs(Scope.READ)
async def follow_job_log(
    job_id: Annotated[str, Path(description="As `POST /crawl` gave it.", examples=[_JOB])],
    request: Request,
    *,
    level: _Level = None,
    q: _Text = None,
    logger: Annotated[str | None, Query(max_length=500, include_in_schema=False)] = None,
    attempt: Annotated[int | None, Query(ge=1, le=999_999, include_in_schema=False)] = None,
    file_format: Annotated[Literal["text", "jsonl"] | None, Query(alias="format", include_in_schema=False)] = None,
    last_event_id: Annotated[
        str | None, Query(description="For clients that cannot send the header `Last-Event-ID`")
    ] = None,
    token: Annotated[
        str | None, Query(description="A token of `POST …/stream-token`, for clients that cannot send a key")
    ] = None,
) -> Response:
    """`Last-Event-ID` resumes a stream after that event. With `Accept: text/plain` or `application/x-ndjson` the
    answer is that of `/jobs/{job_id}/logs/download`.
    """
    # declared for the API's description; the streams take them from the request, beside headers of the same purpose
    del last_event_id, token
    streams: EventStreams = request.app.state.event_streams
    wanted = LineFilter.of(level, q, logger)
    media_type = _FORMATS.get(file_format or "") or preferred_media_type(request.headers.get("accept", ""))
    if media_type == EVENT_STREAM:
        for name, value in (("attempt", attempt), ("logger", logger)):
            if value is not None:
                raise InvalidRequestError(name, f"is for downloads (Accept: text/plain): a stream has every {name}")
        return await streams.response(job_id, request, wanted=wanted)
    download = await streams.download(job_id, media_type, wanted, attempt)
    return download if file_format is None else _to_save(download)


@router.get(
    "/jobs/{job_id}/logs/download",
    summary="Download the log so far",
    response_class=Response,
    responses={
        200: {
            "description": "The lines, in order",
            "content": {TEXT: {"schema": {"type": "string"}}, NDJSON: {"schema": {"type": "string"}}},
        },
        **problems(404, 422, 503),
    },
)
@needs(Scope.READ)
async def download_job_log(
    job_id: JobId,
    request: Request,
    *,
    level: _Level = None,
    q: _Text = None,
    logger: Annotated[
        str | None, Query(max_length=500, description="Only lines of this logger, and what follows them")
    ] = None,
    attempt: Annotated[int | None, Query(ge=1, le=999_999, description="Only the log of this attempt")] = None,
    file_format: Annotated[
        Literal["text", "jsonl"], Query(alias="format", description="Text as people read it, or an object a line")
    ] = "text",
) -> Response:
    """As a file to save: of a job that goes on, what there is."""
    streams: EventStreams = request.app.state.event_streams
    wanted = LineFilter.of(level, q, logger)
    return _to_save(await streams.download(job_id, _FORMATS[file_format], wanted, attempt))


def _to_save(download: Response) -> Response:
    """The download, with a header by which a browser saves it instead of showing it."""
    if shown := download.headers.get("content-disposition"):
        download.headers["content-disposition"] = shown.replace("inline", "attachment", 1)
    return download


def preferred_media_type(accept: str) -> str:
    """The offered type that `Accept` prefers; the stream if it names none of ours."""
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


# --- `GET /events`: many jobs in one stream

_EVENTS_EXAMPLE = 'event: status\ndata: {"job_id":"…","user_id":"abc123","status":"running","attempt":1}\n\n'

events_router = Router(tags=["jobs"])


@events_router.get(
    "/events",
    summary="Follow many jobs at once",
    response_class=Response,
    responses={
        200: {
            "description": "A `snapshot`, then `status` and `progress` as they come",
            "content": event_content(MANY_JOBS, _EVENTS_EXAMPLE),
        },
        **problems(404, 422, 503),
    },
)
@needs(Scope.READ, by_project=True)
async def follow_jobs(
    request: Request,
    caller: Called,
    job_id: Annotated[list[str], Query(default_factory=list, max_length=MAX_JOBS, description="Only these jobs")],
    user_id: Annotated[UserId | None, Query(description="Only jobs of this user")] = None,
) -> Response:
    """Follows all jobs that are not final, and new ones; with `job_id`, given once per job, only these jobs."""
    streams: EventStreams = request.app.state.event_streams
    return await streams.overview(job_id, caller.limited(JobFilter(), user_id))
