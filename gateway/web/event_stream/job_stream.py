"""The stream of one job to one client: its log, and what becomes of it, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import islice
from typing import Any, NamedTuple, Self

from attrs import define, field

from gateway.contract.log_line import Position
from gateway.contract.records import Progress
from gateway.errors import UnavailableError
from gateway.jobs.job import Job
from gateway.jobs.messages import status_data
from gateway.web.event_stream.hub import Feed
from gateway.web.event_stream.log_lines import (
    FAREWELL,
    RETRY,
    LineFilter,
    LineRun,
    StreamLimits,
    data_of,
    event,
)
from gateway.web.schemas.job import JobStatusView


class LogStanding(NamedTuple):
    """The facts in a job's document about the log of one attempt."""

    #: Whether nothing more will be written to it.
    has_ended: bool
    #: Offset at which it ends; `None` while it runs, or if no tailer saw it end.
    end: int | None
    #: The number of the attempt after it, or `None`. Numbers can be missing, because an attempt that no node accepted
    #: has no record.
    following: int | None

    @classmethod
    def of(cls, job: Job, number: int) -> Self:
        """Also of an attempt that no node has accepted (yet, or ever)."""
        attempt = job.attempts.get(str(number))
        following = min((other for other in map(int, job.attempts) if other > number), default=None)
        if not (job.is_final or following is not None or (attempt is not None and attempt.exit is not None)):
            return cls(has_ended=False, end=None, following=None)
        return cls(has_ended=True, end=0 if attempt is None else attempt.log_end, following=following)


#: Seconds between two `progress` events; a little less than a node's own second.
_PROGRESS_INTERVAL = 0.9
#: Lines that a filter reads before others get their turn.
_FILTER_BATCH = 2000


def describe(job: Job) -> dict[str, Any]:
    """The body of `end`: the same as that of `GET /jobs/{id}/status`."""
    return JobStatusView.of(job).model_dump(mode="json")


@define(eq=False, repr=False, slots=False)
class Reader:
    """Reads a job's log from a position on: from the ring or the stores, until the job's end."""

    _feed: Feed
    _position: Position
    _wanted: LineFilter
    _limits: StreamLimits
    #: The last question to the stores: the position (`None` at the end of the ring), and the feed's `look` then.
    _asked: tuple[Position | None, int] | None = field(init=False, default=None)
    #: Where lines begin again after a hole.
    _resumes_at: int | None = field(init=False, default=None)
    _missing_since: float | None = field(init=False, default=None)
    #: Whether the stores could not be asked.
    _unanswered: bool = field(init=False, default=False)
    _done: bool = field(init=False, default=False)
    #: The job's document, the number of the attempt that is read, and what the document says of its log. This is
    #: cached because to find it in the document takes longer than to send a tick's lines, and it changes seldom.
    _standing: tuple[Job, int, LogStanding] | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._filters = self._wanted.is_active
        self._status_seen = self._feed.status_version
        self._progress_seen = self._feed.progress_version
        self._progress_at = self._loop.time()
        self._progress_position = self._position

    async def events(
        self, changed: asyncio.Event, closing: Callable[[], bool], opening: bytes
    ) -> AsyncGenerator[bytes]:
        """Encoded events until the job's end, the job's deletion or the gateway's shutdown.

        `changed` is set whenever there may be news.
        """
        yield RETRY + opening + self._greeting()
        while not (self._done or closing() or self._feed.gone):
            changed.clear()
            # taken before the lines: if this document says that an attempt is over, the stores have all its lines
            job = self._feed.job
            if news := self._news(job):
                yield news
            lines = None if self._has_all(job) else await self._lines_or_none()
            if lines:
                yield lines
            elif lines is not None:  # none of them was wanted; let other readers have their turn
                await asyncio.sleep(0)
            elif step := self._step(job):
                yield step
            else:
                await changed.wait()
                while not closing() and (new := self._new_lines(job)):
                    changed.clear()
                    yield new
                    if not self._feed.ring.covers(self._position):
                        await changed.wait()
        if closing():
            yield FAREWELL

    def _greeting(self) -> bytes:
        """The `status` of a job that is not final, which says why a waiting job waits, and its last `progress`."""
        job = self._feed.job
        if job.is_final:
            return b""
        greeting = self._event("status", status_data(job))
        return greeting + self._event("progress", self._feed.progress) if self._feed.progress else greeting

    def _news(self, job: Job) -> bytes:
        """`status` and `progress` since the last time. The `end` event says how the job ended."""
        if job.is_final:
            return b""
        news = b""
        if self._status_seen != self._feed.status_version:
            self._status_seen = self._feed.status_version
            news = self._event("status", status_data(job))
        return news + self._progress()

    def _progress(self) -> bytes:
        fresh = self._progress_seen != self._feed.progress_version
        # a client whose lines are filtered out learns its position only from the ids of other events
        unannounced = self._filters and self._progress_position != self._position
        if not (fresh or unannounced) or self._loop.time() - self._progress_at < _PROGRESS_INTERVAL:
            return b""
        self._progress_seen = self._feed.progress_version
        self._progress_at = self._loop.time()
        self._progress_position = self._position
        return self._event("progress", self._feed.progress or _NO_PROGRESS)

    # --- lines

    def _new_lines(self, job: Job) -> bytes:
        """The new lines, if there is nothing else to send since `job`; otherwise empty. This is the case in most
        ticks at the live end of a log, and a full round of `events` would take longer than to send the lines.
        """
        feed, ring, position = self._feed, self._feed.ring, self._position
        is_all = self._status_seen == feed.status_version and self._progress_seen == feed.progress_version
        is_plain = feed.job is job and not (feed.gone or self._filters or self._log(job).has_ended)
        if not (is_all and is_plain and ring.covers(position)):
            return b""
        self._missing_since = None
        return self._whole(ring)

    async def _lines_or_none(self) -> bytes | None:
        """The next lines: empty if none of them passes the filter, `None` if there are no further lines yet."""
        try:
            run = await self._next_run()
        except UnavailableError:
            self._feed.wanting = self._unanswered = True
            return None
        self._unanswered = False
        if run is None:
            return None
        self._missing_since = None
        return self._filtered(run) if self._filters else self._whole(run)

    async def _next_run(self) -> LineRun | None:
        feed, ring, position = self._feed, self._feed.ring, self._position
        if ring.covers(position):
            return ring
        at_live_end = len(ring) > 0 and (ring.attempt, ring.end) == position
        question = (None if at_live_end else position, feed.look)
        if question == self._asked:
            return None
        self._asked = question
        run = await feed.history_at(position)
        if run is not None and run.covers(position):
            self._resumes_at = None
            return run
        self._resumes_at = None if run is None else run.start
        return None

    def _whole(self, run: LineRun) -> bytes:
        chunk = run.chunk(self._position.offset)
        self._position = Position(run.attempt, chunk.end)
        return chunk.data

    def _filtered(self, run: LineRun) -> bytes:
        lines = list(islice(run.after(self._position.offset), _FILTER_BATCH))
        self._position = Position(run.attempt, lines[-1][0])
        return b"".join(encoded for _, encoded in lines if self._wanted.accepts(data_of(encoded)))

    # --- what a reader does when there are no more lines

    def _log(self, job: Job) -> LogStanding:
        """How the log stands that is being read."""
        number = self._position.attempt
        if self._standing is not None:
            read, of, standing = self._standing
            if read is job and of == number:
                return standing
        standing = LogStanding.of(job, number)
        self._standing = job, number, standing
        return standing

    def _has_all(self, job: Job) -> bool:
        end = self._log(job).end
        return end is not None and self._position.offset >= end

    def _step(self, job: Job) -> bytes | None:
        """The event that leads on from here: `gap`, the `status` of the next attempt, or `end`; `None` to wait."""
        if not self._has_all(job) and not self._has_what_is_left(job):
            return self._gap(job)
        if (number := self._log(job).following) is not None:
            self._position = Position(number, 0)
            self._status_seen = self._feed.status_version
            return self._event("status", status_data(job))
        if not job.is_final:
            return None
        self._done = True
        self._position = Position(self._position.attempt, self._position.offset + 1)
        return self._event("end", describe(job))

    def _has_what_is_left(self, job: Job) -> bool:
        """Whether an attempt whose end no tailer saw is read completely: its log ends with the last stored line."""
        log = self._log(job)
        nobody_knows = log.has_ended and log.end is None
        return nobody_knows and not self._unanswered and self._resumes_at is None

    def _gap(self, job: Job) -> bytes | None:
        """A `gap`, once the reader has waited in vain for lines that should be there: they are missing for good."""
        if self._unanswered:
            return None
        target = self._log(job).end if self._resumes_at is None else self._resumes_at
        if target is None:
            ring = self._feed.ring
            self._feed.wanting |= ring.attempt == self._position.attempt and ring.start > self._position.offset
            return None
        self._feed.wanting = True
        now = self._loop.time()
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since < self._limits.gap_patience:
            return None
        missing, self._position = self._position, Position(self._position.attempt, target)
        self._missing_since = self._resumes_at = None
        return self._event("gap", {"from": str(missing), "to": str(self._position)})

    def _event(self, name: str, data: Any) -> bytes:
        return event(name, data, self._position)


_NO_PROGRESS = Progress().model_dump(mode="json", exclude={"at"})
