"""One client's way through a job's log: what it is sent, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import islice
from typing import Any

from gateway.domain.errors import UnavailableError
from gateway.domain.job import Job
from gateway.domain.live_event import status_data
from gateway.domain.node_files import Progress
from gateway.web.event_stream.extent import has_ended, known_end, next_attempt
from gateway.web.event_stream.feed import Feed
from gateway.web.event_stream.limits import StreamLimits
from gateway.web.event_stream.line_filter import LineFilter
from gateway.web.event_stream.position import Position
from gateway.web.event_stream.run import Run
from gateway.web.event_stream.sse import FAREWELL, RETRY, data_of, event

#: Seconds between two `progress` events; a little less than a node's own second.
_PROGRESS_INTERVAL = 0.9
#: Lines that a filter looks at before others get their turn.
_FILTER_BATCH = 2000

#: The body of `end`: the same as that of `GET /jobs/{id}/status`.
Describe = Callable[[Job], dict[str, Any]]


class Reader:
    """Stands at a position, takes what follows it from the ring or the stores, and knows when there is no more."""

    def __init__(
        self,
        feed: Feed,
        position: Position,
        wanted: LineFilter,
        limits: StreamLimits,
        describe: Describe,
    ) -> None:
        self._feed = feed
        self._position = position
        self._wanted = wanted
        self._limits = limits
        self._describe = describe
        self._loop = asyncio.get_running_loop()
        #: The question that the stores have answered with "nothing": a position (`None` at the ring's end), a look.
        self._asked: tuple[Position | None, int] | None = None
        #: Where lines begin again after a hole.
        self._resumes_at: int | None = None
        self._missing_since: float | None = None
        #: The stores could not be asked.
        self._unanswered = False
        self._done = False
        self._status_seen = feed.status_version
        self._progress_seen = feed.progress_version
        self._progress_at = self._loop.time()
        self._progress_position = position

    async def events(
        self, changed: asyncio.Event, closing: Callable[[], bool], opening: bytes
    ) -> AsyncGenerator[bytes]:
        """Encoded events until the job's end, the job's deletion or the gateway's shutdown.

        `changed` is set whenever there may be news.
        """
        yield RETRY + opening + self._greeting()
        while not (self._done or closing() or self._feed.gone):
            changed.clear()
            # before the lines: of whatever this document says is over, the stores then have all
            job = self._feed.job
            if news := self._news(job):
                yield news
            lines = None if self._has_all(job) else await self._lines_or_none()
            if lines:
                yield lines
            elif lines is not None:  # none of them was wanted; let others have their turn
                await asyncio.sleep(0)
            elif step := self._step(job):
                yield step
            else:
                await changed.wait()
        if closing():
            yield FAREWELL

    def _greeting(self) -> bytes:
        """Where a job stands that is not final: a waiting one says why it waits."""
        job = self._feed.job
        if job.is_final:
            return b""
        greeting = self._event("status", status_data(job))
        return greeting + self._event("progress", self._feed.progress) if self._feed.progress else greeting

    def _news(self, job: Job) -> bytes:
        """`status` and `progress` since the last time. How the job ended is for `end` to tell."""
        if job.is_final:
            return b""
        news = b""
        if self._status_seen != self._feed.status_version:
            self._status_seen = self._feed.status_version
            news = self._event("status", status_data(job))
        return news + self._progress()

    def _progress(self) -> bytes:
        fresh = self._progress_seen != self._feed.progress_version
        # the id of an event is all that tells a client whose lines are filtered away how far it has come
        unannounced = self._wanted.is_active and self._progress_position != self._position
        if not (fresh or unannounced) or self._loop.time() - self._progress_at < _PROGRESS_INTERVAL:
            return b""
        self._progress_seen = self._feed.progress_version
        self._progress_at = self._loop.time()
        self._progress_position = self._position
        return self._event("progress", self._feed.progress or _NO_PROGRESS)

    # --- lines

    async def _lines_or_none(self) -> bytes | None:
        """The lines that come next, empty if none of them is wanted; `None` where there are none yet."""
        try:
            run = await self._next_run()
        except UnavailableError:
            self._feed.wanting = self._unanswered = True
            return None
        self._unanswered = False
        if run is None:
            return None
        self._missing_since = None
        return self._filtered(run) if self._wanted.is_active else self._whole(run)

    async def _next_run(self) -> Run | None:
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

    def _whole(self, run: Run) -> bytes:
        chunk = run.chunk(self._position.offset)
        self._position = Position(run.attempt, chunk.end)
        return chunk.data

    def _filtered(self, run: Run) -> bytes:
        lines = list(islice(run.after(self._position.offset), _FILTER_BATCH))
        self._position = Position(run.attempt, lines[-1][0])
        return b"".join(encoded for _, encoded in lines if self._wanted.accepts(data_of(encoded)))

    # --- what follows when there are no more lines

    def _has_all(self, job: Job) -> bool:
        end = known_end(job, self._position)
        return end is not None and self._position.offset >= end

    def _step(self, job: Job) -> bytes | None:
        """The event that leads on from here: `gap`, the `status` of the next attempt, or `end`; `None`: wait."""
        if not self._has_all(job) and not self._has_what_is_left(job):
            return self._gap(job)
        if (number := next_attempt(job, self._position)) is not None:
            self._position = Position(number, 0)
            self._status_seen = self._feed.status_version
            return self._event("status", status_data(job))
        if not job.is_final:
            return None
        self._done = True
        self._position = Position(self._position.attempt, self._position.offset + 1)
        return self._event("end", self._describe(job))

    def _has_what_is_left(self, job: Job) -> bool:
        """Nobody saw the attempt end, so its log ends where the stores' knowledge of it does."""
        nobody_knows = has_ended(job, self._position) and known_end(job, self._position) is None
        return nobody_knows and not self._unanswered and self._resumes_at is None

    def _gap(self, job: Job) -> bytes | None:
        """Lines that should be there are missing for good once they have been waited for in vain."""
        if self._unanswered:
            return None
        target = known_end(job, self._position) if self._resumes_at is None else self._resumes_at
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
