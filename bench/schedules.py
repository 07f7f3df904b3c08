"""The beat: what 100,000 schedules cost while none is due, and how soon 1,000 that are due at once can be
dispatched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pymongo
from pymongo.database import Database

from bench.cpu import end_tree
from bench.effort import Effort
from bench.our_platform import ROOT, embedded_mongo, valkey_server, wait_until
from bench.table import Row
from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import CrawlOrder, JobStatus, new_job_id
from gateway.schedules.schedule import Schedule, Timing
from gateway.stores.indexes import ensure_indexes

DUE = 1000
#: Target values: percent of one core, and seconds.
WANTED_IDLE, WANTED_DUE = 5.0, 5.0


def run(effort: Effort) -> list[Row]:
    count, watched = effort.of((1_000, 1.0), (100_000, 15.0))
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded_mongo(Path(folder) / "mongo") as mongo,
        valkey_server(Path(folder) / "valkey") as valkey,
        pymongo.MongoClient[dict[str, Any]](mongo) as client,
    ):
        database = client.get_default_database()
        ensure_indexes(database)
        with beat(mongo, valkey, database) as process:
            bare = cost(process, "embedded.mongo", watched)
            fill(database, count, utc_now() + timedelta(days=1))
            idle = cost(process, "embedded.mongo", watched)
            fired = fire(database)
    asked, bare_beat = "what was asked for", "no schedules"
    what = f"CPU of beat, {count:,} schedules that are not due"
    return [
        Row(what, "% core", idle[0], WANTED_IDLE, asked, idle[0] / WANTED_IDLE, "<= 1"),
        Row(what, "% core", idle[0], bare[0], bare_beat, idle[0] / bare[0]),
        Row("CPU of embedded MongoDB meanwhile", "% core", idle[1], bare[1], bare_beat, idle[1] / bare[1]),
        Row(
            f"{DUE:,} occurrences due at once: until the last one may be dispatched", "s", fired, WANTED_DUE, asked,
            fired / WANTED_DUE, "<= 1",
        ),
    ]  # fmt: skip


@contextmanager
def beat(mongo: str, valkey: str, database: Database[dict[str, Any]]) -> Iterator[psutil.Process]:
    """A beat that has begun to tick."""
    command = [sys.executable, "-m", "celery", "--quiet", "-A", "celery_app", "beat", "--pidfile", ""]
    environment = {**os.environ, "MONGO_URI": mongo, "REDIS_URL": valkey}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        wait_until(database["heartbeats"].find_one, timeout=30, what="beat's first tick")
        yield psutil.Process(process.pid)
    finally:
        end_tree(process)


def cost(process: psutil.Process, store: str, watched: float) -> tuple[float, float]:
    """Percent of one core that the beat and the store use, over `watched` seconds."""
    stores = [child for child in psutil.Process().children() if store in child.cmdline()]
    before = [seconds(process), sum(map(seconds, stores))]
    time.sleep(watched)
    after = [seconds(process), sum(map(seconds, stores))]
    # CPU times are multiples of 10 ms
    spent = [max(later - earlier, 0.01) / watched * 100 for earlier, later in zip(before, after, strict=True)]
    return spent[0], spent[1]


def seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def fill(database: Database[dict[str, Any]], count: int, due: datetime) -> None:
    for start in range(0, count, 1000):
        schedules = [schedule(due) for _ in range(min(1000, count - start))]
        database["schedules"].insert_many([one.to_document() for one in schedules], ordered=False)


def schedule(due: datetime) -> Schedule:
    schedule_id = new_job_id()
    return Schedule(
        id=schedule_id,
        user_id="bench",
        crawl=CrawlOrder(spec=CrawlSpec(spider="seo", start_urls=("http://site.example/",))),
        timing=Timing(interval="every 1d", starts_at=due),
        next_at=due,
        next_run=due,
        fingerprint=schedule_id,
        live_key=schedule_id,
        created_at=due,
        updated_at=due,
    )


def fire(database: Database[dict[str, Any]]) -> float:
    """Seconds from the moment when the schedules are due until all their jobs wait for a node."""
    due = utc_now() + timedelta(seconds=3)
    fill(database, DUE, due)
    wanted = {"status": JobStatus.PENDING, "held": None}
    wait_until(lambda: database["jobs"].count_documents(wanted) >= DUE, timeout=60, what=f"{DUE} jobs")
    return (utc_now() - due).total_seconds()
