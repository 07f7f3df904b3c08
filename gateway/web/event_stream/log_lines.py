"""A job's log lines on their way to a client: positions, runs of lines without a gap, the live end of the log, the
wire format, and the history, which has the lines that are no longer in the live end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, cast

import orjson
import redis
import redis.asyncio
import structlog
from attrs import define, field
from starlette.responses import Response

from gateway.contract.log_line import LEVELS, MAX_LINE, LogEntry, Position, split_entries
from gateway.errors import InvalidRequestError
from gateway.jobs.job import Job
from gateway.jobs.store import JobStore
from gateway.logs.search import all_lines
from gateway.logs.store import LogChunk, LogStore
from gateway.stores.mongo import mongo_errors
from gateway.stores.redis import log_stream
from gateway.web.call_queue import Threads
from gateway.web.lasting import Download, LastingAnswers

Result = TypeVar("Result")
log = structlog.get_logger()


class StreamLimits(NamedTuple):
    #: How much of the live end of each watched job's log this process keeps: the limit that is reached first counts.
    ring_entries: int = 4096
    ring_bytes: int = 4 << 20
    #: Bytes of history that this process keeps, because many clients come back at once.
    cache_bytes: int = 32 << 20
    #: Seconds between two chunks to the same client: what arrives in between is sent together.
    tick: float = 0.02
    #: Seconds that each client of a job adds where they make more: to wake one takes a few hundredths of this time.
    tick_each: float = 0.001
    #: Seconds that it becomes at most.
    crowd_tick: float = 0.25
    #: Seconds for which a client may leave a chunk unread before it is dropped.
    send_timeout: float = 20
    #: Seconds between two comments that keep proxies from closing a quiet connection.
    ping: float = 15
    #: Seconds between two reads of the stores while live lines may fail to arrive.
    poll: float = 1
    #: Seconds between two reads of the stores while live lines arrive.
    refresh: float = 4
    #: Seconds that a reader waits for missing lines of an attempt before it declares a `gap`.
    gap_patience: float = 3
    #: Seconds for sending clients the farewell; fewer than the server's own graceful shutdown has.
    farewell: float = 3


#: The position of a client that has read nothing.
START = Position(1, 0)


# --- the wire format: https://html.spec.whatwg.org/multipage/server-sent-events.html, encoded once for all clients.
#
# `data` is always JSON on one line, so it never holds a raw newline.

#: Tells a client to reconnect 2000 milliseconds after its connection broke.
RETRY = b"retry: 2000\n\n"
#: Tells a client to reconnect soon, because another gateway process, or this one restarted, takes over.
FAREWELL = b"retry: 500\n: the gateway is shutting down\n\n"
_DATA = b"\ndata: "


def log_event(attempt: int, end: int, data: bytes) -> bytes:
    return b"event: log\nid: %d-%d%b%b\n\n" % (attempt, end, _DATA, data)


def event(name: str, data: Any, position: Position | None = None) -> bytes:
    """`data` is anything that orjson takes."""
    identity = "" if position is None else f"\nid: {position}"
    return f"event: {name}{identity}".encode() + _DATA + orjson.dumps(data) + b"\n\n"


def data_of(encoded: bytes) -> bytes:
    """The JSON in an encoded event."""
    return encoded[encoded.index(_DATA) + len(_DATA) : -2]


# --- lines without a hole between them, ready to be sent

#: Bytes sent in one piece; a longer line is sent alone.
CHUNK_BYTES = 256 << 10
#: Positions for which the joined chunk is kept: most clients are at one or two of them.
_SHARED_CHUNKS = 8


class Chunk(NamedTuple):
    #: Encoded events.
    data: bytes
    #: Offset one past the last line in it.
    end: int


@define(eq=False, repr=False, slots=False)
class LineRun:
    """Adjoining lines of one attempt, each encoded once as the event that it becomes."""

    attempt: int
    start: int
    #: Bytes held.
    size: int = field(init=False, default=0)
    _ends: list[int] = field(init=False, factory=list)
    _events: list[bytes] = field(init=False, factory=list)
    _chunks: dict[int, Chunk] = field(init=False, factory=dict)

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else self.start

    def __len__(self) -> int:
        return len(self._ends)

    def covers(self, position: Position) -> bool:
        """Whether this run contains the line that follows `position`."""
        return self.attempt == position.attempt and self.start <= position.offset < self.end

    def append(self, end: int, event: bytes) -> None:
        self._ends.append(end)
        self._events.append(event)
        self.size += len(event)
        self._chunks.clear()

    def chunk(self, offset: int) -> Chunk:
        """The lines that follow `offset`, up to `CHUNK_BYTES`. Clients at the same position share one object."""
        chunk = self._chunks.get(offset)
        if chunk is None:
            if len(self._chunks) >= _SHARED_CHUNKS:
                self._chunks.clear()
            chunk = self._chunks[offset] = self._join(bisect_right(self._ends, offset))
        return chunk

    def after(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """(end, event) of each line that follows `offset`."""
        index = bisect_right(self._ends, offset)
        return zip(self._ends[index:], self._events[index:], strict=True)

    def _join(self, first: int) -> Chunk:
        stop, size = first + 1, len(self._events[first])
        while stop < len(self._events) and (size := size + len(self._events[stop])) <= CHUNK_BYTES:
            stop += 1
        return Chunk(b"".join(self._events[first:stop]), self._ends[stop - 1])

    def _drop(self, count: int) -> None:
        """Forget the oldest `count` lines."""
        if count:
            self.size -= sum(map(len, self._events[:count]))
            self.start = self._ends[count - 1]
            del self._ends[:count], self._events[:count]
            self._chunks.clear()


# The live end of a watched job's log, as it came over Redis
@define(eq=False, repr=False, slots=False)
class Ring(LineRun):
    """A run that follows the newest lines and forgets the oldest. Readers get lines that it lacks from the stores."""

    attempt: int = field(init=False, default=0)
    start: int = field(init=False, default=0)
    _max_entries: int
    _max_bytes: int

    def push(self, attempt: int, rows: Iterable[tuple[int, int, str]]) -> bool:
        """Take (start, end, JSON) rows. Returns whether lines before them are missing, so that a new run begins.

        A tailer that was killed publishes lines again: lines that are known, or of an earlier attempt, are dropped.
        """
        restarted = False
        for start, end, data in rows:
            if (attempt, end) <= (self.attempt, self.end):
                continue
            if attempt != self.attempt or start != self.end:
                self._restart(attempt, start)
                restarted = True
            self.append(end, log_event(attempt, end, data.encode()))
        self._trim()
        return restarted

    def _restart(self, attempt: int, start: int) -> None:
        self._drop(len(self))
        self.attempt, self.start = attempt, start

    def _trim(self) -> None:
        # drop lines only when there are a quarter too many: to move the list for each line would take quadratic time
        if len(self) * 4 <= self._max_entries * 5 and self.size * 4 <= self._max_bytes * 5:
            return
        count = max(0, len(self) - self._max_entries)
        excess = self.size - self._max_bytes
        for event in self._events[:count]:
            excess -= len(event)
        while excess > 0:
            excess -= len(self._events[count])
            count += 1
        self._drop(count)


# --- `?level=` and `?q=`: which lines a client wants to see

MAX_TEXT = 200


class LineFilter(NamedTuple):
    #: Lowest level number shown; a line without a level of its own has that of the line it belongs to.
    level: int = 0
    #: Text to be found, casefolded.
    text: str = ""
    #: Only for downloads: in a stream, the logger of a line that continues another one is not known.
    logger: str | None = None

    @classmethod
    def of(cls, level: str | None, text: str | None, logger: str | None = None) -> Self:
        """Raises `InvalidRequestError` that names `level` or `q`."""
        if level is not None and level.upper() not in LEVELS:
            raise InvalidRequestError("level", f"must be one of {', '.join(LEVELS)}")
        if text is not None and len(text) > MAX_TEXT:
            raise InvalidRequestError("q", f"must have at most {MAX_TEXT} characters")
        return cls(LEVELS[level.upper()] if level else 0, (text or "").casefold(), logger)

    @property
    def is_active(self) -> bool:
        return self != type(self)()

    def accepts(self, data: bytes) -> bool:
        """Whether the filter lets an entry pass. `data` is the entry's JSON (see `LogEntry.to_json`). The text is
        looked for in message and logger.
        """
        entry = orjson.loads(data)
        if LEVELS.get(entry["level"], 0) < self.level:
            return False
        return self.text in f"{entry.get('logger', '')} {entry['msg']}".casefold()


# --- history: lines that are not in a ring come from Redis while they are young, else from MongoDB

#: Uncompressed bytes of log read from MongoDB at a time.
PAGE_BYTES = 256 << 10
#: Entries read from Redis at a time.
PAGE_ENTRIES = 1000
#: Bytes of the smallest run that is kept. Smaller runs are the live end of a log, which has grown by the next round.
_KEEP_BYTES = 64 << 10


@define(eq=False, repr=False, slots=False)
class History:
    _redis: redis.asyncio.Redis
    _jobs: JobStore
    _logs: LogStore
    _threads: Threads
    _cache: RunCache

    async def ask(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Run a store's method in a thread. Raises what it raises; `UnavailableError` if MongoDB is away."""
        with mongo_errors():
            return await self._threads.run(call, *arguments)

    async def look(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """The same for a method that reads one document."""
        with mongo_errors():
            return await self._threads.look(call, *arguments)

    async def job(self, job_id: str) -> Job:
        """With outlines of its earlier attempts. Raises `JobNotFoundError`, `UnavailableError`."""
        return await self.look(lambda: self._jobs.attempts.outline(self._jobs.get(job_id)))

    def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        """The jobs that exist, without earlier attempts. It blocks, so it is called in a thread."""
        return self._jobs.many(job_ids)

    async def render(self, job_id: str, position: Position, render: Callable[[LogChunk], bytes]) -> tuple[bytes, int]:
        """A rendered page of the lines that MongoDB has from `position` on, and the offset at which the page ends.
        This is the offset of `position` if MongoDB has no more lines.

        Raises `UnavailableError`.
        """

        def page() -> tuple[bytes, int]:
            chunks = self._logs.read(job_id, position.attempt, position.offset, PAGE_BYTES)
            return b"".join(map(render, chunks)), chunks[-1].end if chunks else position.offset

        return await self.ask(page)

    async def read(self, job_id: str, position: Position, *, live: bool) -> LineRun | None:
        """A run with the line after `position`, a later run if the line is missing and later ones exist, or `None`.

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

    async def _from_redis(self, job_id: str, position: Position) -> LineRun | None:
        attempt, offset = position
        # ids are offsets, and no entry is longer than MAX_LINE: the range bounds the memory, and misses nothing
        first, last = f"({attempt}-{offset}", f"{attempt}-{offset + MAX_LINE}"
        try:
            found = await self._redis.xrange(log_stream(job_id, attempt), first, last, PAGE_ENTRIES)
        except (redis.RedisError, OSError) as error:
            log.warning("log_stream_unreadable", job_id=job_id, error=str(error))
            return None
        rows = cast("list[tuple[bytes, dict[bytes, bytes]]]", found or [])
        run = LineRun(attempt, offset)
        for entry_id, fields in rows:
            if int(fields[b"s"]) > run.end:
                break
            end = int(entry_id.partition(b"-")[2])
            run.append(end, log_event(attempt, end, fields[b"d"]))
        return run if len(run) else None

    def _from_mongodb(self, job_id: str, position: Position) -> LineRun | None:
        run: LineRun | None = None
        for chunk in self._logs.read(job_id, position.attempt, position.offset, PAGE_BYTES):
            if run is None:
                run = LineRun(position.attempt, chunk.start)
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
    _runs: OrderedDict[tuple[str, int, int], LineRun] = field(init=False, factory=OrderedDict)

    def find(self, job_id: str, position: Position) -> LineRun | None:
        for key, run in self._runs.items():
            if key[0] == job_id and run.covers(position):
                self._runs.move_to_end(key)
                return run
        return None

    def put(self, job_id: str, run: LineRun) -> None:
        key = (job_id, run.attempt, run.start)
        if (replaced := self._runs.pop(key, None)) is not None:
            self._size -= replaced.size
        self._runs[key] = run
        self._size += run.size
        while self._size > self._max_bytes:
            self._size -= self._runs.popitem(last=False)[1].size


# --- the log as a file: its part in MongoDB is streamed, and never held in memory

TEXT = "text/plain"
NDJSON = "application/x-ndjson"


@define(eq=False, repr=False, slots=False)
class LogDownload:
    _history: History
    _answers: LastingAnswers

    def response(self, job: Job, media_type: str, wanted: LineFilter, attempt: int | None) -> Response:
        """One attempt, or all of them in order. Raises `InvalidRequestError` if there is no such attempt."""
        if attempt is not None:
            job.require_attempt(attempt)
        numbers = range(1, job.newest + 1)
        render, ending = (_text, "log") if media_type == TEXT else (_ndjson, "jsonl")
        name = f"{job.id}.{ending}" if attempt is None else f"{job.id}-{attempt}.{ending}"
        return Download(
            self._pages(job.id, numbers if attempt is None else [attempt], partial(render, wanted=wanted)),
            self._answers,
            media_type=media_type,
            headers={"Content-Disposition": f'inline; filename="{name}"', "Cache-Control": "no-store"},
        )

    async def _pages(
        self, job_id: str, attempts: Sequence[int], render: Callable[[LogChunk], bytes]
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
    """The wanted lines as JSON, one object a line: each event's data, with its id in front."""
    return b"".join(
        b'{"id":"%d-%d",%b\n' % (chunk.attempt, entry.end, entry.to_json()[1:]) for entry in _wanted(chunk, wanted)
    )


def _wanted(chunk: LogChunk, wanted: LineFilter) -> list[LogEntry]:
    entries = [line.entry for line in all_lines(chunk) if wanted.logger in {None, line.logger}]
    return [entry for entry in entries if not wanted.is_active or wanted.accepts(entry.to_json())]
