"""A job that a test plays: its document, its log and what the tailer would ship of it, and a client that listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import httpx2
import redis
import uvicorn
from integration.event_stream.gateway_app import app_of
from jobs import make_job
from pydantic import TypeAdapter
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.log_line import HEADLESS_LEVEL, split_entries
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress
from gateway.jobs.job import Attempt, Job, JobStatus, WaitingReason
from gateway.jobs.messages import EventPublisher
from gateway.jobs.store import JobStore
from gateway.logs.store import LogChunk, LogStore, LogStream
from gateway.stores.mongo import Document
from gateway.web.event_stream.log_lines import StreamLimits
from gateway.web.schemas.stream import LOG, MANY_JOBS, Streamed

#: Seconds; a fraction of it is what anything here takes.
PATIENCE = 60.0


def line(number: int, level: str = "INFO") -> bytes:
    return b"2027-06-01T09:00:%02d.%03dZ [seo] %b: line %d\n" % (
        number // 1000 % 60, number % 1000, level.encode(), number,
    )  # fmt: skip


def lines(first: int, last: int, level: str = "INFO") -> bytes:
    return b"".join(line(number, level) for number in range(first, last + 1))


class Play:
    """One job on the stage. Blocking: the stores' own clients are used."""

    def __init__(self, database: Database[Document], client: redis.Redis, **fields: Any) -> None:
        self.database = database
        self.redis = client
        self.jobs = JobStore(database)
        self.logs = LogStore(database)
        self.live = LogStream(client, ttl=600)
        self.publisher = EventPublisher(client)
        self.job: Job = make_job(**fields)
        self.jobs.insert(self.job)
        self.number = 0
        #: Bytes of each attempt's log.
        self.written: dict[int, bytes] = {}

    @property
    def id(self) -> str:
        return self.job.id

    def start(self, number: int | None = None) -> None:
        """The next attempt runs."""
        self.number = number or self.number + 1
        self.written[self.number] = b""
        attempt = Attempt(attempt=self.number, node="n1", dispatched_at=utc_now())
        self.change(
            {
                "status": "running",
                "attempt": self.number,
                f"attempts.{self.number}": attempt.model_dump(exclude_none=True),
            }
        )

    def write(self, data: bytes, *, redis: bool = True, mongodb: bool = True) -> None:
        """The spider logs, and the tailer ships it to these."""
        start = len(self.written[self.number])
        self.written[self.number] += data
        entries, _ = split_entries(data, start, final=True)
        if redis:
            self.live.append(AttemptId(self.id, self.number), entries)
        if mongodb:
            self.logs.append(LogChunk(self.id, self.number, start, start + len(data), HEADLESS_LEVEL, data))

    def progress(self, **counts: int) -> None:
        self.live.publish_progress(AttemptId(self.id, self.number), Progress(**counts))

    def wait_for(self, reason: WaitingReason) -> None:
        self.change({"status": "pending", "waiting_reason": reason.value})

    def exit(self, *, log_end: int | None = None) -> None:
        """The node reports the present attempt's end."""
        facts = ExitReport(attempt=self.number, ended_at=utc_now(), exit_code=0)
        end = len(self.written[self.number]) if log_end is None else log_end
        assert self.jobs.record_exit(self.id, self.number, facts, end)

    def retry(self) -> None:
        """The present attempt failed, and another one will follow."""
        self.exit()
        self.change({"status": "pending", "waiting_reason": "backoff", "message": "try again"})

    def finish(self, status: JobStatus = JobStatus.FINISHED, **changes: Any) -> None:
        if self.number and self.jobs.get(self.id).attempts[str(self.number)].exit is None:
            self.exit()
        self.change({"status": status.value, "finished_at": utc_now(), "settled": True, **changes})

    def change(self, changes: dict[str, Any], *, announce: bool = True) -> None:
        self.database["jobs"].update_one({"_id": self.id}, {"$set": changes})
        self.job = self.jobs.get(self.id)
        if announce:
            self.publisher.status(self.job)

    def event_ids(self) -> list[str]:
        """Of all lines written."""
        return [
            f"{number}-{entry.end}"
            for number, data in self.written.items()
            for entry in split_entries(data, 0, final=True)[0]
        ]


class Heard(NamedTuple):
    """What a client was sent."""

    events: list[httpx2.ServerSentEvent]
    status: int = 200

    def of(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(event.data) for event in self.events if event.event == name]

    def ids(self, name: str = "log") -> list[str]:
        return [event.id for event in self.events if event.event == name]

    @property
    def last_id(self) -> str:
        return self.events[-1].id


def require_described(described: tuple[Streamed, ...], event: httpx2.ServerSentEvent) -> None:
    """That the event is as `/openapi.json` has it: its name, its data, and no field more."""
    kind = next(one for one in described if one.event == event.event)
    data = json.loads(event.data)
    read = TypeAdapter(kind.data).validate_python(data)
    assert data.keys() <= {one.alias or name for name, one in type(read).model_fields.items()}
    assert kind.has_id == bool(event.id)


class Listener:
    """An SSE client that a test reads at its own pace."""

    def __init__(self, source: AsyncIterator[httpx2.ServerSentEvent], described: tuple[Streamed, ...]) -> None:
        self._source = source
        self._described = described
        self.heard = Heard([])

    async def until(self, name: str, count: int = 1) -> Heard:
        """Reads on until `count` events called `name` have come in all."""
        async with asyncio.timeout(PATIENCE):
            while len(self.heard.ids(name)) < count:
                await self._next()
        return self.heard

    async def to_the_end(self) -> Heard:
        """Reads on until the server closes."""
        async with asyncio.timeout(PATIENCE):
            with suppress(StopAsyncIteration):
                while True:
                    await self._next()
        return self.heard

    async def _next(self) -> None:
        event = await anext(self._source)
        if event.data:  # httpx2 hands out a bare `retry:` as well
            self.heard.events.append(event)
            require_described(self._described, event)


class Gateway:
    """The streams on a real socket, served by this test's own loop."""

    def __init__(self, url: str, server: uvicorn.Server) -> None:
        self.url = url
        self.server = server
        self.http = httpx2.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE)

    @asynccontextmanager
    async def listen(
        self, job_id: str, *, last_event_id: str | None = None, **query: str | int
    ) -> AsyncIterator[Listener]:
        async with self.stream(f"/jobs/{job_id}/logs", last_event_id=last_event_id, **query) as listener:
            yield listener

    @asynccontextmanager
    async def stream(
        self, path: str, *, last_event_id: str | None = None, **query: str | int | Sequence[str]
    ) -> AsyncIterator[Listener]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        async with self.http.stream("GET", path, headers=headers, params=query) as source:
            source.raise_for_status()
            yield Listener(aiter(httpx2.EventSource(source, None)), MANY_JOBS if path == "/events" else LOG)

    async def hear_all(self, job_id: str, **how: Any) -> Heard:
        async with self.listen(job_id, **how) as listener:
            return await listener.to_the_end()


@asynccontextmanager
async def gateway(database: Database[Document], redis_url: str, limits: StreamLimits) -> AsyncIterator[Gateway]:
    config = uvicorn.Config(
        app_of(database, redis_url, limits), port=0, log_level="error", lifespan="on", timeout_graceful_shutdown=3
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    running = Gateway(f"http://127.0.0.1:{port}", server)
    try:
        yield running
    finally:
        await running.http.aclose()
        server.should_exit = True
        await serving
