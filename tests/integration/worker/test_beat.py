"""Beat as Celery drives it: one tick after another, each of which says when it wants the next."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
import redis
from celery import Celery
from jobs import make_job
from site_records import make_site, make_target
from stack import wait_until
from stores import embedded_mongo, valkey_server
from structlog.testing import capture_logs

from gateway.clock import utc_now
from gateway.dispatch.sweeping import Sweeper
from gateway.jobs.job import JobStatus
from gateway.jobs.store import JobStore
from gateway.nodes.health import BEAT, HeartbeatStore
from gateway.schedules.store import ScheduleStore
from gateway.settings import Settings
from gateway.sites.edits import SiteUpkeep
from gateway.sites.store import SiteStore, TargetStore
from gateway.worker.app import create_celery
from gateway.worker.beat import MongoScheduler

TICK = 60.0
#: A task that only somebody's own configuration sends.
OWN = "own_task"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("stores")
    with embedded_mongo(folder / "mongo") as mongo, valkey_server(folder / "valkey") as valkey:
        yield {"mongo_uri": mongo, "redis_url": valkey}


@pytest.fixture(scope="module")
def app(stores: dict[str, str]) -> Iterator[Celery]:
    # one for all: Celery's tasks are the whole process's
    app = create_celery(Settings(tick_seconds=TICK, **stores))
    yield app
    app.parts.close()
    app.close()


@pytest.fixture
def celery(app: Celery) -> Celery:
    for name in app.parts.database.list_collection_names():
        app.parts.database[name].delete_many({})
    app.conf.beat_schedule = {}
    return app


def messages(app: Celery, task: str) -> int:
    """How often the task was sent since this was asked last."""
    queue = app.conf.task_default_queue
    with redis.Redis.from_url(app.conf.broker_url) as broker:
        sent = [json.loads(message)["headers"]["task"] for message in broker.lrange(queue, 0, -1)]
        broker.delete(queue)
    return sent.count(task)


def test_a_tick_wants_the_next_one_when_something_is_due(celery: Celery) -> None:
    beat = MongoScheduler(celery)
    assert beat.tick() == TICK
    soon = celery.parts.clock() + timedelta(seconds=3)
    job = make_job(status=JobStatus.SCHEDULED, not_before=soon)
    JobStore(celery.parts.database).insert(job)
    pause = beat.tick()
    assert 0 < pause <= 3
    time.sleep(pause)
    beat.tick()
    assert celery.parts[JobStore].get(job.id).status is JobStatus.PENDING


def test_a_tick_gives_a_sign_of_life(celery: Celery) -> None:
    MongoScheduler(celery).tick()
    assert len(celery.parts[HeartbeatStore].all(BEAT)) == 1


def test_a_tick_sees_to_targets_whose_schedules_nobody_lived_to_make(celery: Celery) -> None:
    long_ago = utc_now() - timedelta(hours=1)
    SiteStore(celery.parts.database).insert(make_site(updated_at=long_ago))
    target = make_target(updated_at=long_ago)
    TargetStore(celery.parts.database).insert(target)
    # as in a beat that was just started
    celery.parts[SiteUpkeep] = celery.parts.build(SiteUpkeep)
    MongoScheduler(celery).tick()
    schedules = ScheduleStore(celery.parts.database)
    wait_until(lambda: schedules.read([target.schedule_id]).schedules, what="the schedule")
    made = schedules.get(target.schedule_id)
    assert (made.target, made.timing.interval) == (target.id, "every 60m")


def test_a_step_that_fails_is_logged_and_keeps_no_other(celery: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("something that nobody thought of")

    beat = MongoScheduler(celery)
    beat.tick()
    job = make_job(status=JobStatus.SCHEDULED, not_before=utc_now() - timedelta(seconds=1))
    JobStore(celery.parts.database).insert(job)
    monkeypatch.setattr(celery.parts[Sweeper], "sweep", fail)
    again = MongoScheduler(celery)
    with capture_logs() as logs:
        assert again.tick() == TICK
    assert [entry["event"] for entry in logs] == ["tick_failed", "crawl_due"]
    assert celery.parts[JobStore].get(job.id).status is JobStatus.PENDING


def test_a_look_that_does_not_come_back_keeps_no_occurrence_from_its_time(
    celery: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = Event()
    monkeypatch.setattr(celery.parts[SiteUpkeep], "look", lambda: over.wait(60))
    monkeypatch.setattr(celery.parts[JobStore], "to_attend", lambda *_: over.wait(60) and ())
    job = make_job(status=JobStatus.SCHEDULED, not_before=utc_now() - timedelta(seconds=1))
    JobStore(celery.parts.database).insert(job)
    # as in a beat that was just started
    celery.parts[Sweeper] = celery.parts.build(Sweeper)
    began = time.monotonic()
    MongoScheduler(celery).tick()
    assert time.monotonic() - began < 30
    over.set()
    assert celery.parts[JobStore].get(job.id).status is JobStatus.PENDING


def static(app: Celery, every: float) -> list[MongoScheduler]:
    app.conf.beat_schedule = {"own": {"task": OWN, "schedule": every}}
    return [MongoScheduler(app) for _ in range(3)]


def turn_back(beats: list[MongoScheduler], by: timedelta) -> None:
    """As if that much time had passed since the entry was last sent."""
    for beat in beats:
        entry = beat.schedule["own"]
        entry.last_run_at -= by
        beat._heap = None


def test_a_static_entry_is_sent_by_one_of_all_beats(celery: Celery) -> None:
    beats = static(celery, 3600)
    for beat in beats:
        beat.tick()
    assert messages(celery, OWN) == 0
    turn_back(beats, timedelta(hours=2))
    for beat in [*beats, *beats]:
        beat.tick()
    assert messages(celery, OWN) == 1


def test_a_static_entry_goes_again_after_its_time_whoever_sent_it_last(celery: Celery) -> None:
    sent_at: Any = celery.parts.database["static_entries"]
    beats = static(celery, 3600)
    for round_ in range(3):
        sent_at.update_many({}, {"$set": {"sent_at": utc_now() - timedelta(hours=2)}})
        turn_back(beats, timedelta(hours=2))
        for beat in beats:
            beat.tick()
            beat.tick()
        assert messages(celery, OWN) == 1, round_


def test_a_beat_that_is_started_again_remembers_when_an_entry_was_sent(celery: Celery) -> None:
    (beat, *_) = static(celery, 3600)
    turn_back([beat], timedelta(hours=2))
    beat.tick()
    assert messages(celery, OWN) == 1
    moment = utc_now() - timedelta(minutes=59, seconds=30)
    celery.parts.database["static_entries"].update_one({"_id": "own"}, {"$set": {"sent_at": moment}})
    (again, *_) = static(celery, 3600)
    assert again.tick() <= 30.1
    assert messages(celery, OWN) == 0
