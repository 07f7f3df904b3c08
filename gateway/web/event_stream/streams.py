"""The event streams of one gateway process, behind one class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import anyio
import structlog
from attrs import define, field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway.clock import Clock, to_iso, utc_now
from gateway.contract.log_line import Position
from gateway.errors import InvalidRequestError, JobNotFoundError, UnavailableError
from gateway.jobs.job import Job
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.jobs.store import JobStore
from gateway.logs.store import LogStore
from gateway.private_names import require_names
from gateway.schedules.schedule import Schedule, ScheduleState
from gateway.schedules.store import JobOrSchedule, RunOf, ScheduleStore
from gateway.stores.redis import connect_async
from gateway.web.call_queue import Threads, while_there
from gateway.web.event_stream.hub import Hub, wait_for_end
from gateway.web.event_stream.job_stream import Reader
from gateway.web.event_stream.log_lines import (
    FAREWELL,
    RETRY,
    START,
    History,
    LineFilter,
    LogDownload,
    RunCache,
    StreamLimits,
    event,
)
from gateway.web.event_stream.overview_stream import Overview
from gateway.web.lasting import LastingAnswers, abort
from gateway.web.schemas.schedule import ScheduleStatusView

require_names("sse-starlette", EventSourceResponse, "_send_with_timeout")
log = structlog.get_logger()

UntilOver = Callable[[], Coroutine[Any, Any, None]]
#: An SSE comment. The client reconnects after it, and gets a 401.
_OVER = b": the key, or the session, that opened this has ended\n\n"


class StreamResponse(EventSourceResponse):
    """sse-starlette sets `shutdown` when the server has to stop; the chunks then end by themselves.

    If the request's state has `until_over`, the stream ends when this function returns: the caller may not read on.

    Raises what `LastingAnswers.take` raises.
    """

    def __init__(
        self, chunks: AsyncIterator[bytes], shutdown: anyio.Event, limits: StreamLimits, answers: LastingAnswers
    ) -> None:
        answers.take()
        super().__init__(
            chunks,
            sep="\n",
            ping=limits.ping,
            ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
            send_timeout=limits.send_timeout,
            shutdown_event=shutdown,
            shutdown_grace_period=limits.farewell,
        )
        self._patience = limits.send_timeout
        self._unread = UnreadChunk(limits.send_timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        until_over: UntilOver | None = scope.get("state", {}).get("until_over")
        receiving = ReceiveUntilOver(receive, until_over)
        try:
            async with asyncio.timeout(None) as time_to_read:
                with self._unread.watched(time_to_read):
                    await super().__call__(scope, receiving.receive if until_over else receive, send)
        except TimeoutError:
            if not time_to_read.expired():
                raise
            log.info("slow_client_dropped", path=scope["path"])
            abort(receive)
        if receiving.is_over:
            with anyio.move_on_after(self._patience) as sending:
                await send({"type": "http.response.body", "body": _OVER, "more_body": False})
            if sending.cancelled_caught:
                abort(receive)

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        """In the place of sse-starlette's, which makes a clock for each chunk: that takes longer than to send it."""
        self._unread.begin()
        try:
            await send(message)
        finally:
            self._unread.end()


@define(eq=False, repr=False, slots=False)
class UnreadChunk:
    """Notices that a client has left a chunk unread for too long, with one timer for all chunks of a response."""

    #: Seconds.
    _patience: float
    #: How many chunks are being sent: a ping may wait behind a chunk.
    _sending: int = field(init=False, default=0)
    _since: float = field(init=False, default=0.0)

    @contextmanager
    def watched(self, time_to_read: asyncio.Timeout) -> Iterator[None]:
        """`time_to_read` expires when a chunk is left unread for too long."""
        self._loop, self._time_to_read = asyncio.get_running_loop(), time_to_read
        self._look()
        try:
            yield
        finally:
            self._timer.cancel()

    def begin(self) -> None:
        if not self._sending:
            self._since = self._loop.time()
        self._sending += 1

    def end(self) -> None:
        self._sending -= 1

    def _look(self) -> None:
        now = self._loop.time()
        end = (self._since if self._sending else now) + self._patience
        if end > now:
            self._timer = self._loop.call_at(end, self._look)
        else:
            self._time_to_read.reschedule(now)


@define(eq=False, repr=False, slots=False)
class ReceiveUntilOver:
    """`receive` of a stream that needs a key. Once `until_over` returns, the stream sees the client disconnect."""

    _receive: Receive
    _until_over: UntilOver | None
    is_over: bool = field(init=False, default=False)

    async def receive(self) -> Message:
        assert self._until_over  # noqa: S101 - not called otherwise
        message, over = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._until_over())
        try:
            await asyncio.wait({message, over}, return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                return message.result()
            self.is_over = True
            return {"type": "http.disconnect"}
        finally:
            message.cancel()
            over.cancel()


# --- a schedule followed by its own id: the stream shows its current or last run, or waits for the first one

_ID = b"\nid: "
#: Position of the end of a schedule that never ran.
NEVER_RAN = "1-1"


async def of_run(chunks: AsyncGenerator[bytes], run: str) -> AsyncIterator[bytes]:
    """The chunks with the run's job in each event's id: a schedule's stream resumes with the run that it followed.

    Data is JSON in one line, so a line that begins with `id: ` is an id.
    """
    with_run = _ID + run.encode() + b"."
    async with aclosing(chunks) as encoded:
        async for chunk in encoded:
            yield chunk.replace(_ID, with_run)


@define(eq=False, repr=False, slots=False)
class WaitingStream:
    """The stream of a schedule that has not run yet."""

    _history: History
    _named: JobOrSchedule
    _limits: StreamLimits
    _clock: Clock
    _shutdown: anyio.Event

    async def events(
        self, schedule: Schedule, opening: bytes, follow: Callable[[Job], AsyncIterator[bytes]]
    ) -> AsyncGenerator[bytes]:
        """Yield a `status` event whenever the time of the first run changes, then the chunks that `follow` makes of
        this run. The stream ends if the schedule ends, is deleted, or is moved to another project: the client asks
        again, and may no longer see it.
        """
        sent = standing(schedule)
        yield RETRY + opening + event("status", sent)
        found: RunOf | None = RunOf(schedule, None)
        while found is not None and not self._shutdown.is_set():
            if found.job is not None:
                async for chunk in follow(found.job):
                    yield chunk
                return
            if found.schedule.state is ScheduleState.ENDED:
                yield _end(found.schedule)
                return
            if standing(found.schedule) != sent:
                sent = standing(found.schedule)
                yield event("status", sent)
            found = await self._look_again(found)
        if found is not None:
            yield FAREWELL

    async def _look_again(self, found: RunOf) -> RunOf | None:
        """Look again after a while, which is short when a run is near; `None` if the schedule is gone, or moved."""
        with anyio.move_on_after(self._pause(found.schedule)):
            await self._shutdown.wait()
        try:
            again = await self._history.look(self._named.followed, found.schedule.id)
        except UnavailableError:
            return found
        except JobNotFoundError:
            return None
        if isinstance(again, RunOf) and _project(again.schedule) == _project(found.schedule):
            return again
        return None

    def _pause(self, schedule: Schedule) -> float:
        near = self._clock() + timedelta(seconds=self._limits.refresh)
        is_near = schedule.next_run is not None and schedule.next_run <= near
        return self._limits.poll if is_near else self._limits.refresh


def _project(schedule: Schedule) -> str | None:
    return schedule.crawl.spec.project if schedule.crawl else None


def standing(schedule: Schedule) -> dict[str, Any]:
    """The data of the schedule's `status` event."""
    data: dict[str, Any] = {"status": "scheduled", "attempt": 0, "state": schedule.state.value}
    if schedule.next_run is not None:
        data["next_run"] = to_iso(schedule.next_run)
    return data


def _end(schedule: Schedule) -> bytes:
    data = ScheduleStatusView.of_schedule(schedule, None).model_dump(mode="json")
    return event("end", data).replace(b"event: end", b"event: end" + _ID + f"{schedule.id}.{NEVER_RAN}".encode(), 1)


#: The name and data of an event that is sent before all others.
FirstEvent = tuple[str, dict[str, Any]]
_NO_CONTENT = 204


@define(eq=False, repr=False, slots=False)
class EventStreams:
    """Create it anywhere, `start()` it on the loop that serves, `stop()` it when the last response is done.

    Store errors surface as `JobNotFoundError` and `UnavailableError`.
    """

    _redis_url: str
    _jobs: JobStore
    _logs: LogStore
    _queries: JobQueries
    _schedules: ScheduleStore
    _threads: Threads
    _answers: LastingAnswers
    _limits: StreamLimits = field(kw_only=True, default=StreamLimits())
    _clock: Clock = field(kw_only=True, default=utc_now)

    async def start(self) -> None:
        """Does not wait for Redis, which may be away."""
        self._named = JobOrSchedule(self._jobs, self._schedules, self._queries)
        self._shutdown = anyio.Event()
        self._redis = connect_async(self._redis_url)
        runs = RunCache(self._limits.cache_bytes)
        self._history = History(self._redis, self._jobs, self._logs, self._threads, runs)
        self._hub = Hub(self._redis_url, self._history, self._limits)
        self._downloads = LogDownload(self._history, self._answers)
        self._overview = Overview(self._hub, self._history, self._queries)
        self._waiting = WaitingStream(self._history, self._named, self._limits, self._clock, self._shutdown)
        self._hub.start()
        self._farewell = asyncio.create_task(self._say_goodbye(), name="event-stream-farewell")

    async def stop(self) -> None:
        self._farewell.cancel()
        self._shutdown.set()
        await self._hub.stop()
        await self._redis.aclose()

    async def response(
        self,
        job_id: str,
        request: Request,
        *,
        first_event: FirstEvent | None = None,
        wanted: LineFilter | None = None,
    ) -> Response:
        """The job's stream from the beginning, or from where `Last-Event-ID` (header or query) says.

        The answer has no content if the client has seen the end. Raises `InvalidRequestError` for an id of no event.
        """
        self._answers.take()
        resume = _resume_point(request)
        named = await self._history.look(self._named.followed, job_id, resume.run if resume else None)
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
        """Go on with the run that the client followed, or with the latest run if the client has seen its end."""
        schedule, job = named
        position = resume.within(job.id if job else schedule.id, schedule.id) if resume else None
        if position is not None and (job is None or await self._is_over(job, position)):
            latest = await self._history.look(self._named.latest_run, schedule.id)
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
        return StreamResponse(chunks, self._shutdown, self._limits, self._answers)

    async def overview(self, job_ids: Sequence[str], wanted: JobFilter) -> Response:
        """A stream of `status` and `progress` of the named jobs, or else of the live ones of the wanted user and
        projects.
        """
        self._answers.take()
        chunks = self._overview.events(job_ids, wanted, closing=self._shutdown.is_set)
        # the first chunk is read before the answer begins, so that an error becomes an error answer
        return self._streamed(_beginning_with(await anext(chunks), chunks))

    async def download(self, job_id: str, media_type: str, wanted: LineFilter, attempt: int | None) -> Response:
        """The log so far, streamed. Raises `InvalidRequestError` if there is no such attempt."""
        self._answers.take()
        named = await self._history.look(self._named.find, job_id)
        job = named.job if isinstance(named, RunOf) else named
        if job is None:
            return Response(media_type=media_type)
        return self._downloads.response(job, media_type, wanted, attempt)

    async def ending(self, job_id: str, seconds: float) -> Job:
        """Wait until the job ends, at most `seconds`, or until the server has to stop. Returns the job as it is then.
        It takes no thread meanwhile, and is cancelled when the client leaves.

        Raises `JobNotFoundError`, `TooManyError`, `UnavailableError`.
        """
        job = await self._history.job(job_id)
        if job.is_final:
            return job
        changed = asyncio.Event()
        self._answers.take()
        with self._hub.watch(job, changed) as feed:
            await while_there(wait_for_end(feed, changed, seconds))
        return await self._history.job(job_id)

    async def _chunks(
        self, job: Job, position: Position, wanted: LineFilter, first_event: FirstEvent | None
    ) -> AsyncGenerator[bytes]:
        opening = event(*first_event, position) if first_event else b""
        changed = asyncio.Event()
        with self._hub.watch(job, changed) as feed:
            reader = Reader(feed, position, wanted, self._limits)
            async with aclosing(reader.events(changed, self._shutdown.is_set, opening)) as events:
                async for chunk in events:
                    yield chunk

    async def _is_over(self, job: Job, position: Position) -> bool:
        """Whether a client at `position` has seen the end."""
        return job.is_final and position >= await self._end(job)

    async def _end(self, job: Job) -> Position:
        """The id of a final job's `end` event."""
        last = job.current
        if last is None:
            return Position(START.attempt, START.offset + 1)
        end = last.log_end
        if end is None:
            end = await self._history.look(self._logs.end, job.id, last.attempt)
        return Position(last.attempt, end + 1)

    async def _say_goodbye(self) -> None:
        await self._shutdown.wait()
        self._hub.wake_all()


async def _beginning_with(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    async with aclosing(rest):
        yield first
        async for chunk in rest:
            yield chunk


class ResumePoint(NamedTuple):
    """The position from which a client resumes."""

    #: In a schedule's stream, the id of the job of the run that the client followed.
    run: str | None
    position: Position
    #: The header or parameter that named the position.
    source: str

    def within(self, job_id: str, schedule_id: str | None = None) -> Position | None:
        """The position in this job's log, or `None` (read from the beginning) if the run that the client followed is
        gone. Raises `InvalidRequestError` for an event of another stream.
        """
        if self.run == job_id or (self.run is None and schedule_id is None):
            return self.position
        if self.run is None or schedule_id is None:
            raise InvalidRequestError(self.source, "is the id of an event in another stream")
        return None


def _resume_point(request: Request) -> ResumePoint | None:
    """The position that the client asks for. The header wins over the parameter: when a browser reconnects, the URL
    still has the first position, and the header the last one.
    """
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
