"""The log so far as a file: what MongoDB has of it, streamed, never held."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from starlette.responses import Response, StreamingResponse

from gateway.domain.errors import InvalidRequestError
from gateway.domain.job import Job
from gateway.domain.log_line import LogEntry, split_entries
from gateway.storage.logs import LogChunk
from gateway.web.event_stream.history import History
from gateway.web.event_stream.line_filter import LineFilter
from gateway.web.event_stream.position import Position

TEXT = "text/plain"
NDJSON = "application/x-ndjson"


class LogDownload:
    def __init__(self, history: History) -> None:
        self._history = history

    def response(self, job: Job, media_type: str, wanted: LineFilter, attempt: int | None) -> Response:
        """One attempt, or all of them in order. Raises `InvalidRequestError` where there is no such attempt."""
        numbers = sorted(map(int, job.attempts))
        if attempt is not None and attempt not in numbers:
            raise InvalidRequestError("attempt", f"must be one of {numbers}" if numbers else "there is none yet")
        render, ending = (_text, "log") if media_type == TEXT else (_ndjson, "jsonl")
        name = f"{job.id}.{ending}" if attempt is None else f"{job.id}-{attempt}.{ending}"
        return StreamingResponse(
            self._pages(job.id, numbers if attempt is None else [attempt], partial(render, wanted=wanted)),
            media_type=media_type,
            headers={"Content-Disposition": f'inline; filename="{name}"', "Cache-Control": "no-store"},
        )

    async def _pages(
        self, job_id: str, attempts: list[int], render: Callable[[LogChunk], bytes]
    ) -> AsyncIterator[bytes]:
        for attempt in attempts:
            position = Position(attempt, 0)
            while True:
                page, end = await self._history.render(job_id, position, render)
                if end == position.offset:
                    break
                position = Position(attempt, end)
                if page:
                    yield page


def _text(chunk: LogChunk, wanted: LineFilter) -> bytes:
    """The bytes as the spider wrote them, in whatever encoding."""
    if not wanted.is_active:
        return chunk.data
    lines = (chunk.data[entry.start - chunk.start : entry.end - chunk.start] for entry in _wanted(chunk, wanted))
    return b"".join(lines)


def _ndjson(chunk: LogChunk, wanted: LineFilter) -> bytes:
    """An event's data with its id in front, one a line."""
    return b"".join(
        b'{"id":"%d-%d",%b\n' % (chunk.attempt, entry.end, entry.to_json()[1:]) for entry in _wanted(chunk, wanted)
    )


def _wanted(chunk: LogChunk, wanted: LineFilter) -> list[LogEntry]:
    entries, _ = split_entries(chunk.data, chunk.start, chunk.head_level, final=True)
    return [entry for entry in entries if not wanted.is_active or wanted.accepts(entry.to_json())]
