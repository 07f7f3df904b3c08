"""Two workers announce, adopt and remove ended jobs at the same time, and are killed again and again at their writes.
The daily sums are in the end what a count over all jobs gives, also over those that are gone.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import warm
from fault_table import record
from forms import full_or_short
from jobs import make_job
from stores import ROOT, embedded_mongo
from warm import WarmProcess

from gateway.clock import utc_now
from gateway.contract.records import Progress
from gateway.jobs.job import FINAL_STATUSES, Job, JobSignal, Turn
from gateway.jobs.run_days import EndedRun, RunDay, RunTotals, days_of
from gateway.stores.documents import reader
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

KILLS = full_or_short(50, 5)
#: Jobs that there are at least, and how many are made at a time.
JOBS, MADE = full_or_short(3000, 200), 50
#: Seconds after which a point that no worker has come to gives way to another.
PATIENCE = 0.5
POINTS = ("run_days.note", "run_days.apply", "run_days.clear", "run_days.advance", "jobs.announced", "jobs.delete")
SEED = 20261128

Place = tuple[str, str, str, datetime]


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    with embedded_mongo(tmp_path / "mongo") as uri:
        yield uri


def worker(uri: str, plan: Path) -> WarmProcess:
    paths = (ROOT / "tests/integration/services", ROOT / "tests/support", ROOT)
    own = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "DISCOVERYBOT_CRASH_PLAN": str(plan)}
    return warm.start("run_days_story", uri, env={**os.environ, **own}, cwd=ROOT, stdout=Path(os.devnull))


def made(chance: random.Random, *, of_older_release: bool) -> Job:
    now = utc_now()
    # the last days, but for the last minutes: workers look there for what an older release has ended
    at = now - timedelta(minutes=chance.randint(11, 4 * 24 * 60))
    told = {} if of_older_release else {"signals": [JobSignal(turn=Turn.ENDED, at=now)], "signals_due": now}
    spec = make_job().spec.model_copy(update={"spider": chance.choice("abc"), "site": chance.choice(["board", None])})
    counts = {name: chance.randint(0, 99) for name in ("completed_pages", "items_count", "errors_count")}
    return make_job(
        user_id=chance.choice(["ann", "bob", "eve"]),
        spec=spec,
        status=chance.choice([*sorted(FINAL_STATUSES), "finished"]),
        schedule_id=chance.choice(["5c" * 16, None]),
        started_at=at - timedelta(seconds=chance.randint(1, 5000)),
        finished_at=at,
        progress=Progress(**counts),
        settled=True,
        live_key=None,
        **told,
    )


def counted(jobs: list[Job]) -> dict[Place, RunTotals]:
    by_place: dict[Place, list[Job]] = defaultdict(list)
    for job in jobs:
        for day in days_of(job):
            by_place[day.user_id, day.kind, day.subject, day.day].append(job)
    return {place: RunTotals.of(some) for place, some in by_place.items()}


def stored(database: Any) -> dict[Place, RunTotals]:
    by_place: dict[Place, list[RunTotals]] = defaultdict(list)
    for one in map(reader(RunDay), database["run_days"].find()):
        by_place[one.user_id, one.kind, one.subject, one.day].append(one)
    return {place: RunTotals.together(parts) for place, parts in by_place.items()}


def is_done(database: Any) -> bool:
    if database["jobs"].find_one({"signals_due": {"$exists": True}}):
        return False
    left = map(reader(EndedRun), database["jobs"].find())
    return all({day.mark for day in days_of(job)} <= set(job.summed) for job in left)


def test_sums_are_a_count_over_all_jobs_whoever_is_killed(uri: str, tmp_path: Path) -> None:
    chance, database = random.Random(SEED), connect(uri)
    ensure_indexes(database)
    jobs = [made(chance, of_older_release=True) for _ in range(JOBS // 2)]
    database["jobs"].insert_many([job.to_document() for job in jobs])
    (plan := tmp_path / "plan").mkdir()
    killed, workers = 0, [worker(uri, plan) for _ in range(2)]
    began = planned = time.monotonic()
    while killed < KILLS or len(jobs) < JOBS or not is_done(database):
        if (killed < KILLS or len(jobs) < JOBS) and database["jobs"].count_documents({}) < JOBS:
            new = [made(chance, of_older_release=False) for _ in range(MADE)]
            database["jobs"].insert_many([job.to_document() for job in new])
            jobs += new
        waiting = list(plan.iterdir())
        if killed < KILLS and (not waiting or time.monotonic() - planned > PATIENCE):
            for point in waiting:
                point.unlink(missing_ok=True)
            (plan / f"{chance.choice(POINTS)}.{chance.choice(['before', 'after'])}").touch()
            planned = time.monotonic()
        for number, one in enumerate(workers):
            if (code := one.poll()) is not None:
                killed += code < 0
                workers[number] = worker(uri, plan)
        assert time.monotonic() - began < full_or_short(1200, 120), "the jobs are not summed"
        time.sleep(0.05)
    for one in workers:
        one.send_signal(9)
    check(database, jobs, killed)
    database.client.close()


def check(database: Any, jobs: list[Job], killed: int) -> None:
    expected, found = counted(jobs), stored(database)
    lost = sum(max(0, one.ended - found.get(place, RunTotals()).ended) for place, one in expected.items())
    doubled = sum(max(0, one.ended - expected.get(place, RunTotals()).ended) for place, one in found.items())
    injected = f"{killed} kills of two workers at writes of sums, {len(jobs)} jobs"
    record("Daily sums", injected, lost=lost, doubled=doubled, recovered=None)
    assert found == expected
