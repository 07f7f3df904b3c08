from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Lock, RLock
from typing import Any

import pytest
import redis
from databases import Databases
from ended_runs import ended_runs
from pymongo import MongoClient
from stores import embedded_mongo, valkey_server

from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.contract.public_address import parse_networks
from gateway.datasets.store import DatasetStore, RunStore
from gateway.dispatch.dispatcher import Dispatch
from gateway.dispatch.fair_queue import FairQueue
from gateway.dispatch.sweeping import TAKEN_FOR, Sweeper
from gateway.jobs.completion import Completion
from gateway.jobs.dedupe import DedupeRelease
from gateway.jobs.job import Job
from gateway.jobs.messages import ENQUEUE_CRAWL, EventPublisher
from gateway.jobs.queries import JobQueries, JobStatistics, JobSweeps
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import JobStore
from gateway.logs.store import LogStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.node import node_resource
from gateway.nodes.scrapyd import ScrapydClient
from gateway.nodes.store import Node, NodeStore
from gateway.projects.eggs import EggCopies
from gateway.projects.environment import ProjectEnvironment, ProjectStore, SecretBox
from gateway.projects.versions import VersionStore
from gateway.repeated_work import Isolation
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.signals.alerting import Alerting
from gateway.signals.alerts import AlertRuleStore, AlertStore
from gateway.signals.announcing import Announcing
from gateway.signals.apprise_caller import AppriseCaller
from gateway.signals.delivering import OutgoingCaller, Webhooks
from gateway.signals.delivery_store import DeliveryStore
from gateway.signals.deployments import DeploySignals
from gateway.signals.endpoints import Endpoints, EndpointStore
from gateway.signals.item_batches import ItemBatches
from gateway.signals.node_states import NodeAnnouncing, NodeStateStore
from gateway.signals.present_figures import PresentFigures
from gateway.signals.signatures import WebhookSecrets
from gateway.stores.mongo import connect as connect_mongo
from gateway.stores.redis import connect

sys.path.insert(0, str(Path(__file__).parent))
from clockwork import Clockwork
from node_double import NodeDouble, node_double

DEAD_AFTER = timedelta(seconds=30)


class AtOnce(Executor):
    """Carries out what it is given before it returns."""

    def submit(self, step: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(step(*args, **options))
        return done


class DrivenDispatch(Dispatch):
    """The test makes the loop's turns itself, and waits for the tasks that each turn begins."""

    turning: Any
    accepted = 0

    def fill(self, *names: str | None) -> int:
        """Look until nothing asks for another look. Returns how many attempts nodes have accepted meanwhile."""
        with self.turning:
            before = self.accepted
            self.loop.wake(*names)
            for _ in range(100):
                self.loop.turn()
                self.wait()
                if not self.loop._asked.is_set():
                    break
            self.explain_waiting(Isolation("test"))
            return self.accepted - before

    def wait(self) -> None:
        assert self.tasks.wait(60), "the task of a node does not end"

    def cancel(self, job: Job) -> None:
        super().cancel(job)
        self.wait()

    def post_again(self, job: Job) -> None:
        super().post_again(job)
        self.wait()

    def _post(self, job: Job, node: Node) -> None:
        super()._post(job, node)
        self.accepted += 1


class Platform:
    """Services on real stores, with a clock that a test can turn and a waker that remembers. The database has its
    indexes.
    """

    def __init__(self, redis_url: str, double: NodeDouble, database: Any, *, running_max: int = 0) -> None:
        self.database = database
        self.double = double
        #: How much time the test has let pass, and by how much the database's clock was turned.
        self.ahead, self.turned = timedelta(), timedelta()
        self.comparing = Lock()
        self.woken: list[tuple[Any, ...]] = []
        self.redis: redis.Redis = connect(redis_url)
        self.jobs = JobStore(self.database, self.clock)
        self.queue = JobQueue(self.database, self.clock)
        self.holds = HoldStore(self.database, self.clock)
        self.nodes = NodeStore(self.database, self.clock)
        self.sweeps = JobSweeps(self.database)
        self.scrapyd = self.node_client()
        publisher = EventPublisher(self.redis)
        self.fair = FairQueue(self.queue, self.holds, running_max, self.monotonic)
        self.completion = Completion(
            jobs=self.jobs, nodes=self.nodes, queue=self.queue, holds=self.holds, dedupe=DedupeRelease(self.redis),
            publisher=publisher, waker=self, clock=self.clock,
        )  # fmt: skip
        self.keys = ["k" * 32]
        self.projects = ProjectStore(self.database)
        self.environment = ProjectEnvironment(self.projects, SecretBox(lambda: self.keys), self.clock)
        self.webhook_secrets = WebhookSecrets(self.database, SecretBox(lambda: self.keys), self.clock)
        self._add_signals()
        self.dispatch = DrivenDispatch(
            jobs=self.jobs, queue=self.queue, holds=self.holds, nodes=self.nodes, copies=EggCopies(self.database),
            scrapyd=self.scrapyd, environment=self.environment, completion=self.completion, fair=self.fair,
            publisher=publisher, projects=self.projects,
            sweeps=self.sweeps, dead_after=DEAD_AFTER, clock=self.clock, monotonic=self.monotonic, threads=AtOnce(),
        )  # fmt: skip
        for step, _ in self.dispatch._steps._steps[:4]:
            # each look takes these steps, however soon it comes
            step.every = 0.0
        self.dispatch.turning = RLock()
        self.start_beat()

    def _add_signals(self) -> None:
        self.deliveries = DeliveryStore(self.database, self.clock)
        self.endpoint_store = EndpointStore(self.database)
        self.endpoints = Endpoints(
            apprise=AppriseCaller(parse_networks(["127.0.0.0/8"])), store=self.endpoint_store,
            deliveries=self.deliveries, secrets=self.webhook_secrets,
            webhook_networks=parse_networks(["127.0.0.0/8"]), clock=self.clock,
        )  # fmt: skip

    def start_beat(self) -> None:
        self.sweeper = Sweeper(
            jobs=self.jobs, queue=self.queue, sweeps=self.sweeps, nodes=self.nodes, completion=self.completion,
            holds=self.holds, logs=LogStore(self.database), dead_after=DEAD_AFTER, clock=self.clock,
            monotonic=self.monotonic, threads=AtOnce(),
        )  # fmt: skip

    def announcing(self) -> Announcing:
        return Announcing(
            jobs=self.jobs, deliveries=self.deliveries, endpoints=self.endpoint_store,
            ledger=LedgerStore(self.database), schedules=ScheduleStore(self.database, self.clock),
            alerting=self.alerting(), ended=ended_runs(self.database, self.clock),
            public_url="https://crawls.example.com", clock=self.clock,
        )  # fmt: skip

    def alerting(self) -> Alerting:
        figures = PresentFigures(
            statistics=JobStatistics(self.database), nodes=self.nodes, node_states=NodeStateStore(self.database),
            datasets=DatasetStore(self.database, self.clock), runs=RunStore(self.database, self.clock),
        )  # fmt: skip
        return Alerting(
            rules=AlertRuleStore(self.database), alerts=AlertStore(self.database), deliveries=self.deliveries,
            endpoints=self.endpoint_store, figures=figures, public_url="https://crawls.example.com", clock=self.clock,
            monotonic=self.monotonic,
        )  # fmt: skip

    def node_states(self) -> NodeAnnouncing:
        return NodeAnnouncing(
            states=NodeStateStore(self.database), nodes=self.nodes, deliveries=self.deliveries,
            endpoints=self.endpoint_store, dead_after=DEAD_AFTER, clock=self.clock, monotonic=self.monotonic,
        )  # fmt: skip

    def deployments(self) -> DeploySignals:
        return DeploySignals(
            versions=VersionStore(self.database, self.clock), deliveries=self.deliveries,
            endpoints=self.endpoint_store, public_url="https://crawls.example.com", clock=self.clock,
            monotonic=self.monotonic,
        )  # fmt: skip

    def batches(self) -> ItemBatches:
        return ItemBatches(
            queries=JobQueries(self.database), deliveries=self.deliveries, endpoints=self.endpoint_store,
            public_url="https://crawls.example.com", clock=self.clock, monotonic=self.monotonic,
        )  # fmt: skip

    def webhooks(self, caller: OutgoingCaller) -> Webhooks:
        return Webhooks(
            deliveries=self.deliveries, announcing=self.announcing(), endpoints=self.endpoints, jobs=self.jobs,
            caller=caller, secrets=self.webhook_secrets, node_states=self.node_states(), alerting=self.alerting(),
            deployments=self.deployments(), batches=self.batches(),
            apprise=AppriseCaller(parse_networks(["127.0.0.0/8"])), clock=self.clock,
        )  # fmt: skip

    def node_client(self) -> ScrapydClient:
        return ScrapydClient("discoverybot", "secret")

    def reconcile(self) -> None:
        """What the beat and a worker do by themselves, except for jobs that wait for a slot or a node's answer."""
        self.woken.clear()
        self.sweeper.sweep()
        self._ask_nodes()

    def look_at_nodes(self) -> None:
        """The part of `reconcile` that is about nodes, however short a time after the last look."""
        self.woken.clear()
        self.compare()
        self._ask_nodes()

    def _ask_nodes(self) -> None:
        dispatch, apart = self.dispatch, Isolation("test", self.monotonic)
        for step in (dispatch.see_to_running, dispatch.see_to_nodes, dispatch.end_superseded):
            step(apart)
        self.explain()
        dispatch.wait()

    def explain(self) -> None:
        """Note for each waiting job why it waits."""
        self.dispatch.explain_waiting(Isolation("test", self.monotonic))

    def compare(self) -> None:
        """Compare what should run with what nodes report and with the holds, as the sweep's steps do. As in a sweep,
        a step never runs twice at the same time, because the sweeper keeps what it has seen.
        """
        with self.comparing:
            self.sweeper._seen_live._found = self.sweeper._seen_nodes._found = self.sweeper._seen_holds._found = None
            for step in (self.sweeper.see_to_missing, self.sweeper.free_leaked, self.sweeper.forgive):
                step(Isolation("test", self.monotonic))

    def clock(self) -> datetime:
        return utc_now() + self.ahead + self.turned

    def monotonic(self) -> float:
        return (utc_now() + self.ahead).timestamp()

    def wake(self, task: str, *args: Any) -> None:
        self.woken.append((task, *args))

    def wake_job(self, job: Job) -> None:
        self.wake(ENQUEUE_CRAWL, job.id)

    def heartbeat(
        self, name: str = "n1", *, slots: int = 2, alive: tuple[str, ...] = (), left: tuple[str, ...] = (),
        eggs: tuple[Egg, ...] = (),
    ) -> None:  # fmt: skip
        """A heartbeat of a tailer that has been up for an hour. It still has files of the attempts in `left`."""
        since = self.clock() - timedelta(hours=1)
        self.nodes.heartbeat(
            name, url=self.double.url, max_slots=slots, alive=alive, present=(*alive, *left), beating_since=since,
            eggs=eggs,
        )  # fmt: skip

    def slots(self, name: str = "n1") -> list[str]:
        """The attempts that hold a slot of the node."""
        resource = node_resource(name)
        return sorted(self.holds.holders([resource]).get(resource, ()))

    def held(self) -> dict[str, list[str]]:
        """The attempts that hold each resource."""
        return {one.resource: [holder.attempt for holder in one.holders] for one in self.holds.all() if one.holders}

    def sweep_holds(self) -> None:
        """Free what workers have taken without using it, or without knowing whether they got it."""
        self.ahead += TAKEN_FOR
        self.compare()
        self.sweeper._seen_holds._found = None
        self.sweeper.forget_unused(Isolation("test", self.monotonic))

    def work_at_once(self, work: Callable[[int], None], over: Event, seconds: float) -> None:
        """Let six workers work, until `over` is set or the time has passed."""
        with ThreadPoolExecutor(6) as threads:
            tasks = [threads.submit(work, seed) for seed in range(6)]
            over.wait(seconds)
            over.set()
            for task in tasks:
                task.result()
        self.sweep_holds()

    def end_back_off(self, job: Job) -> None:
        later = {"_id": job.id, "status": "pending", "attend_at": {"$gt": job.created_at}}
        self.database["jobs"].update_one(later, {"$set": {"attend_at": job.created_at}})

    def take(self, resource: str, attempt: str, most: int = 99) -> bool:
        """Take a resource as a worker does before it assigns the attempt."""
        return bool(self.holds.take([Wish(resource, attempt, most)], "token"))


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as url:
        yield url


@pytest.fixture(scope="session")
def mongo_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri:
        yield uri


@pytest.fixture(scope="session")
def databases(mongo_uri: str) -> Iterator[Databases]:
    with Databases(mongo_uri) as databases:
        yield databases


@pytest.fixture
def database(databases: Databases) -> Iterator[Any]:
    """A server's: mongomock cannot follow where there are bulk writes."""
    with databases.lent() as name, connect_mongo(databases.uri).client as client:
        yield client[name]


@pytest.fixture
def works(databases: Databases) -> Iterator[Clockwork]:
    client = MongoClient[dict[str, Any]](databases.uri, tz_aware=True, datetime_conversion="DATETIME_AUTO")
    with databases.lent() as name, client:
        yield Clockwork(client[name])


@pytest.fixture
def double() -> Iterator[NodeDouble]:
    with node_double() as double:
        yield double


@pytest.fixture
def platform(redis_url: str, double: NodeDouble, database: Any) -> Iterator[Platform]:
    platform = Platform(redis_url, double, database)
    platform.redis.flushall()
    yield platform
    platform.scrapyd.close()
    platform.redis.close()
