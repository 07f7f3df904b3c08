"""The stream of many jobs to one client. A list of jobs shows changes live, but a browser allows only six connections
per host.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

from attrs import define, field

from gateway.errors import InvalidRequestError, JobNotFoundError, UnavailableError
from gateway.jobs.job import LIVE_STATUSES, Job
from gateway.jobs.messages import status_data, status_message
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.web.event_stream.hub import Feed, Hub
from gateway.web.event_stream.job_stream import describe
from gateway.web.event_stream.log_lines import (
    FAREWELL,
    RETRY,
    History,
    event,
)

#: Jobs that one stream follows closely. Of further jobs it sends only changes of status.
MAX_JOBS = 100
#: Seconds between two checks for news.
_PACE = 0.25


@define(eq=False, repr=False, slots=False)
class Overview:
    _hub: Hub
    _history: History
    _queries: JobQueries

    async def jobs(self, job_ids: Sequence[str], wanted: JobFilter) -> list[Job]:
        """The named jobs, else the newest that are not final. Raises `JobNotFoundError`, `InvalidRequestError`."""
        if len(job_ids) > MAX_JOBS:
            raise InvalidRequestError("job_id", f"at most {MAX_JOBS} jobs can be followed in one stream")
        if job_ids:
            return [await self._history.job(job_id) for job_id in dict.fromkeys(job_ids)]
        alive = wanted._replace(status=tuple(sorted(LIVE_STATUSES)))
        page = await self._history.ask(self._queries.page, alive, MAX_JOBS)
        return await self._history.ask(self._history.jobs, [job.id for job in page.jobs])

    async def events(
        self, job_ids: Sequence[str], wanted: JobFilter, *, closing: Callable[[], bool]
    ) -> AsyncGenerator[bytes]:
        """Yield a `snapshot`, then `status` and `progress` events until the gateway stops. Errors of `jobs` are
        raised before the first event.
        """
        newcomers = _Newcomers(wanted)
        with ExitStack() as stack:
            if not job_ids:
                # listen before the jobs are read, so that no change between the snapshot and the events is missed
                stack.enter_context(self._hub.every_status(newcomers))
            jobs = await self.jobs(job_ids, wanted)
            followed = _Followed(self._hub)
            stack.callback(followed.leave_all)
            followed.add(jobs)
            yield RETRY + event("snapshot", {"jobs": [describe(job) for job in jobs]})
            while not closing():
                await self._catch_up(newcomers, wanted)
                if chunk := followed.news() + await self._meet(newcomers, followed):
                    yield chunk
                # a fixed pace instead of a signal: it limits the work, however fast changes come
                await asyncio.sleep(_PACE)
        yield FAREWELL

    async def _catch_up(self, newcomers: _Newcomers, wanted: JobFilter) -> None:
        """Find the jobs that began while messages were lost."""
        if not newcomers.has_missed:
            return
        newcomers.has_missed = False
        try:
            jobs = await self.jobs((), wanted)
        except UnavailableError:
            newcomers.have_missed()
            return
        for job in jobs:
            newcomers.receive(status_message(job))

    async def _meet(self, newcomers: _Newcomers, followed: _Followed) -> bytes:
        """Changes of jobs that are not followed. New jobs are followed from now on, while there is room."""
        chunks: list[bytes] = []
        for message in newcomers.take():
            if message["job_id"] in followed.feeds:
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


@define(eq=False, repr=False, slots=False)
class _Newcomers:
    """New status messages, limited for each user, so that no user's jobs displace those of others."""

    #: The user and the projects whose jobs are shown.
    _wanted: JobFilter
    _of_users: dict[str, deque[dict[str, Any]]] = field(init=False, factory=dict)
    has_missed: bool = field(init=False, default=False)

    def have_missed(self) -> None:
        self.has_missed = True

    def receive(self, message: dict[str, Any]) -> None:
        user_id = message["user_id"]
        if self._wanted.user_id not in {None, user_id}:
            return
        if "project" not in message and self._wanted.projects:
            # of a process of an older release: the jobs are read again, and say what they are of
            self.has_missed = True
        elif not self._wanted.projects or message["project"] in self._wanted.projects:
            self._of_users.setdefault(user_id, deque(maxlen=MAX_JOBS * 10)).append(message)

    def take(self) -> list[dict[str, Any]]:
        taken, self._of_users = self._of_users, {}
        return list(chain.from_iterable(taken.values()))


@define(eq=False, repr=False, slots=False)
class _Followed:
    """The feeds of one stream's jobs, and what the stream has sent of each."""

    _hub: Hub
    feeds: dict[str, Feed] = field(init=False, factory=dict)
    _leave: dict[str, ExitStack] = field(init=False, factory=dict)
    _seen: dict[str, tuple[int, int]] = field(init=False, factory=dict)

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
