"""Lines that are not in a ring: from Redis while they are young, else from MongoDB."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar, cast

import redis
import redis.asyncio
import structlog
from attrs import define, field
from starlette.responses import Response, StreamingResponse

from gateway.contract import redis_keys
from gateway.contract.log_line import MAX_LINE, LogEntry, Position, split_entries
from gateway.errors import InvalidRequestError
from gateway.jobs.job import Job
from gateway.jobs.store import JobStore
from gateway.logs.search import all_lines
from gateway.logs.store import LogChunk, LogStore
from gateway.stores.mongo import mongo_errors
from gateway.web.event_stream.lines import LineFilter, Run, log_event

#: Uncompressed bytes of log read from MongoDB at a time.
PAGE_BYTES = 256 << 10
#: Entries read from Redis at a time.
PAGE_ENTRIES = 1000
#: Smaller runs are not kept: they are the live end, which will have grown by the next look.
_KEEP_BYTES = 64 << 10

Result = TypeVar("Result")
log = structlog.get_logger()


@define(eq=False, repr=False, slots=False)
class History:
    _redis: redis.asyncio.Redis
    _jobs: JobStore
    _logs: LogStore
    _executor: Executor
    _cache: RunCache

    async def ask(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Run a store's method in a thread of ours. Raises what it raises; `UnavailableError` if MongoDB is away."""

        def guarded() -> Result:
            with mongo_errors():
                return call(*arguments)

        return await asyncio.get_running_loop().run_in_executor(self._executor, guarded)

    async def job(self, job_id: str) -> Job:
        """Raises `JobNotFoundError`, `UnavailableError`."""
        return await self.ask(self._jobs.get, job_id)

    async def render(self, job_id: str, position: Position, render: Callable[[LogChunk], bytes]) -> tuple[bytes, int]:
        """A page of what MongoDB has from `position` on, and where it ends: at `position` if there is no more.

        Raises `UnavailableError`.
        """

        def page() -> tuple[bytes, int]:
            chunks = self._logs.read(job_id, position.attempt, position.offset, PAGE_BYTES)
            return b"".join(map(render, chunks)), chunks[-1].end if chunks else position.offset

        return await self.ask(page)

    async def read(self, job_id: str, position: Position, *, live: bool) -> Run | None:
        """A run that holds the line after `position`; one that begins later, if only later lines exist; or `None`.

        Asks Redis only for a log that is `live`. Raises `UnavailableError`.
        """
        run = self._cache.find(job_id, position)
        if run is None and live:
            run = await self._from_redis(job_id, position)
        if run is None:
            run = await self.ask(self._from_mongodb, job_id, position)
        if run is not None and run.size >= _KEEP_BYTES:
            self._cache.put(job_id, run)
        return run

    async def _from_redis(self, job_id: str, position: Position) -> Run | None:
        attempt, offset = position
        # ids are offsets, and no entry is longer than MAX_LINE: the range bounds the memory, and misses nothing
        first, last = f"({attempt}-{offset}", f"{attempt}-{offset + MAX_LINE}"
        try:
            found = await self._redis.xrange(redis_keys.log_stream(job_id, attempt), first, last, PAGE_ENTRIES)
        except (redis.RedisError, OSError) as error:
            log.warning("log_stream_unreadable", job_id=job_id, error=str(error))
            return None
        rows = cast("list[tuple[bytes, dict[bytes, bytes]]]", found or [])
        run = Run(attempt, offset)
        for entry_id, fields in rows:
            if int(fields[b"s"]) > run.end:
                break
            end = int(entry_id.partition(b"-")[2])
            run.append(end, log_event(attempt, end, fields[b"d"]))
        return run if len(run) else None

    def _from_mongodb(self, job_id: str, position: Position) -> Run | None:
        run: Run | None = None
        for chunk in self._logs.read(job_id, position.attempt, position.offset, PAGE_BYTES):
            if run is None:
                run = Run(position.attempt, chunk.start)
            elif chunk.start != run.end:
                break
            # a chunk ends where a line ends, so what looks torn at its end is how the log ends
            for entry in split_entries(chunk.data, chunk.start, chunk.head_level, final=True)[0]:
                run.append(entry.end, log_event(position.attempt, entry.end, entry.to_json()))
        return run


@define(eq=False, repr=False, slots=False)
class RunCache:
    """The runs used last, up to a number of bytes. A line never changes, so neither does a run."""

    _max_bytes: int
    _size: int = field(init=False, default=0)
    _runs: OrderedDict[tuple[str, int, int], Run] = field(init=False, factory=OrderedDict)

    def find(self, job_id: str, position: Position) -> Run | None:
        for key, run in self._runs.items():
            if key[0] == job_id and run.covers(position):
                self._runs.move_to_end(key)
                return run
        return None

    def put(self, job_id: str, run: Run) -> None:
        key = (job_id, run.attempt, run.start)
        if (replaced := self._runs.pop(key, None)) is not None:
            self._size -= replaced.size
        self._runs[key] = run
        self._size += run.size
        while self._size > self._max_bytes:
            self._size -= self._runs.popitem(last=False)[1].size


# --- the log so far as a file: what MongoDB has of it, streamed, never held

TEXT = "text/plain"
NDJSON = "application/x-ndjson"


@define(eq=False, repr=False, slots=False)
class LogDownload:
    _history: History

    def response(self, job: Job, media_type: str, wanted: LineFilter, attempt: int | None) -> Response:
        """One attempt, or all of them in order. Raises `InvalidRequestError` if there is no such attempt."""
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
    """The bytes as the spider wrote them, in any encoding."""
    if not wanted.is_active:
        return chunk.data
    lines = (chunk.data[entry.start - chunk.start : entry.end - chunk.start] for entry in _wanted(chunk, wanted))
    return b"".join(lines)


def _ndjson(chunk: LogChunk, wanted: LineFilter) -> bytes:
    """Each event's data with its id in front, one event a line."""
    return b"".join(
        b'{"id":"%d-%d",%b\n' % (chunk.attempt, entry.end, entry.to_json()[1:]) for entry in _wanted(chunk, wanted)
    )


def _wanted(chunk: LogChunk, wanted: LineFilter) -> list[LogEntry]:
    entries = [line.entry for line in all_lines(chunk) if wanted.logger in {None, line.logger}]
    return [entry for entry in entries if not wanted.is_active or wanted.accepts(entry.to_json())]
