"""The event streams of one gateway process, behind one door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import anyio
from starlette.requests import Request
from starlette.responses import Response

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import InvalidRequestError
from gateway.domain.job import Job
from gateway.redis.client import connect_async
from gateway.services.job_or_schedule import JobOrSchedule, RunOf
from gateway.storage.job_queries import JobQueries
from gateway.storage.jobs import JobStore
from gateway.storage.logs import LogStore
from gateway.storage.schedules import ScheduleStore
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
from gateway.web.event_stream.schedule_stream import Waiting, of_run
from gateway.web.event_stream.sse import event
from gateway.web.schemas.job import JobStatusView
from gateway.web.thread_pool import Check, CheckedExecutor

#: `event`, data: sent before anything else.
FirstEvent = tuple[str, dict[str, Any]]
_NO_CONTENT = 204


def describe(job: Job) -> dict[str, Any]:
    """The body of `GET /jobs/{id}/status`."""
    return JobStatusView.of(job).model_dump(mode="json")


def _unchecked() -> None:
    """Whether the stores are there shows when they are called."""


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
        schedules: ScheduleStore,
        *,
        limits: StreamLimits | None = None,
        describe: Describe = describe,
        clock: Clock = utc_now,
        check: Check = _unchecked,
    ) -> None:
        """`check` is asked before each call of the stores, and raises what is to be told instead."""
        self._limits = limits or StreamLimits()
        self._check = check
        self._describe = describe
        self._redis_url = redis_url
        self._clock = clock
        self._stores = jobs, logs, queries
        self._named = JobOrSchedule(jobs, schedules, queries)

    async def start(self) -> None:
        """Does not wait for Redis, which may be away."""
        jobs, logs, queries = self._stores
        self._shutdown = anyio.Event()
        self._executor = CheckedExecutor(self._limits.threads, "log-reads", self._check)
        self._redis = connect_async(self._redis_url)
        self._history = History(self._redis, jobs, logs, self._executor, self._limits.cache_bytes)
        self._hub = Hub(self._redis_url, self._history, self._limits)
        self._downloads = LogDownload(self._history)
        self._overview = Overview(self._hub, self._history, queries, self._describe)
        self._waiting = Waiting(self._history, self._named, self._limits, self._clock, self._shutdown)
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
        resume = _resume_point(request)
        named = await self._history.ask(self._named.find, job_id, resume.run if resume else None)
        wanted = wanted or LineFilter()
        if isinstance(named, RunOf):
            return await self._follow_schedule(named, resume, first_event, wanted)
        position = resume.within(job_id) if resume else None
        if position is not None and await self._is_over(named, position):
            return Response(status_code=_NO_CONTENT)
        return self._streamed(self._chunks(named, position or START, wanted, first_event))

    async def _follow_schedule(
        self, named: RunOf, resume: ResumePoint | None, first_event: FirstEvent | None, wanted: LineFilter
    ) -> Response:
        """Goes on with the run that was followed; after its end with the latest, if that is another one."""
        schedule, job = named
        position = resume.within(job.id if job else schedule.id, schedule.id) if resume else None
        if position is not None and (job is None or await self._is_over(job, position)):
            latest = await self._history.ask(self._named.latest_run, schedule.id)
            if latest is None or (job and latest.id == job.id):
                return Response(status_code=_NO_CONTENT)
            job, position = latest, None

        def follow(run: Job, first_event: FirstEvent | None = None) -> AsyncIterator[bytes]:
            return of_run(self._chunks(run, position or START, wanted, first_event), run.id)

        if job is not None:
            return self._streamed(follow(job, first_event))
        opening = event(*first_event) if first_event else b""
        return self._streamed(self._waiting.events(schedule, opening, follow))

    def _streamed(self, chunks: AsyncIterator[bytes]) -> Response:
        return StreamResponse(chunks, self._shutdown, self._limits)

    async def overview(self, job_ids: Sequence[str], user_id: str | None) -> Response:
        """`status` and `progress` of many jobs: those named, else all that are alive (of one user, if given)."""
        jobs = await self._overview.jobs(job_ids, user_id)
        chunks = self._overview.events(jobs, user_id, named=bool(job_ids), closing=self._shutdown.is_set)
        return self._streamed(chunks)

    async def download(self, job_id: str, media_type: str, wanted: LineFilter, attempt: int | None) -> Response:
        """The log so far, streamed. Raises `InvalidRequestError` where there is no such attempt."""
        named = await self._history.ask(self._named.find, job_id)
        job = named.job if isinstance(named, RunOf) else named
        if job is None:
            return Response(media_type=media_type)
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
        self, job: Job, position: Position, wanted: LineFilter, first_event: FirstEvent | None
    ) -> AsyncGenerator[bytes]:
        opening = event(*first_event, position) if first_event else b""
        changed = asyncio.Event()
        with self._hub.watch(job, changed) as feed:
            reader = Reader(feed, position, wanted, self._limits, self._describe)
            async with aclosing(reader.events(changed, self._shutdown.is_set, opening)) as events:
                async for chunk in events:
                    yield chunk

    async def _is_over(self, job: Job, position: Position) -> bool:
        """Whoever stands there has seen the end."""
        return job.is_final and position >= await self._end(job)

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


class ResumePoint(NamedTuple):
    """Where a client comes back to."""

    #: In a schedule's stream, the job of the run that it followed.
    run: str | None
    position: Position
    #: Where it said so.
    source: str

    def within(self, job_id: str, schedule_id: str | None = None) -> Position | None:
        """`None`, the beginning, where that run of the schedule is gone. Raises `InvalidRequestError`."""
        if self.run == job_id or (self.run is None and schedule_id is None):
            return self.position
        if self.run is None or schedule_id is None:
            raise InvalidRequestError(self.source, "is the id of an event of another stream")
        return None


def _resume_point(request: Request) -> ResumePoint | None:
    """The header wins: it is the later one when a browser comes back to a URL that holds the other."""
    for name, text in (
        ("Last-Event-ID", request.headers.get("last-event-id")),
        ("last_event_id", request.query_params.get("last_event_id")),
    ):
        if text:
            run, _, rest = text.rpartition(".")
            position = Position.parse(rest)
            if position is None:
                raise InvalidRequestError(name, "is not the id of an event, which looks like 1-20480")
            return ResumePoint(run or None, max(position, START), name)
    return None
