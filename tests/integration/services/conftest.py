from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import mongomock
import pytest
import redis
from pymongo.database import Database
from stores import embedded_mongo, valkey_server

from gateway.domain.clock import utc_now
from gateway.domain.job import Job
from gateway.redis.client import connect
from gateway.redis.dedupe import DedupeRelease
from gateway.services.announcer import Announcer
from gateway.services.completion import Completion
from gateway.services.dispatch import Dispatch
from gateway.services.exclusion import Exclusion
from gateway.services.node_health import NodeProbe
from gateway.services.reconciliation import Reconciliation
from gateway.services.scrapyd import ScrapydClient
from gateway.services.sweeping import Sweeper
from gateway.services.turns import Turns
from gateway.services.user_limit import UserLimit
from gateway.services.waker import ENQUEUE_CRAWL, RECONCILE_NODE
from gateway.storage.client import Document
from gateway.storage.client import connect as connect_mongo
from gateway.storage.indexes import ensure_indexes
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.lanes import LaneStore
from gateway.storage.leases import LeaseStore
from gateway.storage.logs import LogStore
from gateway.storage.nodes import NodeStore
from gateway.storage.user_slots import UserSlotStore

sys.path.insert(0, str(Path(__file__).parent))
from node_double import NodeDouble, node_double

DEAD_AFTER = timedelta(seconds=30)


class Platform:
    """Services on real stores, with a clock that a test can turn and a waker that remembers."""

    def __init__(self, redis_url: str, double: NodeDouble, database: Any = None, *, running_max: int = 0) -> None:
        self.database: Any = mongomock.MongoClient(tz_aware=True)["services"] if database is None else database
        self.prepare()
        self.double = double
        self.ahead = timedelta()
        self.woken: list[tuple[Any, ...]] = []
        self.redis: redis.Redis = connect(redis_url)
        self.jobs = JobStore(self.database, self.clock)
        self.queue = JobQueue(self.database, self.clock)
        self.nodes = NodeStore(self.database, self.clock)
        self.sweeps = JobSweeps(self.database)
        self.scrapyd = self.node_client()
        announcer = Announcer(self.redis)
        self.leases = LeaseStore(self.database)
        self.exclusion = Exclusion(leases=self.leases, queue=self.queue, sweeps=self.sweeps, announcer=announcer)
        lanes, self.user_slots = LaneStore(self.database), UserSlotStore(self.database)
        self.limit = UserLimit(running_max, self.user_slots, self.jobs, self.queue, lanes, self.clock)
        self.turns = Turns(self.queue, lanes, self.limit, self.clock)
        self.completion = Completion(
            jobs=self.jobs, nodes=self.nodes, exclusion=self.exclusion, dedupe=DedupeRelease(self.redis),
            announcer=announcer, waker=self, limit=self.limit, clock=self.clock,
        )  # fmt: skip
        self.dispatch = Dispatch(
            jobs=self.jobs, queue=self.queue, sweeps=self.sweeps, nodes=self.nodes, scrapyd=self.scrapyd,
            completion=self.completion, exclusion=self.exclusion, turns=self.turns, limit=self.limit,
            announcer=announcer, dead_after=DEAD_AFTER, clock=self.clock,
        )  # fmt: skip
        self.reconciliation = Reconciliation(
            jobs=self.jobs, sweeps=self.sweeps, nodes=self.nodes, logs=LogStore(self.database),
            dispatch=self.dispatch, completion=self.completion,
            probe=NodeProbe(self.nodes, self.scrapyd, self.clock), clock=self.clock,
        )  # fmt: skip
        self.sweeper = Sweeper(
            jobs=self.jobs, queue=self.queue, sweeps=self.sweeps, nodes=self.nodes, completion=self.completion,
            exclusion=self.exclusion, turns=self.turns, limit=self.limit, announcer=announcer, waker=self,
            dead_after=DEAD_AFTER, clock=self.clock, monotonic=self.monotonic,
        )  # fmt: skip

    def prepare(self) -> None:
        """What a database needs that nobody has used before."""
        ensure_indexes(self.database)

    def node_client(self) -> ScrapydClient:
        return ScrapydClient("discoverybot", "secret")

    def reconcile(self) -> None:
        """What the beat and a worker do together: sweep, and look at the nodes that the sweep names."""
        self.woken.clear()
        self.sweeper.sweep()
        for task, *arguments in list(self.woken):
            if task == RECONCILE_NODE:
                self.reconciliation.node(*arguments)

    def clock(self) -> datetime:
        return utc_now() + self.ahead

    def monotonic(self) -> float:
        return self.clock().timestamp()

    def wake(self, task: str, *args: Any) -> None:
        self.woken.append((task, *args))

    def wake_job(self, job: Job) -> None:
        self.wake(ENQUEUE_CRAWL, job.id)

    def heartbeat(self, name: str = "n1", *, slots: int = 2, alive: tuple[str, ...] = ()) -> None:
        """Beats for an hour already, as a tailer that was not restarted."""
        since = self.clock() - timedelta(hours=1)
        self.nodes.heartbeat(
            name, url=self.double.url, max_slots=slots, alive=alive, present=alive, beating_since=since
        )

    def slots(self, name: str = "n1") -> list[str]:
        node = self.nodes.get(name)
        assert node is not None
        return node.slots


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as url:
        yield url


@pytest.fixture(scope="session")
def mongo_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri:
        yield uri


@pytest.fixture
def database(mongo_uri: str) -> Iterator[Database[Document]]:
    """A server's: mongomock cannot follow where there are bulk writes."""
    database = connect_mongo(mongo_uri).client[uuid.uuid4().hex]
    ensure_indexes(database)
    yield database
    database.client.close()


@pytest.fixture
def double() -> Iterator[NodeDouble]:
    with node_double() as double:
        yield double


@pytest.fixture
def platform(redis_url: str, double: NodeDouble) -> Iterator[Platform]:
    platform = Platform(redis_url, double)
    platform.redis.flushall()
    yield platform
    platform.scrapyd.close()
    platform.redis.close()
