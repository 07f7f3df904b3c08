"""The metrics for Prometheus, read with its own parser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jobs import make_job
from prometheus_client.parser import text_string_to_metric_families
from pymongo.database import Database
from relay import Relay
from stack import wait_until
from stores import embedded_mongo

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.reasons import Reason
from gateway.contract.records import Progress
from gateway.jobs.job import Attempt, Job, JobStatus, WaitingReason
from gateway.jobs.store import JobStore
from gateway.nodes.health import BEAT, WORKER, HeartbeatStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.store import NodeStore
from gateway.settings import Settings
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.status import facts
from gateway.stores.mongo import connect
from gateway.web.routes.metrics import MAX_SITES

Serve = Callable[[Settings], AbstractContextManager[httpx2.Client]]
Add = Callable[..., Job]
Labels = frozenset[tuple[str, str]]
PREFIX = "discoverybot_"


class Scrape:
    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.values: dict[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, metric: str, **labels: str) -> float | None:
        return self.values.get((PREFIX + metric, frozenset(labels.items())))

    def names(self) -> set[str]:
        return {name.removeprefix(PREFIX) for name, _ in self.values if name.startswith(PREFIX)}

    def labels(self, label: str) -> set[str]:
        return {dict(labels)[label] for _, labels in self.values if label in dict(labels)}


@pytest.fixture(scope="module")
def own_uri(settings: Settings) -> str:
    return settings.mongo_uri.replace("/discoverybot", "/metrics")


@pytest.fixture(scope="module")
def own(own_uri: str) -> Iterator[Database[dict[str, Any]]]:
    database = connect(own_uri)
    yield database
    database.client.close()


@pytest.fixture
def door(
    serve: Serve, settings: Settings, own_uri: str, own: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[httpx2.Client]:
    """A gateway that reads the database anew for each scrape."""
    for collection in ("jobs", "nodes", "heartbeats", "deliveries"):
        own[collection].delete_many({})
    monkeypatch.setattr(facts, "KEPT", 0.0)
    with serve(settings.model_copy(update={"mongo_uri": own_uri})) as client:
        yield client


@pytest.fixture
def add(own: Database[dict[str, Any]], door: object) -> Add:
    store = JobStore(own)

    def insert(**fields: Any) -> Job:
        job = make_job(**fields)
        store.insert(job)
        return job

    return insert


def scrape(door: httpx2.Client) -> Scrape:
    answer = door.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(answer.text)


def run(status: JobStatus, site: str | None = None, **fields: Any) -> dict[str, Any]:
    """The fields of a job that was due 100 s ago, was given to a node after 5 s, ran 20 s later and has ended."""
    due = utc_now() - timedelta(seconds=100)
    dispatched_at = due + timedelta(seconds=5)
    return {
        "spec": CrawlSpec(spider="jobs", start_urls=("http://board.example/",), site=site),
        "status": status,
        "created_at": due,
        "started_at": due + timedelta(seconds=25),
        "finished_at": due + timedelta(seconds=100),
        "attempt": 1,
        "attempts": {"1": Attempt(attempt=1, node="n1", dispatched_at=dispatched_at)},
        "settled": True,
        "live_key": None,
        **fields,
    }


def test_an_idle_platform_tells_of_every_state_that_there_is_nothing(door: httpx2.Client) -> None:
    told = scrape(door)
    assert {told("jobs", status=status) for status in JobStatus} == {0}
    assert {told("jobs_waiting", reason=reason) for reason in (*WaitingReason, "unexplained")} == {0}
    for name in (
        "queue_oldest_seconds",
        "dead_letters",
        "webhooks_waiting",
        "webhooks_failing",
        "workers_alive",
        "beats_alive",
        "scheduler_lag_seconds",
    ):
        assert told(name) == 0, name
    assert told("mongodb_up") == 1
    assert "process_resident_memory_bytes" in {name for name, _ in told.values}


def test_the_queue_is_told_by_status_and_by_what_jobs_wait_for(
    door: httpx2.Client, add: Add, own: Database[dict[str, Any]]
) -> None:
    for reason in (WaitingReason.CAPACITY, WaitingReason.CAPACITY, WaitingReason.SITE_BUSY, None):
        add(waiting_reason=reason, created_at=utc_now() - timedelta(minutes=2))
    add(**run(JobStatus.ERROR, dead=True))
    for tries in (0, 1):
        made = Delivery.new(f"msg_{tries}", "x", utc_now(), user_id="ada", type="t", body="", url="x", tries=tries)
        DeliveryStore(own).add([made])
    told = scrape(door)
    assert (told("webhooks_waiting"), told("webhooks_failing")) == (2, 1)
    assert (told("jobs", status="pending"), told("jobs", status="error"), told("dead_letters")) == (4, 1, 1)
    assert told("jobs_waiting", reason="capacity") == 2
    assert (told("jobs_waiting", reason="site_busy"), told("jobs_waiting", reason="unexplained")) == (1, 1)
    assert 120 <= (told("queue_oldest_seconds") or 0) < 180


def test_the_last_hour_is_told_by_site(door: httpx2.Client, add: Add) -> None:
    progress = Progress(completed_pages=10, items_count=7, errors_count=2)
    add(**run(JobStatus.FINISHED, "alpha", progress=progress))
    add(**run(JobStatus.ERROR, "alpha", attempt=3, progress=progress))
    add(**run(JobStatus.FINISHED))
    add(**run(JobStatus.FINISHED, "alpha", finished_at=utc_now() - timedelta(hours=2)))
    told = scrape(door)
    assert told("recent_jobs", site_name="alpha", status="finished") == 1
    assert told("recent_jobs", site_name="alpha", status="error") == 1
    assert told("recent_jobs", site_name="", status="finished") == 1
    sums = {name: told(f"recent_{name}", site_name="alpha") for name in ("items", "pages", "page_errors", "retries")}
    assert sums == {"items": 14, "pages": 20, "page_errors": 4, "retries": 2}
    assert told("recent_run_seconds", site_name="alpha", quantile="0.95") == 75
    assert told("recent_dispatch_seconds", quantile="0.5") == 5
    assert told("recent_processing_seconds", quantile="1") == 100
    add(**run(JobStatus.PARTIAL, "alpha"))
    assert scrape(door)("recent_jobs", site_name="alpha", status="partial") == 1


def test_the_last_hour_is_told_by_reason(door: httpx2.Client, add: Add, own: Database[dict[str, Any]]) -> None:
    add(**run(JobStatus.FINISHED, reason=Reason.COMPLETED))
    add(**run(JobStatus.ERROR, "alpha", reason=Reason.SITE_TIMEOUT))
    add(**run(JobStatus.ERROR, reason=Reason.SITE_TIMEOUT))
    add(**run(JobStatus.ERROR))
    newer = add(**run(JobStatus.ERROR, reason=Reason.STALLED))
    own["jobs"].update_one({"_id": newer.id}, {"$set": {"reason": "of_a_newer_version"}})
    told = scrape(door)
    counts = {reason: told("recent_reasons", reason=reason) for reason in (*Reason, "unknown")}
    expected = {Reason.COMPLETED: 1, Reason.SITE_TIMEOUT: 2, "unknown": 2}
    assert counts == {**dict.fromkeys(Reason, 0), **expected}
    assert told("recent_reasons", reason="of_a_newer_version") is None


def test_the_time_until_a_crawl_for_later_is_no_latency(door: httpx2.Client, add: Add) -> None:
    job = run(JobStatus.FINISHED)
    add(**{**job, "not_before": job["created_at"], "created_at": job["created_at"] - timedelta(days=3)})
    assert scrape(door)("recent_dispatch_seconds", quantile="1") == 5


def test_nodes_and_processes_are_told(door: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    nodes = NodeStore(own)
    facts = {"url": "http://127.0.0.1:6800", "alive": [], "present": [], "beating_since": utc_now()}
    nodes.heartbeat("n1", max_slots=4, max_render_slots=1, free_bytes=5 << 30, **facts)
    HoldStore(own).take([Wish("node:n1", "a-1", 4), Wish("browser:n1", "a-1", 1)], "t")
    gone = NodeStore(own, lambda: utc_now() - timedelta(hours=1))
    gone.heartbeat("n2", max_slots=2, disk_full=True, **facts)
    HeartbeatStore(own).beat(f"{WORKER}:here:1")
    HeartbeatStore(own, lambda: utc_now() - timedelta(minutes=1)).beat(f"{BEAT}:here:2")
    told = scrape(door)
    assert (told("node_up", node="n1"), told("node_up", node="n2")) == (1, 0)
    assert (told("node_slots", node="n1"), told("node_slots_used", node="n1")) == (4, 1)
    assert (told("node_render_slots", node="n1"), told("node_render_slots_used", node="n1")) == (1, 1)
    assert (told("node_free_bytes", node="n1"), told("node_disk_full", node="n2")) == (5 << 30, 1)
    assert (told("workers_alive"), told("beats_alive")) == (1, 0)


def test_requests_are_told_by_route_never_by_path(door: httpx2.Client, add: Add) -> None:
    job = add(user_id="ada-lovelace")
    assert door.get(f"/jobs/{job.id}/status").status_code == 200
    assert door.get(f"/jobs/{'0' * 32}/status").status_code == 404
    assert door.request("PROPFIND", "/some/thing").status_code == 404
    told = scrape(door)
    route = "/jobs/{job_id}/status"
    assert told("http_requests_total", method="GET", route=route, status="200") == 1
    assert told("http_requests_total", method="GET", route=route, status="404") == 1
    assert told("http_requests_total", method="other", route="unmatched", status="404") == 1
    assert told("http_request_duration_seconds_count", method="GET", route=route) == 2
    assert job.id not in str(told.values)
    assert "ada-lovelace" not in str(told.values)


def test_those_who_follow_a_stream_are_counted_while_they_do(door: httpx2.Client, add: Add) -> None:
    job = add()
    assert scrape(door)("stream_clients") == 0
    with door.stream("GET", f"/jobs/{job.id}/logs", headers={"Accept": "text/event-stream"}) as response:
        assert response.status_code == 200
        assert scrape(door)("stream_clients") == 1
    wait_until(lambda: scrape(door)("stream_clients") == 0, what="the stream's end")


def test_the_names_of_sites_cannot_grow_without_bound(door: httpx2.Client, add: Add) -> None:
    for number in range(MAX_SITES + 5):
        add(**run(JobStatus.FINISHED, f"site-{number:03}"))
    told = scrape(door)
    sites = told.labels("site_name")
    assert len(sites) == MAX_SITES + 1
    counted = [told("recent_jobs", site_name=site, status="finished") or 0 for site in sites]
    assert sum(counted) == MAX_SITES + 5


def test_one_scrape_is_enough_for_many_within_a_moment(
    door: httpx2.Client, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "KEPT", 60.0)
    assert scrape(door)("jobs", status="pending") == 0
    add()
    assert scrape(door)("jobs", status="pending") == 0


def test_without_mongodb_a_gateway_tells_what_it_knows_of_itself(
    serve: Serve, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "KEPT", 0.0)
    with embedded_mongo(tmp_path) as mongo, serve(settings.model_copy(update={"mongo_uri": str(mongo)})) as gateway:
        assert scrape(gateway)("jobs", status="pending") == 0
        mongo.stop()
        told = scrape(gateway)
        assert told("mongodb_up") == 0
        assert told("jobs", status="pending") is None
        assert told("http_requests_total", method="GET", route="/metrics", status="200") == 1
        mongo.start()
        wait_until(lambda: scrape(gateway)("mongodb_up") == 1, what="MongoDB's return")


def test_the_platforms_state_is_read_over_a_slow_link(serve: Serve, settings: Settings) -> None:
    with Relay.before(str(settings.mongo_uri)).running() as mongo:
        through = settings.model_copy(update={"mongo_uri": mongo.url(str(settings.mongo_uri))})
        with serve(through) as gateway:
            mongo.delay = 0.12
            assert 'discoverybot_jobs{status="running"}' in gateway.get("/metrics").text
