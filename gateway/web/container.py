"""The gateway's own parts, besides those of all processes: its threads, and parts on its loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta

from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.access.audit import AuditTrail
from gateway.access.keys import Seal
from gateway.access.request_counter import RequestCounter
from gateway.clock import VERDICT_SECONDS, Clock
from gateway.container import Container, part, value
from gateway.datasets.feed import FeedWatch
from gateway.datasets.store import DatasetStore
from gateway.dispatch.deployment import Deployment
from gateway.jobs.bulk import BulkActs
from gateway.jobs.dedupe import Dedupe
from gateway.jobs.submission import Submission
from gateway.nodes.health import GATEWAY, SIGN_SECONDS, HeartbeatStore, process_name
from gateway.nodes.scrapyd_pages import ScrapydPages
from gateway.process import take_short_turns
from gateway.retention.retention import Deletion
from gateway.settings import Settings
from gateway.status.health import Health, SharedHealth
from gateway.stores.mongo import HEARTBEAT_SECONDS, Document, connect, within
from gateway.stores.redis import connect_wary
from gateway.web.agents.door import AgentDoor
from gateway.web.authentication import KeyRing
from gateway.web.call_queue import MongoReadiness, Threads
from gateway.web.event_stream.streams import EventStreams
from gateway.web.guard import tell
from gateway.web.http_protocol import BoundedProtocol
from gateway.web.lasting import LastingAnswers

#: Seconds the start waits for MongoDB before requests are answered with "unavailable".
_START_PATIENCE = 2.0
#: Seconds that MongoDB has for an operation, so that the client still gets an answer; reading has more.
_STORE_SECONDS = 3.0
_HEALTH_SECONDS = 2.0
#: The health's own client may rest for long: each of its queries shows whether MongoDB is there.
_REST_SECONDS = 10.0
_STOP_PATIENCE = 3.0
#: Parts that take long to build, so that no request has to wait for them, or that wrong settings can prevent.
_AT_START = (KeyRing, RequestCounter, ScrapydPages, Submission, SharedHealth, Deployment)


class GatewayParts(Container):
    """The gateway's parts. No part waits for a store, so the gateway also starts while MongoDB or Redis is away."""

    def __init__(self, settings: Settings, end: AsyncExitStack) -> None:
        """`end` closes the parts whose closing has to be awaited."""
        super().__init__(settings)
        self._async_end = end

    @part
    def feed_watch(self) -> FeedWatch:
        return FeedWatch(self[DatasetStore], self.threads.look)

    @part
    def database(self) -> Database[Document]:
        return self.connected(connect(self.settings.mongo_uri, timeout=_STORE_SECONDS, heartbeat=HEARTBEAT_SECONDS))

    @value
    def readiness(self) -> MongoReadiness:
        return self[MongoReadiness]

    @value
    def clock(self) -> Clock:
        return self.readiness.clock

    @part
    def threads(self) -> Threads:
        """The threads in which every call that blocks is made."""
        return self.opened(Threads(self.settings.gateway_user_calls, self.readiness.refuse_if_away))

    @part
    def answers(self) -> LastingAnswers:
        return LastingAnswers(self.settings.gateway_user_streams, BoundedProtocol.most_connections * 2 // 3)

    @value
    def executor(self) -> Executor:
        return self.threads

    @part
    def bulk_acts(self) -> BulkActs:
        return self.build(BulkActs, deletion=self[Deletion])

    @part
    def key_ring(self) -> KeyRing:
        return self.build(KeyRing, seal=Seal(self.settings.signing_key))

    @part
    def health(self) -> SharedHealth:
        # its own client: the others' time-outs are too long for a client that asks for our health
        database = self.connected(connect(self.settings.mongo_uri, timeout=_HEALTH_SECONDS, heartbeat=_REST_SECONDS))
        late_after = timedelta(seconds=max(5.0, 5 * self.settings.tick_seconds))
        broker = self.settings.broker_location
        return SharedHealth(
            self.opened(self.build(Health, database=database, broker_url=broker, late_after=late_after)).report
        )

    # --- parts on the loop: they begin at the start, or their closing has to be awaited

    @part
    def dedupe(self) -> Dedupe:
        client = connect_wary(self.settings.redis_location)
        self._async_end.push_async_callback(client.aclose)
        return Dedupe(client, self.settings.crawl_cache_ttl)

    @part
    def rates(self) -> RequestCounter:
        rates = RequestCounter(self.settings.redis_location, tell)
        self._async_end.push_async_callback(rates.close)
        return rates

    @part
    def scrapyd_pages(self) -> ScrapydPages:
        pages = ScrapydPages(self.settings.scrapyd_username, self.settings.scrapyd_password.get_secret_value())
        self._async_end.push_async_callback(pages.close)
        return pages

    @part
    def agent_door(self) -> AgentDoor:
        door = AgentDoor()
        self._async_end.push_async_callback(door.close)
        return door

    @part
    def streams(self) -> EventStreams:
        return self.build(EventStreams, redis_url=self.settings.redis_location)


@asynccontextmanager
async def gateway_parts(settings: Settings) -> AsyncIterator[GatewayParts]:
    """The gateway's parts, started; they are closed when the context ends."""
    async with AsyncExitStack() as end:
        parts = GatewayParts(settings, end)
        parts.start_traces(GATEWAY)
        take_short_turns()
        end.callback(parts.end_traces)
        end.callback(parts.close)
        for work in (parts.readiness.watch(), parts.readiness.prepare(), _give_signs_of_life(parts)):
            end.callback(asyncio.create_task(work).cancel)
        await parts.readiness.wait(_START_PATIENCE)
        for kind in _AT_START:
            _ = parts[kind]
        trail, streams = parts[AuditTrail], parts[EventStreams]
        trail.start()
        end.push_async_callback(asyncio.to_thread, trail.stop)
        await streams.start()
        end.push_async_callback(_stop, streams)
        yield parts


async def _give_signs_of_life(parts: GatewayParts) -> None:
    """Store this process's heartbeat again and again: `/health` lists all gateway processes with their versions."""
    await parts.readiness.wait()
    signs, name = parts[HeartbeatStore], process_name(GATEWAY)

    def give() -> None:
        # without the list of unanswered calls, which only this process's own `/health` reports
        with suppress(PyMongoError), within(VERDICT_SECONDS):
            signs.beat(name)

    while True:
        await asyncio.to_thread(give)
        await asyncio.sleep(SIGN_SECONDS)


async def _stop(streams: EventStreams) -> None:
    # a cancellation that arrives while redis-py connects can get lost; the time-out cancels once more
    with suppress(TimeoutError):
        await asyncio.wait_for(streams.stop(), _STOP_PATIENCE)
