"""The state of the queue, on a database of its own, so that no job of another test waits there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from jobs import make_job
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.jobs.store import JobStore
from gateway.nodes.health import WORKER, HeartbeatStore
from gateway.settings import Settings
from gateway.status import facts
from gateway.stores.mongo import connect

Serve = Callable[[Settings], AbstractContextManager[httpx2.Client]]


@pytest.fixture(scope="module")
def own_uri(settings: Settings) -> str:
    return settings.mongo_uri.replace("/discoverybot", "/queue")


@pytest.fixture(scope="module")
def own(own_uri: str) -> Iterator[Database[dict[str, Any]]]:
    database = connect(own_uri)
    yield database
    database.client.close()


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings, own_uri: str) -> Iterator[httpx2.Client]:
    with serve(settings.model_copy(update={"mongo_uri": own_uri})) as client:
        yield client


@pytest.fixture(autouse=True)
def _counted_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every call count anew, because a count that took long, as on a busy machine, is kept for a while."""
    monkeypatch.setattr(facts, "CHEAP", 60.0)


@pytest.fixture
def add(own: Database[dict[str, Any]], door: object) -> Iterator[Callable[..., Job]]:
    store = JobStore(own)

    def insert(**fields: Any) -> Job:
        job = make_job(**fields)
        store.insert(job)
        return job

    yield insert
    own["jobs"].delete_many({})


def run(site: str, status: JobStatus, *, seconds: float | None = 10, ago: timedelta = timedelta()) -> dict[str, Any]:
    """The fields of a run that ended so long ago."""
    end = utc_now() - ago
    spec = CrawlSpec(spider="jobs", start_urls=("http://board.example/",), site=site)
    started = {} if seconds is None else {"started_at": end - timedelta(seconds=seconds)}
    return {"spec": spec, "status": status, "finished_at": end, "settled": True, "live_key": None, **started}


def status(door: httpx2.Client, **query: Any) -> dict[str, Any]:
    told: dict[str, Any] = door.get("/jobs/queue/status", params=query).raise_for_status().json()
    return told


def test_an_empty_queue_has_a_status_too(door: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    own["heartbeats"].delete_many({})
    told = status(door)
    assert set(told["depth"]) == set(JobStatus)
    assert set(told["depth"].values()) == {0}
    assert told["waiting"] == {"total": 0, "by_reason": {}, "unexplained": 0, "oldest_seconds": None}
    assert told["workers"] == {"alive": 0, "names": []}
    assert (told["running"], told["dead_letters"], told["sites"]) == (0, 0, [])


def test_waiting_jobs_are_counted_by_what_they_wait_for(door: httpx2.Client, add: Callable[..., Job]) -> None:
    for reason in (WaitingReason.CAPACITY, WaitingReason.CAPACITY, WaitingReason.SITE_BUSY, None):
        add(waiting_reason=reason)
    add(status=JobStatus.RUNNING)
    add(status=JobStatus.ERROR, dead=True, settled=True, live_key=None)
    told = status(door)
    assert told["waiting"]["by_reason"] == {"capacity": 2, "site_busy": 1}
    assert (told["waiting"]["total"], told["waiting"]["unexplained"]) == (4, 1)
    assert (told["depth"]["pending"], told["running"], told["depth"]["error"]) == (4, 1, 1)
    assert told["dead_letters"] == 1


def test_a_job_waits_since_it_was_due_and_not_since_it_was_asked_for(
    door: httpx2.Client, add: Callable[..., Job]
) -> None:
    now = utc_now()
    add(created_at=now - timedelta(days=3), not_before=now - timedelta(minutes=2))
    add(created_at=now - timedelta(days=3), not_before=now + timedelta(minutes=2))
    assert 120 <= status(door)["waiting"]["oldest_seconds"] < 180


def test_only_workers_that_gave_a_sign_of_life_lately_are_alive(
    door: httpx2.Client, own: Database[dict[str, Any]]
) -> None:
    HeartbeatStore(own).beat(f"{WORKER}:here:1")
    HeartbeatStore(own, lambda: utc_now() - timedelta(minutes=1)).beat(f"{WORKER}:here:2")
    assert status(door)["workers"] == {"alive": 1, "names": ["worker:here:1"]}


def test_each_site_tells_how_its_runs_have_gone(door: httpx2.Client, add: Callable[..., Job]) -> None:
    for outcome, seconds in (
        (JobStatus.FINISHED, 10), (JobStatus.FINISHED, 20), (JobStatus.PARTIAL, 60),
        (JobStatus.ERROR, None), (JobStatus.CANCELLED, None),
    ):  # fmt: skip
        add(**run("alpha", outcome, seconds=seconds))
    add(**run("beta", JobStatus.CANCELLED, seconds=None))
    add(status=JobStatus.FINISHED, settled=True, live_key=None, finished_at=utc_now())  # no run of a site
    alpha, beta = status(door)["sites"]
    counts = {name: alpha[name] for name in ("runs", "succeeded", "partial", "failed", "cancelled")}
    assert counts == {"runs": 5, "succeeded": 2, "partial": 1, "failed": 1, "cancelled": 1}
    assert (alpha["site_name"], alpha["success_rate"]) == ("alpha", 0.5)
    assert alpha["duration_seconds"] == {"average": 30, "median": 20, "longest": 60}
    assert (beta["success_rate"], beta["duration_seconds"]) == (None, None)


def test_only_runs_that_ended_within_the_window_count(door: httpx2.Client, add: Callable[..., Job]) -> None:
    add(**run("alpha", JobStatus.ERROR, ago=timedelta(hours=2)))
    add(**run("alpha", JobStatus.FINISHED))
    (lately,) = status(door, hours=1)["sites"]
    (longer,) = status(door, hours=3)["sites"]
    assert (lately["success_rate"], longer["success_rate"]) == (1, 0.5)
    assert door.get("/jobs/queue/status", params={"hours": 0}).status_code == 422


def test_the_queue_is_never_taken_for_a_job(door: httpx2.Client) -> None:
    assert "depth" in door.get("/jobs/queue/status").json()
    assert door.get("/jobs/queue").json()["error"]["code"] == "job_not_found"
