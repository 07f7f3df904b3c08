"""Many jobs in one stream: browsers allow six connections per host, and a list of jobs wants to move."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack
from typing import Any

from gateway.domain.errors import InvalidRequestError, JobNotFoundError, UnavailableError
from gateway.domain.job import LIVE_STATUSES, Job
from gateway.domain.live_event import status_data
from gateway.storage.job_queries import JobFilter, JobQueries
from gateway.web.event_stream.feed import Feed
from gateway.web.event_stream.history import History
from gateway.web.event_stream.hub import Hub
from gateway.web.event_stream.reader import Describe
from gateway.web.event_stream.sse import FAREWELL, RETRY, event

#: Jobs that one stream follows closely. Of more than that only changes of status are told.
MAX_JOBS = 100
#: Seconds between two looks at what is new.
_PACE = 0.25


class Overview:
    def __init__(self, hub: Hub, history: History, queries: JobQueries, describe: Describe) -> None:
        self._hub = hub
        self._history = history
        self._queries = queries
        self._describe = describe

    async def jobs(self, job_ids: Sequence[str], user_id: str | None) -> list[Job]:
        """Those named, else the newest that are not final. Raises `JobNotFoundError`, `InvalidRequestError`."""
        if len(job_ids) > MAX_JOBS:
            raise InvalidRequestError("job_id", f"at most {MAX_JOBS} jobs can be followed in one stream")
        if job_ids:
            return [await self._history.job(job_id) for job_id in dict.fromkeys(job_ids)]
        alive = JobFilter(user_id, tuple(sorted(LIVE_STATUSES)))
        page = await self._history.ask(self._queries.page, alive, MAX_JOBS)
        return page.jobs

    async def events(
        self, jobs: list[Job], user_id: str | None, *, named: bool, closing: Callable[[], bool]
    ) -> AsyncGenerator[bytes]:
        """A `snapshot`, then `status` and `progress` as they come, for as long as anybody listens."""
        yield RETRY + event("snapshot", {"jobs": [self._describe(job) for job in jobs]})
        newcomers: deque[dict[str, Any]] = deque(maxlen=MAX_JOBS * 10)
        with ExitStack() as stack:
            followed = _Followed(self._hub)
            stack.callback(followed.leave_all)
            followed.add(jobs)
            if not named:
                stack.enter_context(self._hub.every_status(newcomers.append))
            while not closing():
                if chunk := followed.news() + await self._meet(newcomers, user_id, followed):
                    yield chunk
                # a pace rather than a signal: it bounds the work however fast the lines come
                await asyncio.sleep(_PACE)
        yield FAREWELL

    async def _meet(self, newcomers: deque[dict[str, Any]], user_id: str | None, followed: _Followed) -> bytes:
        """Changes of jobs that are not followed; new ones are, from now on, while there is room."""
        chunks: list[bytes] = []
        while newcomers:
            message = newcomers.popleft()
            if message["job_id"] in followed.feeds or user_id not in (None, message["user_id"]):
                continue
            chunks.append(event("status", _about(message["job_id"], message["user_id"], message["data"])))
            if len(followed.feeds) < MAX_JOBS:
                followed.add(await self._find(message["job_id"]))
        return b"".join(chunks)

    async def _find(self, job_id: str) -> list[Job]:
        try:
            return [await self._history.job(job_id)]
        except (JobNotFoundError, UnavailableError):
            return []


class _Followed:
    """The feeds of one stream's jobs, and what has been told of each."""

    def __init__(self, hub: Hub) -> None:
        self.feeds: dict[str, Feed] = {}
        self._hub = hub
        self._leave: dict[str, ExitStack] = {}
        self._seen: dict[str, tuple[int, int]] = {}

    def add(self, jobs: list[Job]) -> None:
        for job in jobs:
            if not job.is_final:
                self._leave[job.id] = ExitStack()
                feed = self._leave[job.id].enter_context(self._hub.watch(job, asyncio.Event()))
                self.feeds[job.id] = feed
                self._seen[job.id] = feed.status_version, feed.progress_version

    def leave_all(self) -> None:
        for job_id in list(self.feeds):
            self._leave_one(job_id)

    def news(self) -> bytes:
        chunks: list[bytes] = []
        for job_id, feed in list(self.feeds.items()):
            status, progress = self._seen[job_id]
            self._seen[job_id] = feed.status_version, feed.progress_version
            job = feed.job
            if status != feed.status_version:
                chunks.append(event("status", _about(job_id, job.user_id, status_data(job))))
            if progress != feed.progress_version:
                chunks.append(event("progress", _about(job_id, job.user_id, feed.progress or {})))
            if job.is_final or feed.gone:
                self._leave_one(job_id)
        return b"".join(chunks)

    def _leave_one(self, job_id: str) -> None:
        del self.feeds[job_id], self._seen[job_id]
        self._leave.pop(job_id).close()


def _about(job_id: str, user_id: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"job_id": job_id, "user_id": user_id, **data}
