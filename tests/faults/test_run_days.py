"""Two workers announce, adopt and remove ended jobs at the same time, and are killed again and again at their writes.
The daily sums, and the groups of errors, are in the end what a count over all jobs gives, also over those that are
gone.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fault_table import record
from forms import full_or_short
from jobs import make_job
from kill_loop import KillLoop
from stores import embedded_mongo

from gateway.clock import utc_now
from gateway.contract.error_fingerprint import group as new_group
from gateway.contract.outbox import AttemptId
from gateway.contract.records import Progress
from gateway.error_groups.attempt_errors import AttemptErrorStore, FoundErrors, RunErrors
from gateway.error_groups.error_group import ErrorGroup
from gateway.error_groups.store import of_outcome
from gateway.jobs.added_once import EndedRun
from gateway.jobs.job import FINAL_STATUSES, Job, JobSignal, Turn
from gateway.jobs.run_days import RunDay, RunTotals, days_of
from gateway.stores.documents import reader
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

KILLS = full_or_short(50, 5)
#: Jobs that there are at least, and how many are made at a time.
JOBS, MADE = full_or_short(3000, 200), 50
POINTS = (
    *("sums.note", "sums.apply", "sums.clear", "run_days.advance", "error_groups.note_new"),
    *("jobs.announced", "jobs.delete"),
)
ERRORS = [
    FoundErrors(
        **new_group("exception", "ValueError", f"shop/spider.py:parse_{number}", "no price"), count=number, attempt=1
    )
    for number in range(1, 13)
]
SEED = 20261128

Place = tuple[str, str, str, datetime]


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    with embedded_mongo(tmp_path / "mongo") as uri:
        yield uri


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


def is_done(database: Any, every: Made) -> bool:
    if database["jobs"].find_one({"signals_due": {"$exists": True}}):
        return False
    for job in map(reader(EndedRun), database["jobs"].find()):
        errors = every.errors[job.id] or of_outcome(job)
        marks = {one.mark for one in (*days_of(job), *(ErrorGroup.new(job, one) for one in errors))}
        if not marks <= set(job.summed):
            return False
    return True


class Made:
    """Jobs that have ended, made bit by bit, with the errors of each."""

    def __init__(self, database: Any, chance: random.Random) -> None:
        self._database = database
        self._chance = chance
        self._errors = AttemptErrorStore(database)
        self.jobs: list[Job] = []
        self.errors: dict[str, list[FoundErrors]] = {}

    def make(self, number: int, *, of_older_release: bool) -> None:
        jobs = [made(self._chance, of_older_release=of_older_release) for _ in range(number)]
        for job in jobs:
            self.errors[job.id] = self._chance.sample(ERRORS, self._chance.choice([0, 0, 1, 2, 5]))
            if self.errors[job.id]:
                self._errors.save(AttemptId(job.id, 1), RunErrors(self.errors[job.id]))
        self._database["jobs"].insert_many([job.to_document() for job in jobs])
        self.jobs += jobs


def test_sums_and_groups_are_a_count_over_all_jobs_whoever_is_killed(uri: str, tmp_path: Path) -> None:
    chance, database = random.Random(SEED), connect(uri)
    ensure_indexes(database)
    every = Made(database, chance)
    every.make(JOBS // 2, of_older_release=True)
    (plan := tmp_path / "plan").mkdir()
    loop = KillLoop("run_days_story", uri, plan, points=POINTS, kills=KILLS, chance=chance)

    def is_over() -> bool:
        goes_on = loop.killed < KILLS or len(every.jobs) < JOBS
        if goes_on and database["jobs"].count_documents({}) < JOBS:
            every.make(MADE, of_older_release=False)
        return not goes_on and is_done(database, every)

    loop.run(is_over, full_or_short(1200, 120))
    loop.end()
    check(database, every.jobs, loop.killed)
    check_groups(database, every, loop.killed)
    database.client.close()


def check(database: Any, jobs: list[Job], killed: int) -> None:
    expected, found = counted(jobs), stored(database)
    lost = sum(max(0, one.ended - found.get(place, RunTotals()).ended) for place, one in expected.items())
    doubled = sum(max(0, one.ended - expected.get(place, RunTotals()).ended) for place, one in found.items())
    injected = f"{killed} kills of two workers at writes of sums, {len(jobs)} jobs"
    record("Daily sums", injected, lost=lost, doubled=doubled, recovered=None)
    assert found == expected


def check_groups(database: Any, every: Made, killed: int) -> None:
    expected: dict[str, ErrorGroup] = {}
    for job in every.jobs:
        for one in every.errors[job.id] or of_outcome(job):
            group = ErrorGroup.new(job, one)
            expected[group.id] = expected.get(group.id, group).with_run(job, one, 0)
    found = {one.id: one for one in map(reader(ErrorGroup), database["error_groups"].find())}
    lost = sum(max(0, one.runs - (found[key].runs if key in found else 0)) for key, one in expected.items())
    doubled = sum(max(0, one.runs - (expected[key].runs if key in expected else 0)) for key, one in found.items())
    injected = f"{killed} kills of two workers, {len(every.jobs)} jobs with {len(expected)} groups of errors"
    record("Groups of errors", injected, lost=lost, doubled=doubled, recovered=None)
    ways_there = {"rev", "applied", "last_place"}
    assert {key: one.model_dump(exclude=ways_there) for key, one in found.items()} == {
        key: one.model_dump(exclude=ways_there) for key, one in expected.items()
    }
