from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
from jobs import make_job
from pymongo.database import Database
from relay import MongoRelay, Relay, failure
from stack import wait_until
from stores import embedded_mongo, valkey_server

from gateway.clock import utc_now
from gateway.contract.reasons import Reason
from gateway.contract.records import SpiderInfo
from gateway.jobs.job import JobStatus
from gateway.jobs.outcome import Outcome
from gateway.jobs.store import JobStore
from gateway.nodes.health import BEAT, WORKER, HeartbeatStore
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.retention.retention import UnreadableStore
from gateway.settings import Settings
from gateway.signals.delivery_store import Delivery, DeliveryState, DeliveryStore, DeliveryTry
from gateway.status import health
from gateway.stores.document_format import Format, enter
from gateway.stores.mongo import connect, round_trip
from gateway.stores.unanswered import Unanswered

Serve = Callable[[Settings], AbstractContextManager[httpx2.Client]]

pytestmark = pytest.mark.usefixtures("unhurried")


def test_health_is_ok_once_everything_gives_a_sign_of_life(
    gateway: httpx2.Client, nodes: NodeStore, database: Database[dict[str, Any]]
) -> None:
    # remove what other tests have left: jobs that nobody starts, and nodes that are silent by now
    for collection in ("jobs", "nodes", "schedules"):
        database[collection].delete_many({})

    failing: list[Any] = []

    def report_after_signs() -> httpx2.Response:
        for name in ("beat:a:1", "worker:a:2"):
            HeartbeatStore(database).beat(name)
        url = "http://127.0.0.1:6800"
        nodes.heartbeat("n1", url=url, max_slots=4, alive=[], present=[], beating_since=utc_now())
        return gateway.get("/health")

    def is_ok() -> bool:
        checks = report_after_signs().json()["checks"]
        failing[:] = [(name, check) for name, check in checks.items() if check["status"] != "ok"]
        return not failing

    # on a busy machine a store may be slow for a moment
    with suppress(AssertionError):
        wait_until(is_ok, what="a good report")
    assert failing == []
    health = report_after_signs()
    assert health.status_code == 200
    assert set(health.json()["checks"]) == {
        "mongo", "redis", "broker", "nodes", "node_list", "node_states", "disk", "files", "waiting", "schedules",
        "workers", "beat", "documents", "webhooks", "connections", "clocks", "versions",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("process", "check", "start"), [(WORKER, "workers", "celery_app worker"), (BEAT, "beat", "celery_app beat")]
)
def test_who_gives_no_sign_of_life_any_more_is_missed(
    gateway: httpx2.Client, database: Database[dict[str, Any]], process: str, check: str, start: str
) -> None:
    def told(begins: str) -> dict[str, Any]:
        """Wait for this message of the check, because a report has the check's last answer while the check runs."""

        def found() -> dict[str, Any] | None:
            answer: dict[str, Any] = checks_of(gateway)[check]
            return answer if answer["message"].startswith(begins) else None

        return wait_until(found, what=f"{check}: {begins}")

    database["heartbeats"].delete_many({})
    assert told("no process has ever been seen")["status"] == "down"
    HeartbeatStore(database, lambda: utc_now() - timedelta(minutes=1)).beat(f"{process}:a:1")
    missing = told("last seen ")
    assert missing["status"] == "down"
    assert start in missing["todo"]
    HeartbeatStore(database).beat(f"{process}:b:2")
    assert told("1 alive") == {"status": "ok", "message": "1 alive", "todo": None}


def test_a_node_with_a_full_disk_is_named(gateway: httpx2.Client, nodes: NodeStore) -> None:
    facts = {"url": "http://127.0.0.1:6800", "max_slots": 4, "alive": [], "present": [], "beating_since": utc_now()}
    nodes.heartbeat("n1", disk_full=True, free_bytes=5 << 20, **facts)
    health = gateway.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    disk = health.json()["checks"]["disk"]
    assert disk["status"] == "down"
    assert "n1 (5 MiB free)" in disk["message"]
    assert "NODE_MIN_FREE_BYTES" in disk["todo"]


def test_who_was_not_answered_lately_is_named_and_what_lasts_is_broken(
    gateway: httpx2.Client, nodes: NodeStore, database: Database[dict[str, Any]]
) -> None:
    def check(lasted: float) -> dict[str, Any]:
        HeartbeatStore(database).beat("worker:secret.example:1", [Unanswered("Redis", 3, lasted, 5.0)])
        told: dict[str, Any] = gateway.get("/health").json()["checks"]["connections"]
        return told

    facts = {"url": "http://127.0.0.1:6800", "max_slots": 4, "alive": [], "present": [], "beating_since": utc_now()}
    nodes.heartbeat("n1", unanswered=[Unanswered("MongoDB", 1, 0.0, 40.0)], **facts)
    once = check(lasted=1.0)
    assert once["status"] == "ok"
    assert "Redis to a worker (3 ×, the last 5 s ago), MongoDB to n1 (1 ×, the last 40 s ago)" in once["message"]
    assert check(lasted=20.0)["status"] == "down"
    HeartbeatStore(database).beat("worker:secret.example:1")
    nodes.heartbeat("n1", **facts)
    told = gateway.get("/health").json()["checks"]["connections"]["message"]
    assert not any(name in told for name in ("a worker", "n1"))


def test_machines_whose_clocks_are_not_mongodbs_are_named(
    gateway: httpx2.Client, database: Database[dict[str, Any]]
) -> None:
    HeartbeatStore(database).beat("beat:a:1")
    database["heartbeats"].update_one({"_id": "beat:a:1"}, {"$set": {"clock_ahead": -600.2}})
    clocks = gateway.get("/health").json()["checks"]["clocks"]
    assert (clocks["status"], clocks["message"]) == ("down", "different from MongoDB's clock: a beat 600 s behind")
    HeartbeatStore(database).beat("beat:a:1")
    assert gateway.get("/health").json()["checks"]["clocks"]["status"] == "ok"


def test_what_is_older_than_the_newest_is_named_and_is_no_fault(
    gateway: httpx2.Client, nodes: NodeStore, database: Database[dict[str, Any]]
) -> None:
    def check() -> dict[str, Any]:
        told: dict[str, Any] = gateway.get("/health").json()["checks"]["versions"]
        return told

    for collection in ("nodes", "heartbeats"):
        database[collection].delete_many({})
    today = version("discoverybot")
    # the gateway's own sign of life
    wait_until(lambda: check()["message"] == f"every process runs {today}", what="the gateway's version")
    facts = {"url": "http://127.0.0.1:6800", "max_slots": 4, "alive": [], "present": [], "beating_since": utc_now()}
    nodes.heartbeat("n1", version="0.1.0", **facts)
    nodes.heartbeat("n2", version=today, **facts)
    for name in ("worker:secret.example:1", "worker:secret.example:2", "beat:secret.example:3"):
        HeartbeatStore(database).beat(name)
    # processes of 0.1.0 take over the names; they do not report their version
    database["heartbeats"].update_many({"_id": {"$regex": "^worker"}}, {"$set": {"at": utc_now()}})
    found = check()
    assert found["status"] == "ok"
    assert found["message"] == (f"older than {today}, which runs beside them: node n1 (0.1.0), 2 workers (0.1.0)")
    assert "first nodes, then workers and beats, then gateways (docs/how-to/upgrade.md)" in found["todo"]
    assert "secret" not in str(found)
    # a release with a number of two digits; one of its processes was alive until lately
    HeartbeatStore(database, lambda: utc_now() - timedelta(minutes=1)).beat("beat:gone:1")
    for name in ("beat:gone:1", "beat:secret.example:3"):
        database["heartbeats"].update_one({"_id": name}, {"$set": {"version": "0.10.0"}})
    assert check()["message"].startswith("older than 0.10.0, which runs beside them: node n1 (0.1.0), node n2 (")
    database["heartbeats"].delete_many({})


def test_documents_of_a_newer_version_are_told_of(gateway: httpx2.Client, database: Database[dict[str, Any]]) -> None:
    """Processes that run go on: one start of a newer version must not stop a platform."""
    try:
        enter(database, Format(2, 2))
        health = gateway.get("/health")
        assert health.status_code == 200
        documents = health.json()["checks"]["documents"]
        assert documents["status"] == "down"
        assert "format 2" in documents["message"]
        assert "docs/how-to/upgrade.md" in documents["todo"]
    finally:
        database["counters"].delete_many({"_id": "document_format"})
    assert gateway.get("/health").json()["checks"]["documents"]["status"] == "ok"


def test_a_gateway_that_was_there_before_stores_it_does_not_understand_takes_nothing(
    serve: Serve, settings: Settings, crawl: dict[str, Any], tmp_path: Path
) -> None:
    with embedded_mongo(tmp_path) as mongo:
        database = connect(str(mongo))
        enter(database, Format(2, 2))
        mongo.stop()
        with serve(settings.model_copy(update={"mongo_uri": str(mongo)})) as gateway:
            mongo.start()
            wait_until(
                lambda: "format 2" in gateway.get("/health").json()["checks"]["documents"]["message"],
                what="word of the format",
            )
            assert_refused(gateway.post("/crawl", json=crawl))
            # after so many seconds, `prepare` has tried again
            time.sleep(2)
            assert_refused(gateway.post("/crawl", json=crawl))
            assert "jobs" not in database.list_collection_names()
        database.client.close()


def test_what_cannot_be_read_is_counted_and_left_out(
    gateway: httpx2.Client, database: Database[dict[str, Any]]
) -> None:
    # other tests may have left sites
    readable = gateway.get("/sites").json()["sites"]
    database["sites"].insert_one({"_id": "bad", "number": "x"})
    try:
        assert gateway.get("/sites").json()["sites"] == readable
        documents = gateway.get("/health").json()["checks"]["documents"]
        assert (documents["status"], documents["message"]) == ("down", "1 stored record is damaged: 1 of sites")
        assert "discoverybot doctor" in documents["todo"]
        refused = gateway.get("/sites/bad")
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "unreadable")
    finally:
        database["sites"].delete_one({"_id": "bad"})
        UnreadableStore(database).look_again()
    assert gateway.get("/health").json()["checks"]["documents"]["status"] == "ok"


def test_webhooks_that_wait_or_fail_are_told_of_without_saying_whose_they_are(
    gateway: httpx2.Client, database: Database[dict[str, Any]]
) -> None:
    before = utc_now() - timedelta(seconds=30)
    jobs, deliveries = JobStore(database, clock=lambda: before), DeliveryStore(database)
    database["jobs"].delete_many({})

    def check() -> dict[str, Any]:
        told: dict[str, Any] = gateway.get("/health").json()["checks"]["webhooks"]
        return told

    for _ in range(2):
        jobs.insert(job := make_job(status=JobStatus.RUNNING, webhooks=["http://secret.example/hook"], user_id="ada"))
        jobs.finish(job, Outcome(JobStatus.FINISHED, Reason.COMPLETED, "3 pages"))
    silent = check()
    assert (silent["status"], silent["message"]) == ("down", "late events, the first by 30 s")
    jobs.announced(jobs.to_announce("", 10))
    assert check()["message"] == "every webhook is called when it is due"
    made = [Delivery.new(f"msg_{n}", "x", before, user_id="ada", type="t", body="", url="http://secret.example/hook")
            for n in range(2)]  # fmt: skip
    deliveries.add(made)
    waiting = check()
    assert waiting["status"] == "down"
    assert waiting["message"].startswith("late calls: 2, the first by 3")
    assert "webhook_failed" in waiting["todo"]
    assert not {word for word in ("secret", "ada", job.id) if word in str(waiting)}
    # a worker calls the first one, and the other one is to be called later
    later = utc_now() + timedelta(minutes=1)
    claimed, _ = (deliveries.claim(one.id, later) for one in made)
    assert check()["message"] == "every webhook is called when it is due"
    assert claimed is not None
    tried = DeliveryTry(at=before, seconds=1, problem="answered 500")
    deliveries.note(claimed, DeliveryState.PENDING, later, tried)
    assert check() == {"status": "ok", "message": "calls that failed and are retried: 1", "todo": None}
    for name in ("jobs", "deliveries"):
        database[name].delete_many({})


def checks_of(gateway: httpx2.Client) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = gateway.get("/health").json()["checks"]
    return found


def test_a_slow_link_to_a_store_is_named(
    serve: Serve, settings: Settings, database: Database[dict[str, Any]]
) -> None:
    database["nodes"].delete_many({})
    with ExitStack() as ends:
        mongo, live = (
            ends.enter_context(Relay.before(url).running()) for url in (settings.mongo_uri, settings.redis_url)
        )
        through = {"mongo_uri": mongo.url(settings.mongo_uri), "redis_url": live.url(str(settings.redis_url))}
        with serve(settings.model_copy(update=through)) as gateway:
            assert gateway.get("/health").json()["checks"]["redis"]["status"] == "ok"
            mongo.delay = live.delay = 0.2
            far = connect(through["mongo_uri"], heartbeat=0.5)
            for store in ("mongo", "redis"):
                # the first report may still have the answers of before
                wait_until(lambda store=store: checks_of(gateway)[store]["status"] == "down", what=f"a slow {store}")
                slow = checks_of(gateway)[store]
                assert " s for a ping" in slow["message"]
                assert "network" in slow["todo"]
            # a worker and a node with a slow connection to MongoDB
            wait_until(lambda: round_trip(far) > 0.35, what="slow heartbeats")
            HeartbeatStore(far).beat("worker:far:1", slow_nodes=[("n7", 0.42)])
            NodeStore(far).heartbeat(
                "far-node", url="http://127.0.0.1:6800", max_slots=4, alive=[], present=[], beating_since=utc_now()
            )
            mongo.delay = live.delay = 0.0
            wait_until(lambda: {checks_of(gateway)[store]["status"] for store in ("mongo", "redis")} == {"ok"})
            links = checks_of(gateway)["connections"]
            assert links["status"] == "down"
            assert "MongoDB's to a worker take 0." in links["message"]
            assert "MongoDB's to far-node take 0." in links["message"]
            assert "node n7's to a worker take 0.4 s" in links["message"]
            far.client.close()
    HeartbeatStore(database).beat("worker:far:1")
    database["nodes"].delete_many({})


def test_a_full_redis_and_a_read_only_one_are_named(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    with (
        valkey_server(tmp_path / "own") as url,
        redis.Redis.from_url(str(url)) as own,
        serve(settings.model_copy(update={"redis_url": str(url)})) as gateway,
    ):

        def check() -> dict[str, Any]:
            found: dict[str, Any] = gateway.get("/health").json()["checks"]["redis"]
            return found

        assert check()["status"] == "ok"
        own.config_set("maxmemory-policy", "noeviction")
        own.config_set("maxmemory", own.info("memory")["used_memory"] + (1 << 20))
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            fill(own)
        full = check()
        assert (full["status"], full["message"].partition(":")[0]) == ("down", "full")
        assert "maxmemory" in full["todo"]
        # a Redis that evicts old keys is never full
        own.config_set("maxmemory-policy", "allkeys-lru")
        assert check()["status"] == "ok"
        own.config_set("maxmemory", 0)
        own.replicaof("127.0.0.1", "1")
        assert "replica" in check()["message"]


def fill(own: redis.Redis) -> None:
    for number in range(100):
        own.set(f"filling:{number}", b"x" * (64 << 10))


@pytest.mark.parametrize("path", ["/health", "/health/live"])
def test_a_balancer_may_ask_for_the_head_alone(gateway: httpx2.Client, path: str) -> None:
    head = gateway.head(path)
    assert (head.status_code, head.content) == (200, b"")


def test_without_mongodb_nothing_is_accepted_and_everybody_is_told(
    serve: Serve, settings: Settings, crawl: dict[str, Any], tmp_path: Path
) -> None:
    with embedded_mongo(tmp_path) as mongo:
        mongo.stop()
        # the gateway may be started before MongoDB
        with serve(settings.model_copy(update={"mongo_uri": str(mongo)})) as gateway:
            health = gateway.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "down")
            assert "MONGO_URI" in health.json()["checks"]["mongo"]["todo"]
            assert gateway.get("/health/live").json() == {"status": "ok"}
            assert_refused(gateway.post("/crawl", json=crawl))
            mongo.start()
            database = connect(str(mongo))
            SpiderStore(database).publish("n1", [SpiderInfo(project="default", name="seo")])
            database.client.close()
            assert once_available(gateway, crawl).status_code == 200
            mongo.stop()
            assert_refused(gateway.get("/jobs"))
            mongo.start()
            once_available(gateway, crawl)


def test_what_mongodb_refuses_is_not_put_down_to_its_absence(serve: Serve, settings: Settings) -> None:
    with (
        MongoRelay.before(settings.mongo_uri).running() as relay,
        serve(settings.model_copy(update={"mongo_uri": relay.url(settings.mongo_uri)})) as gateway,
    ):
        gateway.get("/health")
        # "not authorized"
        relay.fault = lambda command: failure(13) if "holds" in command.values() else None
        checks = gateway.get("/health").json()["checks"]
        assert checks["mongo"]["status"] == "ok"
        assert checks["disk"]["status"] == "down"
        assert "refuses" in checks["disk"]["message"]
        assert "MONGO_URI" in checks["disk"]["todo"]


def test_a_store_that_is_silent_keeps_few_reports_waiting_and_is_named(
    serve: Serve, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_SOON", 0.5)
    with valkey_server(tmp_path) as redis, serve(settings.model_copy(update={"redis_url": str(redis)})) as gateway:
        gateway.get("/health")
        with redis.frozen():
            began = time.monotonic()
            reports = [gateway.get("/health").json()["checks"] for _ in range(12)]
            # each report once waited for the store's timeout, which is four seconds
            assert time.monotonic() - began < 30
            assert reports[-1]["redis"]["status"] == "down"
            assert "REDIS_URL" in reports[-1]["redis"]["todo"]
        wait_until(lambda: gateway.get("/health").json()["checks"]["redis"]["status"] == "ok", what="an answer")


@pytest.mark.parametrize("asked", [{}, {"interval": "every 1h"}, {"project": "shop"}], ids=["now", "later", "egg"])
def test_nothing_is_unknown_before_a_node_has_published_its_spiders(
    serve: Serve, settings: Settings, crawl: dict[str, Any], tmp_path: Path, asked: dict[str, Any]
) -> None:
    with (
        embedded_mongo(tmp_path) as mongo,
        serve(settings.model_copy(update={"mongo_uri": str(mongo)})) as gateway,
    ):
        database = connect(str(mongo))
        # a node that lives, but has not published its spiders yet
        NodeStore(database).heartbeat(
            "n1", url="http://127.0.0.1:6800", max_slots=4, alive=[], present=[], beating_since=utc_now()
        )
        health = gateway.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "starting")
        assert health.json()["checks"]["nodes"]["status"] == "starting"
        assert int(health.headers["Retry-After"]) > 0
        assert gateway.get("/health/live").status_code == 200
        refused = gateway.post("/crawl", json={**crawl, **asked})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "starting")
        assert int(refused.headers["Retry-After"]) > 0
        SpiderStore(database).publish("n1", [SpiderInfo(project="default", name="seo")])
        assert gateway.get("/health").status_code == 200
        taken = once_available(gateway, {**crawl, **asked})
        assert taken.status_code == (422 if "project" in asked else 202 if asked else 200)
        database.client.close()


def assert_refused(response: httpx2.Response) -> None:
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert int(response.headers["Retry-After"]) > 0


def once_available(gateway: httpx2.Client, crawl: dict[str, Any]) -> httpx2.Response:
    deadline = time.monotonic() + 60
    while (response := gateway.post("/crawl", json=crawl)).status_code == 503:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return response
