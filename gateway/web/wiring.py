"""Puts the gateway's stores and services together, and takes them apart again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import redis
import redis.asyncio

from gateway.domain.api_key import Seal
from gateway.domain.node_list import NodeList
from gateway.redis.client import connect as connect_redis
from gateway.redis.client import connect_async
from gateway.redis.dedupe import Dedupe, DedupeRelease
from gateway.redis.request_rates import RequestRates
from gateway.services.announcer import Announcer
from gateway.services.audit_trail import AuditTrail
from gateway.services.cancellation import Cancellation
from gateway.services.completion import Completion
from gateway.services.deletion import Deletion
from gateway.services.health import Health
from gateway.services.job_or_schedule import JobOrSchedule
from gateway.services.platform_facts import FactReader
from gateway.services.rendering import Rendering
from gateway.services.retry import Resubmission
from gateway.services.spider_catalog import SpiderCatalog
from gateway.services.submission import Submission
from gateway.services.waker import CeleryWaker, Waker, create_producer
from gateway.settings import Settings
from gateway.storage import client as mongo
from gateway.storage.audit import AuditStore
from gateway.storage.holds import HoldStore
from gateway.storage.items import ItemStore
from gateway.storage.job_queries import JobQueries
from gateway.storage.job_queue import JobQueue
from gateway.storage.jobs import JobStore
from gateway.storage.keys import KeyStore
from gateway.storage.logs import LogStore
from gateway.storage.nodes import NodeStore
from gateway.storage.owners import OwnerStore
from gateway.storage.presence import HEARTBEAT_SECONDS
from gateway.storage.spiders import SpiderStore
from gateway.web.egg_wiring import Eggs, wire_eggs
from gateway.web.event_stream.streams import EventStreams
from gateway.web.key_ring import KeyRing
from gateway.web.node_console import NodeConsole
from gateway.web.request_rate import tell
from gateway.web.run_wiring import Runs, wire_runs
from gateway.web.schedule_wiring import Schedules, wire_schedules
from gateway.web.shared_health import SharedHealth
from gateway.web.site_wiring import Searches, wire_sites
from gateway.web.submission_wiring import wire_submissions
from gateway.web.thread_pool import ThreadPool
from gateway.web.truth_store import TruthStore

#: Threads for taking orders, and for reading lists and items; every other blocking route shares FastAPI's.
_SUBMIT_THREADS = 16
_READ_THREADS = 8
#: Threads that wait for nodes to take an egg.
_DEPLOY_THREADS = 2
#: Threads that look keys up.
_KEY_THREADS = 2
#: Seconds the start waits for MongoDB before requests are answered with "unavailable".
_START_PATIENCE = 2.0
#: Seconds that MongoDB has for an operation, so that the client can be told; lists and items have more.
_STORE_SECONDS = 3.0
_LIST_SECONDS = 10.0
_HEALTH_SECONDS = 2.0
_STOP_PATIENCE = 3.0


@dataclass(frozen=True)
class Wiring:
    """What routes may use."""

    settings: Settings
    truth: TruthStore
    keys: KeyRing
    rates: RequestRates
    audit: AuditTrail
    audited: AuditStore
    owners: OwnerStore
    jobs: JobStore
    queries: JobQueries
    items: ItemStore
    nodes: NodeStore
    node_list: NodeList
    node_console: NodeConsole
    catalog: SpiderCatalog
    submission: Submission
    cancellation: Cancellation
    resubmission: Resubmission
    schedules: Schedules
    searches: Searches
    runs: Runs
    deletion: Deletion
    eggs: Eggs
    health: SharedHealth
    facts: FactReader
    submits: ThreadPool
    reads: ThreadPool
    deploys: ThreadPool
    streams: EventStreams

    @property
    def named(self) -> JobOrSchedule:
        return self.schedules.named

    @property
    def dead_after(self) -> timedelta:
        return timedelta(seconds=self.settings.node_dead_after)


@asynccontextmanager
async def wire(settings: Settings) -> AsyncIterator[Wiring]:
    """Everything, connected lazily: a store that is away does not keep the gateway from starting."""
    async with AsyncExitStack() as stack:
        truth = TruthStore(mongo.connect(settings.mongo_uri, timeout=_STORE_SECONDS, heartbeat=HEARTBEAT_SECONDS))
        stack.callback(truth.database.client.close)
        await _start_preparing(truth, stack)
        client = connect_redis(settings.redis_location)
        stack.callback(client.close)
        async_client = connect_async(settings.redis_location)
        stack.push_async_callback(async_client.aclose)
        waker = CeleryWaker(create_producer(settings.broker_location, settings.queue_name))
        stack.callback(waker.close)
        wiring = _assemble(
            settings=settings, truth=truth, client=client, async_client=async_client, waker=waker, stack=stack
        )
        await wiring.streams.start()
        stack.push_async_callback(_stop, wiring.streams)
        yield wiring


async def _stop(streams: EventStreams) -> None:
    # a cancellation that arrives while redis-py connects can get lost; the time-out cancels once more
    with suppress(TimeoutError):
        await asyncio.wait_for(streams.stop(), _STOP_PATIENCE)


async def _start_preparing(truth: TruthStore, stack: AsyncExitStack) -> None:
    for work in (truth.watch(), truth.prepare()):
        stack.callback(asyncio.create_task(work).cancel)
    await truth.wait(_START_PATIENCE)


def _threads(
    count: int, name: str, truth: TruthStore, stack: AsyncExitStack, seconds: float | None = None
) -> ThreadPool:
    """For calls that need the truth store; `seconds` as of the pool."""
    pool = ThreadPool(count, name, truth.refuse_if_away, seconds)
    stack.callback(pool.close)
    return pool


def _assemble(
    *,
    settings: Settings,
    truth: TruthStore,
    client: redis.Redis,
    async_client: redis.asyncio.Redis,
    waker: Waker,
    stack: AsyncExitStack,
) -> Wiring:
    database, clock = truth.database, truth.clock
    node_list = NodeList(settings.scrapyd_url)
    jobs, nodes = JobStore(database, clock), NodeStore(database, clock, node_list)
    items, logs, queries = ItemStore(database), LogStore(database), JobQueries(database)
    catalog = SpiderCatalog(SpiderStore(database), settings.allowed_networks)
    release, announcer = DedupeRelease(client), Announcer(client)
    completion = _completion(truth, jobs, nodes, release, announcer, waker)
    rendering = Rendering(nodes, timedelta(seconds=settings.node_dead_after), clock)
    submits = _threads(_SUBMIT_THREADS, "submit", truth, stack)
    submissions = wire_submissions(
        truth, settings, waker, jobs=jobs, dedupe=Dedupe(async_client, settings.crawl_cache_ttl), release=release,
        catalog=catalog, rendering=rendering, threads=submits,
    )  # fmt: skip
    schedules = wire_schedules(truth, settings, waker, submissions, jobs=jobs, catalog=catalog, rendering=rendering)
    runs = wire_runs(truth, settings, waker, submissions, jobs=jobs, catalog=catalog, rendering=rendering)
    return Wiring(
        settings=settings, truth=truth, keys=_keys(settings, truth, stack), owners=OwnerStore(database), jobs=jobs,
        rates=_rates(settings, stack), audit=_audit(truth, stack), audited=AuditStore(database),
        queries=queries, items=items, nodes=nodes, node_list=node_list,
        node_console=_node_console(settings, stack), catalog=catalog,
        submission=submissions.new, resubmission=submissions.again, runs=runs,
        cancellation=Cancellation(jobs=jobs, completion=completion, waker=waker),
        searches=wire_sites(truth, settings, catalog, schedules, submissions.admission),
        deletion=Deletion(jobs=jobs, items=items, logs=logs, dedupe=release),
        eggs=_eggs(settings, truth, nodes, announcer, stack), health=_health(settings, truth, client, stack),
        facts=_facts(settings, truth), submits=submits, deploys=_threads(_DEPLOY_THREADS, "deploy", truth, stack),
        reads=_threads(_READ_THREADS, "read", truth, stack, _LIST_SECONDS), schedules=schedules,
        streams=EventStreams(
            settings.redis_location, jobs, logs, queries, schedules.store, clock=clock, check=truth.refuse_if_away
        ),
    )  # fmt: skip


def _keys(settings: Settings, truth: TruthStore, stack: AsyncExitStack) -> KeyRing:
    threads = _threads(_KEY_THREADS, "keys", truth, stack)
    return KeyRing(KeyStore(truth.database, truth.clock), threads, truth.clock, Seal(settings.signing_key))


def _rates(settings: Settings, stack: AsyncExitStack) -> RequestRates:
    rates = RequestRates(settings.redis_location, tell)
    stack.push_async_callback(rates.close)
    return rates


def _node_console(settings: Settings, stack: AsyncExitStack) -> NodeConsole:
    console = NodeConsole(settings.scrapyd_username, settings.scrapyd_password.get_secret_value())
    stack.push_async_callback(console.close)
    return console


def _audit(truth: TruthStore, stack: AsyncExitStack) -> AuditTrail:
    trail = AuditTrail(AuditStore(truth.database), truth.clock)
    trail.start()
    # before the client is closed that it writes with
    stack.push_async_callback(asyncio.to_thread, trail.stop)
    return trail


def _completion(  # noqa: PLR0917 - each of them is another thing that an end has consequences for
    truth: TruthStore, jobs: JobStore, nodes: NodeStore, dedupe: DedupeRelease, announcer: Announcer, waker: Waker
) -> Completion:
    queue, holds = JobQueue(truth.database, truth.clock), HoldStore(truth.database, truth.clock)
    return Completion(
        jobs=jobs, nodes=nodes, queue=queue, holds=holds, dedupe=dedupe, announcer=announcer, waker=waker,
        clock=truth.clock,
    )  # fmt: skip


def _eggs(
    settings: Settings, truth: TruthStore, nodes: NodeStore, announcer: Announcer, stack: AsyncExitStack
) -> Eggs:
    eggs = wire_eggs(settings, truth, nodes, announcer)
    stack.callback(eggs.scrapyd.close)
    return eggs


def _health(settings: Settings, truth: TruthStore, client: redis.Redis, stack: AsyncExitStack) -> SharedHealth:
    # its own client: the others' time-outs are too long for whoever asks after our health
    database = mongo.connect(settings.mongo_uri, timeout=_HEALTH_SECONDS)
    stack.callback(database.client.close)
    health = Health(
        database=database,
        client=client,
        broker_url=settings.broker_location,
        dead_after=timedelta(seconds=settings.node_dead_after),
        node_list=NodeList(settings.scrapyd_url),
        late_after=timedelta(seconds=max(5.0, 10 * settings.tick_seconds)),
        clock=truth.clock,
    )
    stack.callback(health.close)
    return SharedHealth(health.report)


def _facts(settings: Settings, truth: TruthStore) -> FactReader:
    return FactReader(
        truth.database,
        node_dead_after=timedelta(seconds=settings.node_dead_after),
        node_list=NodeList(settings.scrapyd_url),
        clock=truth.clock,
    )
