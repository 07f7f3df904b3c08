"""The event streams of one gateway process, behind one door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response

from gateway.domain.errors import InvalidRequestError
from gateway.domain.job import Job
from gateway.redis.client import connect_async
from gateway.storage.job_queries import JobQueries
from gateway.storage.jobs import JobStore
from gateway.storage.logs import LogStore
from gateway.web.event_stream.ending import wait_for_end
from gateway.web.event_stream.history import History
from gateway.web.event_stream.hub import Hub
from gateway.web.event_stream.limits import StreamLimits
from gateway.web.event_stream.line_filter import LineFilter
from gateway.web.event_stream.log_download import LogDownload
from gateway.web.event_stream.overview import Overview
from gateway.web.event_stream.position import START, Position
from gateway.web.event_stream.reader import Describe, Reader
from gateway.web.event_stream.response import StreamResponse
from gateway.web.event_stream.sse import event
from gateway.web.schemas.job import JobStatusView

#: `event`, data: sent before anything else.
FirstEvent = tuple[str, dict[str, Any]]
_NO_CONTENT = 204


def describe(job: Job) -> dict[str, Any]:
    """The body of `GET /jobs/{id}/status`."""
    return JobStatusView.of(job).model_dump(mode="json")


class EventStreams:
    """Create it anywhere, `start()` it on the loop that serves, `stop()` it when the last response is done.

    Store errors surface as `JobNotFoundError` and `UnavailableError`.
    """

    def __init__(
        self,
        redis_url: str,
        jobs: JobStore,
        logs: LogStore,
        queries: JobQueries,
        *,
        limits: StreamLimits | None = None,
        describe: Describe = describe,
    ) -> None:
        self._limits = limits or StreamLimits()
        self._describe = describe
        self._redis_url = redis_url
        self._stores = jobs, logs, queries

    async def start(self) -> None:
        """Does not wait for Redis, which may be away."""
        jobs, logs, queries = self._stores
        self._shutdown = anyio.Event()
        self._executor = ThreadPoolExecutor(self._limits.threads, thread_name_prefix="log-reads")
        self._redis = connect_async(self._redis_url)
        self._history = History(self._redis, jobs, logs, self._executor, self._limits.cache_bytes)
        self._hub = Hub(self._redis_url, self._history, self._limits)
        self._downloads = LogDownload(self._history)
        self._overview = Overview(self._hub, self._history, queries, self._describe)
        self._hub.start()
        self._farewell = asyncio.create_task(self._say_goodbye(), name="event-stream-farewell")

    async def stop(self) -> None:
        self._farewell.cancel()
        self._shutdown.set()
        await self._hub.stop()
        await self._redis.aclose()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def response(
        self,
        job_id: str,
        request: Request,
        *,
        first_event: FirstEvent | None = None,
        wanted: LineFilter | None = None,
    ) -> Response:
        """The job's stream from the beginning, or from where `Last-Event-ID` (header or query) says.

        Without content if the client has seen the end. Raises `InvalidRequestError` for an id that is none.
        """
        position = _resume_position(request)
        job = await self._history.job(job_id)
        if position is not None and job.is_final and position >= await self._end(job):
            return Response(status_code=_NO_CONTENT)
        opening = b"" if first_event is None else event(*first_event, position or START)
        chunks = self._chunks(job, position or START, wanted or LineFilter(), opening)
        return StreamResponse(chunks, self._shutdown, self._limits)

    async def overview(self, job_ids: Sequence[str], user_id: str | None) -> Response:
        """`status` and `progress` of many jobs: those named, else all that are alive (of one user, if given)."""
        jobs = await self._overview.jobs(job_ids, user_id)
        chunks = self._overview.events(jobs, user_id, named=bool(job_ids), closing=self._shutdown.is_set)
        return StreamResponse(chunks, self._shutdown, self._limits)

    async def download(self, job_id: str, media_type: str, wanted: LineFilter, attempt: int | None) -> Response:
        """The log so far, streamed. Raises `InvalidRequestError` where there is no such attempt."""
        job = await self._history.job(job_id)
        return self._downloads.response(job, media_type, wanted, attempt)

    async def ending(self, job_id: str, seconds: float) -> Job:
        """The job as it has ended, or as it is after so many seconds (or when the server is told to stop).

        Raises `JobNotFoundError`, `UnavailableError`.
        """
        changed = asyncio.Event()
        with self._hub.watch(await self._history.job(job_id), changed) as feed:
            await wait_for_end(feed, changed, seconds)
        return await self._history.job(job_id)

    async def _chunks(
        self, job: Job, position: Position, wanted: LineFilter, opening: bytes
    ) -> AsyncGenerator[bytes]:
        changed = asyncio.Event()
        with self._hub.watch(job, changed) as feed:
            reader = Reader(feed, position, wanted, self._limits, self._describe)
            async with aclosing(reader.events(changed, self._shutdown.is_set, opening)) as events:
                async for chunk in events:
                    yield chunk

    async def _end(self, job: Job) -> Position:
        """The id of a final job's `end` event."""
        last = job.current
        if last is None:
            return Position(START.attempt, START.offset + 1)
        end = last.log_end if last.log_end is not None else await self._history.log_end(job.id, last.attempt)
        return Position(last.attempt, end + 1)

    async def _say_goodbye(self) -> None:
        await self._shutdown.wait()
        self._hub.wake_all()


def _resume_position(request: Request) -> Position | None:
    """The header wins: it is the later one when a browser comes back to a URL that holds the other."""
    for name, text in (
        ("Last-Event-ID", request.headers.get("last-event-id")),
        ("last_event_id", request.query_params.get("last_event_id")),
    ):
        if text:
            position = Position.parse(text)
            if position is None:
                raise InvalidRequestError(name, "is not the id of an event, which looks like 1-20480")
            return max(position, START)
    return None
