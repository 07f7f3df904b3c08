"""What this process knows of one job that somebody watches: shared by all who do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from gateway.domain.errors import JobNotFoundError, UnavailableError
from gateway.domain.job import Job
from gateway.domain.live_event import status_data
from gateway.web.event_stream.history import History
from gateway.web.event_stream.limits import StreamLimits
from gateway.web.event_stream.position import Position
from gateway.web.event_stream.ring import Ring
from gateway.web.event_stream.run import Run

log = structlog.get_logger()


class Feed:
    """One job's document, live lines and latest progress, and whom to tell when any of them changes."""

    def __init__(self, job: Job, history: History, limits: StreamLimits) -> None:
        self.job = job
        self.ring = Ring(limits.ring_entries, limits.ring_bytes)
        self.progress: dict[str, Any] | None = _progress(job)
        #: Counts what was said of the job; a reader that has seen another number has something to tell.
        self.status_version = 0
        self.progress_version = 0
        #: Counts the reasons to look into the stores again. Nobody asks them the same question twice.
        self.look = 0
        #: The job's document is gone.
        self.gone = False
        #: Live lines arrive over Redis.
        self.live = False
        #: A reader misses lines that should be there: look more often.
        self.wanting = False
        self._history = history
        self._limits = limits
        self._watchers: set[asyncio.Event] = set()
        self._reading = asyncio.Lock()
        self._nothing: tuple[Position, int] | None = None
        self._stale = asyncio.Event()
        self._next_wake = 0.0
        self._wake_handle: asyncio.TimerHandle | None = None

    @contextmanager
    def watched_by(self, changed: asyncio.Event) -> Iterator[None]:
        """`changed` is set whenever there may be news."""
        self._watchers.add(changed)
        try:
            yield
        finally:
            self._watchers.discard(changed)

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def receive(self, message: dict[str, Any]) -> None:
        """Take what came over the job's channel (see `live_event.py`)."""
        match message["kind"]:
            case "log":
                if self.ring.push(message["attempt"], message["entries"]):
                    self.look += 1
                if str(message["attempt"]) not in self.job.attempts:
                    self._stale.set()
            case "progress" if message["attempt"] >= self.job.attempt:
                self.progress = message["data"]
                self.progress_version += 1
            case "status":
                # the document says the same and more: it is the truth, this a hint to read it now
                self._stale.set()
        self._wake_soon()

    def set_live(self, *, live: bool) -> None:
        """Called when the subscription starts or is lost: what was published before or meanwhile is in the stores."""
        self.live = live
        self.look += 1
        self._stale.set()
        self._wake_soon()

    async def history_at(self, position: Position) -> Run | None:
        """As `History.read`, but readers that stand together ask once."""
        async with self._reading:
            look = self.look
            if self._nothing == (position, look):
                return None
            run = await self._history.read(self.job.id, position, live=self.live)
            if run is None:
                self._nothing = (position, look)
            return run

    async def keep_fresh(self) -> None:
        """Read the document when told to, and now and then in any case. Runs for as long as the job is watched."""
        waited = 0.0
        while not self.gone:
            try:
                async with asyncio.timeout(self._limits.poll):
                    await self._stale.wait()
            except TimeoutError:
                waited += self._limits.poll
                if self.live and not self.wanting and waited < self._limits.refresh:
                    continue
            waited = 0.0
            self._stale.clear()
            self.wanting = False
            await self._refresh()

    def wake(self) -> None:
        """Tell all watchers now."""
        self._wake_handle = None
        self._next_wake = asyncio.get_running_loop().time() + self._limits.tick
        for changed in self._watchers:
            changed.set()

    def _wake_soon(self) -> None:
        """At once after a quiet while, else at the next tick, so that what arrives meanwhile travels together."""
        if self._wake_handle is None:
            loop = asyncio.get_running_loop()
            self._wake_handle = loop.call_at(max(self._next_wake, loop.time()), self.wake)

    async def _refresh(self) -> None:
        try:
            job = await self._history.job(self.job.id)
        except JobNotFoundError:
            self.gone = True
        except UnavailableError:
            return  # what is known stands, and nobody need wait for a store that does not answer
        except Exception:
            log.exception("job_unreadable", job_id=self.job.id)
            return
        else:
            self._learn(job)
        self.look += 1
        self.wake()

    def _learn(self, job: Job) -> None:
        if status_data(job) != status_data(self.job):
            self.status_version += 1
        if job.attempt != self.job.attempt or (not self.live and job.progress != self.job.progress):
            self.progress = _progress(job)
            self.progress_version += 1
        self.job = job


def _progress(job: Job) -> dict[str, Any] | None:
    return job.progress.model_dump(mode="json", exclude={"at"}) if job.progress else None
