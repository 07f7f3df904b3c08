"""Puts a node's tailer together. Nothing here waits for a store: each is asked when it is needed."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property, partial
from importlib.metadata import version

from celery import Celery
from pymongo.database import Database

from gateway.domain.clock import time_of_node, utc_now
from gateway.domain.node_files import BROWSER, instance_of
from gateway.redis.client import connect as connect_redis
from gateway.redis.dedupe import DedupeRelease
from gateway.redis.log_stream import LogStream
from gateway.services.announcer import Announcer
from gateway.services.completion import Completion
from gateway.services.waker import CeleryWaker, create_producer
from gateway.settings import Settings
from gateway.storage.client import Document, ServerClock, connect
from gateway.storage.egg_copies import EggCopies
from gateway.storage.eggs import EggStore
from gateway.storage.holds import HoldStore
from gateway.storage.items import ItemStore
from gateway.storage.job_queue import JobQueue
from gateway.storage.jobs import JobStore
from gateway.storage.logs import LogStore
from gateway.storage.nodes import NodeStore
from gateway.storage.spiders import SpiderStore
from gateway.tailer.catalog import Catalog, CatalogPublisher
from gateway.tailer.disk import Disk
from gateway.tailer.egg_shipper import EggShipper
from gateway.tailer.follow import Follower
from gateway.tailer.heartbeat import Heartbeat, NodeFacts
from gateway.tailer.live_sink import LiveSink
from gateway.tailer.outbox import Outbox
from gateway.tailer.plain_logs import PlainLogs
from gateway.tailer.sink_thread import SinkThread
from gateway.tailer.truth_sink import TruthSink

#: Seconds that an announcement may take from shipping to MongoDB while Redis is away.
ANNOUNCE_TIMEOUT = 0.5


class Wiring:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(self._settings.node_dir, self._settings.outbox)

    @cached_property
    def live(self) -> SinkThread:
        client = connect_redis(self._settings.redis_location)
        return SinkThread(LiveSink(LogStream(client, self._settings.result_ttl)))

    @cached_property
    def truth(self) -> SinkThread:
        database = self._database
        sink = TruthSink(
            jobs=JobStore(database, self._clock),
            items=ItemStore(database),
            logs=LogStore(database),
            completion=self.completion,
        )
        return SinkThread(sink)

    @cached_property
    def follower(self) -> Follower:
        settings = self._settings
        return Follower(
            self.outbox,
            self.live,
            self.truth,
            keep=timedelta(seconds=settings.node_keep_seconds),
            disk=self._disk,
            plain_logs=PlainLogs(settings.node_dir, timedelta(days=settings.log_retention_days), utc_now),
            clock=partial(time_of_node, settings.node_dir),
            # its launcher ends an attempt long before; what makes a file longer than that is no logging
            longest_log=2 * settings.crawl_max_log_bytes,
        )

    @cached_property
    def heartbeat(self) -> Heartbeat:
        settings = self._settings
        facts = NodeFacts(
            name=settings.node_name,
            url=settings.node_base_url,
            slots=settings.node_slots,
            version=version("discoverybot"),
            outbox=settings.outbox,
            browser_file=settings.node_dir / BROWSER,
            render_slots=settings.node_render_slots,
            instance=instance_of(settings.node_dir),
            dead_after=settings.node_dead_after,
        )
        catalog = CatalogPublisher(SpiderStore(self._database, self._clock), settings.node_name, settings.node_dir)
        nodes = NodeStore(self._database, self._clock)
        return Heartbeat(
            nodes, catalog, facts, self._disk, clock=self._clock,
            present=lambda: self.follower.present, troubles=lambda: self.truth.troubles,
        )  # fmt: skip

    @cached_property
    def eggs(self) -> EggShipper:
        settings, database = self._settings, self._database
        return EggShipper(
            EggStore(database, self._clock),
            EggCopies(database, self._clock),
            node=settings.node_name,
            folder=settings.node_dir / "eggs",
            spiders=Catalog(settings.node_dir).spiders,
            is_ours=lambda: self.heartbeat.is_accepted,
        )

    @cached_property
    def _disk(self) -> Disk:
        return Disk(self._settings.outbox, self._settings.node_min_free_bytes)

    @cached_property
    def _database(self) -> Database[Document]:
        return connect(self._settings.mongo_uri)

    @cached_property
    def _clock(self) -> ServerClock:
        return ServerClock(self._database)

    @cached_property
    def completion(self) -> Completion:
        redis = connect_redis(self._settings.redis_location, timeout=ANNOUNCE_TIMEOUT)
        announcer = Announcer(redis)
        return Completion(
            jobs=JobStore(self._database, self._clock),
            nodes=NodeStore(self._database, self._clock),
            queue=JobQueue(self._database, self._clock),
            holds=HoldStore(self._database, self._clock),
            dedupe=DedupeRelease(redis),
            announcer=announcer,
            waker=CeleryWaker(self._producer),
            clock=self._clock,
        )

    @cached_property
    def _producer(self) -> Celery:
        return create_producer(self._settings.broker_location, self._settings.queue_name)
