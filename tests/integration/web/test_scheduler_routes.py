"""One tick of the scheduler on request, and the state of the schedules, on a database without a beat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from jobs import make_job
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import CrawlOrder, JobStatus, new_job_id, occurrence_id
from gateway.jobs.store import JobStore
from gateway.nodes.health import BEAT, HeartbeatStore
from gateway.schedules.schedule import CatchUp, LedgerEntry, LedgerKind, Schedule, ScheduleState, Timing
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.settings import Settings
from gateway.stores.mongo import connect

Serve = Callable[[Settings], AbstractContextManager[httpx2.Client]]
Add = Callable[..., Schedule]


@pytest.fixture(scope="module")
def own_uri(settings: Settings) -> str:
    return settings.mongo_uri.replace("/discoverybot", "/scheduler")


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings, own_uri: str) -> Iterator[httpx2.Client]:
    with serve(settings.model_copy(update={"mongo_uri": own_uri})) as client:
        yield client


@pytest.fixture
def own(own_uri: str, door: object) -> Iterator[Database[dict[str, Any]]]:
    database = connect(own_uri)
    yield database
    for name in ("jobs", "schedules", "schedule_ledger", "heartbeats"):
        database[name].delete_many({})
    database.client.close()


@pytest.fixture
def add(own: Database[dict[str, Any]]) -> Add:
    store = ScheduleStore(own)

    def insert(due: datetime | None, **fields: Any) -> Schedule:
        now, name = utc_now(), new_job_id()
        spec = CrawlSpec(spider="seo", start_urls=("http://site.example/",))
        timing = Timing(interval="every 1h", starts_at=(due or now) - timedelta(days=1), jitter=0)
        moment = {} if due is None else {"next_at": due, "next_run": due}
        made = {"id": name, "user_id": "ada", "crawl": CrawlOrder(spec=spec), "timing": timing, "fingerprint": name}
        schedule = Schedule.model_validate({**made, "created_at": now, "updated_at": now, **moment, **fields})
        store.insert(schedule)
        return schedule

    return insert


def status(door: httpx2.Client, **query: Any) -> dict[str, Any]:
    told: dict[str, Any] = door.get("/scheduler/status", params=query).raise_for_status().json()
    return told


def test_a_tick_fires_what_is_due_and_tells_what_it_did(
    door: httpx2.Client, own: Database[dict[str, Any]], add: Add
) -> None:
    now = utc_now()
    due, ahead = add(now - timedelta(seconds=1)), add(now + timedelta(hours=1))
    missed_at = now - timedelta(hours=2, minutes=30)
    timing = Timing(interval="every 1h", starts_at=missed_at, jitter=0)
    long_missed = add(missed_at, timing=timing, catch_up=CatchUp.NONE)
    once = make_job(status=JobStatus.SCHEDULED, not_before=now - timedelta(seconds=1))
    JobStore(own).insert(once)
    told = door.post("/scheduler/run").raise_for_status().json()
    job_id = occurrence_id(due.id, now - timedelta(seconds=1))
    assert set(told) == {"fired", "skipped", "missed", "promoted", "due_left", "next_due"}
    assert (told["fired"], told["promoted"]) == ([job_id], [once.id])
    assert told["missed"] == [occurrence_id(long_missed.id, missed_at)]
    assert (told["skipped"], told["due_left"]) == ([], 0)
    assert door.get(f"/jobs/{job_id}").json()["status"] == "pending"
    assert ScheduleStore(own).get(ahead.id).runs == 0
    again = door.post("/scheduler/run").json()
    assert (again["fired"], again["missed"], again["promoted"]) == ([], [], [])


def test_an_occurrence_whose_run_before_is_not_over_is_skipped(door: httpx2.Client, add: Add) -> None:
    due = utc_now() - timedelta(seconds=1)
    schedule = add(due, timing=Timing(interval="every 1s", starts_at=due - timedelta(seconds=60), jitter=0))
    assert occurrence_id(schedule.id, due) in door.post("/scheduler/run").json()["fired"]
    deadline = utc_now() + timedelta(seconds=10)
    skipped: list[str] = []
    while not skipped and utc_now() < deadline:
        skipped = door.post("/scheduler/run").json()["skipped"]
    assert skipped
    assert status(door)["last_fires"][0]["kind"] == "skipped"


def test_the_status_tells_who_ticks_and_how_late_it_is(
    door: httpx2.Client, own: Database[dict[str, Any]], add: Add
) -> None:
    HeartbeatStore(own).beat(f"{BEAT}:here:1")
    HeartbeatStore(own, lambda: utc_now() - timedelta(minutes=1)).beat(f"{BEAT}:here:2")
    add(utc_now() - timedelta(seconds=90))
    add(utc_now() + timedelta(hours=1))
    add(None, state=ScheduleState.PAUSED)
    for schedule_id in (None, "5" * 32):
        ahead = {"status": JobStatus.SCHEDULED, "not_before": utc_now() + timedelta(hours=1)}
        JobStore(own).insert(make_job(**ahead, schedule_id=schedule_id))
    told = status(door)
    assert {beat["name"]: beat["alive"] for beat in told["beats"]} == {"beat:here:1": True, "beat:here:2": False}
    assert (told["beats_alive"], told["due"], told["one_off_jobs"]) == (1, 1, 1)
    assert 90 <= told["lag_seconds"] < 120
    assert told["schedules"] == {"active": 2, "paused": 1, "ended": 0}


def test_without_schedules_nothing_is_due_nor_late(door: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    assert own["schedules"].count_documents({}) == 0
    told = status(door)
    assert (told["due"], told["lag_seconds"], told["next_run"], told["last_fires"]) == (0, 0, None, [])
    assert door.post("/scheduler/run").json()["fired"] == []


def test_the_last_fires_are_those_of_the_ledger_newest_first(
    door: httpx2.Client, own: Database[dict[str, Any]]
) -> None:
    now = utc_now()
    for number, kind in enumerate(LedgerKind):
        moment = now + timedelta(seconds=number)
        entry = LedgerEntry(
            job_id=new_job_id(), schedule_id="5" * 32, kind=kind, at=moment, due=moment, recorded_at=moment,
            late_by_seconds=0.5, rev=1, reason="why" if kind is LedgerKind.SKIPPED else None,
        )  # fmt: skip
        LedgerStore(own).record([entry])
    assert [fire["kind"] for fire in status(door)["last_fires"]] == ["missed", "skipped", "fired"]
    (latest,) = status(door, last=1)["last_fires"]
    assert (latest["kind"], latest["late_by_seconds"], latest["schedule_id"]) == ("missed", 0.5, "5" * 32)
    assert status(door, last=0)["last_fires"] == []
    assert door.get("/scheduler/status", params={"last": 201}).status_code == 422
