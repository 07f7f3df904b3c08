"""The daily sums: each job once, whoever adds it, whoever dies in between, and whatever cannot be read."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from ended_runs import ended_runs
from jobs import make_job
from pymongo.database import Database

from gateway.contract.records import Progress
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.run_days import SUMS_KEPT, RunDays, RunSubject, RunTotals, subjects_of
from gateway.jobs.store import JobStore

Mongo = Database[dict[str, Any]]
NOON = datetime(2027, 6, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TODAY = NOON.replace(hour=0)


def ended(database: Mongo, *, ago: timedelta = timedelta(), seconds: int | None = 60, **fields: Any) -> Job:
    at = NOON - ago
    started = None if seconds is None else at - timedelta(seconds=seconds)
    given = {
        "status": JobStatus.FINISHED,
        "finished_at": at,
        "started_at": started,
        "settled": True,
        "live_key": None,
    }
    job = make_job(**{**given, "progress": Progress(completed_pages=9, items_count=3, errors_count=1), **fields})
    JobStore(database).insert(job)
    return job


def of_spider(database: Mongo, days: int = 30, **options: Any) -> RunTotals:
    found = RunDays(database, lambda: NOON).histories(RunSubject.SPIDER, ["default/seo"], days, **options)
    return found["default/seo"].total


@pytest.fixture
def days(served: Mongo) -> RunDays:
    return RunDays(served, lambda: NOON)


def test_a_job_is_in_the_sums_of_all_that_it_belongs_to_and_in_each_once(served: Mongo, days: RunDays) -> None:
    job = ended(served, schedule_id="5c" * 16)
    for _ in range(2):
        assert not days.add([job])
        assert not days.add([JobStore(served).get(job.id)])
    found = list(served["run_days"].find())
    assert {RunSubject(one["kind"]): one["subject"] for one in found} == subjects_of(job)
    assert sorted((one["kind"], one["user_id"]) for one in found) == [
        (kind, user) for kind in ("project", "schedule", "spider") for user in ("", "ada")
    ]
    for one in served["run_days"].find():
        assert (one["runs"], one["took"], one["rev"], one["day"]) == (
            {"finished": 1},
            {"24": 1},
            1,
            TODAY,
        )
        assert (one["pages"], one["items"], one["errors"]) == (9, 3, 1)


def test_days_users_and_subjects_are_apart(served: Mongo, days: RunDays) -> None:
    jobs = [ended(served, ago=ago * DAY, user_id=user) for ago in (0, 29, 30) for user in ("ada", "bob/x", "bob")]
    jobs.append(ended(served, spec=jobs[0].spec.model_copy(update={"spider": "other"})))
    assert not days.add(jobs)
    assert (of_spider(served).ended, of_spider(served, 31).ended) == (6, 9)
    assert [of_spider(served, user_id=user).ended for user in ("ada", "bob", "eve")] == [2, 2, 0]
    shown = days.histories(RunSubject.SPIDER, ["default/seo"], 30)["default/seo"].days
    assert [shown[0].day, shown[-1].day] == [TODAY - 29 * DAY, TODAY]
    assert [day.totals.ended for day in shown] == [3, *[0] * 28, 3]


def test_what_has_not_ended_or_ended_too_long_ago_is_in_no_sum(served: Mongo, days: RunDays) -> None:
    assert not days.add([make_job(), ended(served, ago=SUMS_KEPT + DAY)])
    assert served["run_days"].count_documents({}) == 0


STEPS = ("_note", "_apply", "_clear")


class DiedError(Exception):
    pass


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_who_dies_in_between_leaves_nothing_out_and_nothing_twice(served: Mongo, step: str, *, after: bool) -> None:
    jobs = [ended(served, schedule_id="5c" * 16) for _ in range(12)]
    for number in (4, 8, 12):
        dying = RunDays(served, lambda: NOON)
        seen: list[str] = []
        die_at(dying, step, seen, after=after)
        with pytest.raises(DiedError):
            dying.add(jobs[:number])
    assert not RunDays(served, lambda: NOON).add(jobs)
    assert {one["runs"]["finished"] for one in served["run_days"].find()} == {12}
    # they would make large documents
    assert all(len(one.get("applied", ())) <= 4 for one in served["run_days"].find())


def die_at(days: RunDays, step: str, seen: list[str], *, after: bool) -> None:
    """Before or after a write that has something to write."""
    write: Callable[..., Any] = getattr(days, step)

    def dies(*args: Any) -> Any:
        if not args[0]:
            return write(*args)
        if after:
            write(*args)
        raise DiedError

    setattr(days, step, dies)


def test_a_worker_that_wakes_after_another_has_done_all_adds_nothing(served: Mongo) -> None:
    """Wherever it slept, and also if the jobs are gone by then."""
    for step, deletes in product(("_stored", "_summed", "_note", "_apply"), (False, True)):
        jobs = [ended(served, ago=DAY) for _ in range(3)]
        before = of_spider(served).ended
        late = RunDays(served, lambda: NOON)
        sleep_at(late, step, partial(done_by_another, jobs, served, deletes=deletes))
        assert not late.add(jobs)
        assert of_spider(served).ended == before + 3, (step, deletes)


def sleep_at(days: RunDays, step: str, meanwhile: Callable[[], None]) -> None:
    """Once."""
    call: Callable[..., Any] = getattr(days, step)

    def sleeps(*args: Any) -> Any:
        setattr(days, step, call)
        meanwhile()
        return call(*args)

    setattr(days, step, sleeps)


def done_by_another(jobs: list[Job], database: Mongo, *, deletes: bool) -> None:
    assert not RunDays(database, lambda: NOON).add(jobs)
    if deletes:
        JobStore(database).delete(*(job.id for job in jobs))


def test_a_sum_that_cannot_be_read_or_written_keeps_its_own_jobs_alone(served: Mongo, days: RunDays) -> None:
    first = ended(served)
    assert not days.add([first])
    unread = {"kind": "spider", "user_id": "ada"}, {"$set": {"runs": "x"}}
    # it is read, and MongoDB refuses to add to it
    unwritten = {"kind": "project", "user_id": ""}, {"$set": {"pages": 2**63 - 2}}
    for query, damage in (unread, unwritten):
        (stored,) = served["run_days"].find({**query, "day": TODAY})
        served["run_days"].update_one({"_id": stored["_id"]}, damage)
        bad, good = ended(served), ended(served, ago=DAY)
        assert days.add([bad, good]) == {bad.id}
        served["run_days"].replace_one({"_id": stored["_id"]}, stored)
        assert not days.add([JobStore(served).get(bad.id)])
    assert {one["runs"]["finished"] for one in served["run_days"].find({"day": TODAY})} == {3}


def test_jobs_of_a_release_before_are_added_little_by_little_and_no_job_twice(served: Mongo, days: RunDays) -> None:
    known = ended(served, ago=2 * DAY)
    assert not days.add([known])
    same = [ended(served, ago=DAY) for _ in range(7)]
    broken = ended(served, ago=DAY / 2)
    served["jobs"].update_one({"_id": broken.id}, {"$set": {"user_id": 7}})
    later = [ended(served, ago=timedelta(hours=hour)) for hour in (4, 3, 2)]
    # of this release: it is added as it is announced
    ended(served)
    looks = 0
    while ended_runs(served, lambda: NOON).adopt(3):
        looks += 1
    assert looks == 2
    assert of_spider(served).ended == 1 + len(same) + len(later)
    assert all(JobStore(served).get(job.id).summed for job in [*same, *later])


def test_old_sums_are_forgotten(served: Mongo, days: RunDays) -> None:
    days.add([ended(served), ended(served, ago=100 * DAY)])
    assert [days.forget(NOON - 50 * DAY, 3) for _ in range(3)] == [3, 1, 0]
    assert {one["day"] for one in served["run_days"].find()} == {TODAY}


def test_the_figures_are_those_of_the_jobs(served: Mongo, days: RunDays) -> None:
    seconds = [1, 5, 30, 31, 33, 60, 61, 3600, 80_000]
    jobs = [ended(served, seconds=one) for one in seconds]
    ends = ("error", "cancelled", "partial")
    jobs += [ended(served, seconds=None, status=status, progress=None) for status in ends]
    jobs.append(ended(served, progress=Progress(completed_pages=2**63 - 1, items_count=-5)))
    days.add(jobs)
    total = of_spider(served)
    assert (total.ended, total.good, total.failed) == (13, 11, 1)
    # a partial run is no success, and a cancelled one does not count
    assert total.success == 10 / 12
    assert total.median_seconds == pytest.approx(statistics.median_low([*seconds, 60]), rel=0.1)
    assert total.errors == 9
    assert total.items == 27
    assert RunTotals().median_seconds is RunTotals().success is RunTotals().error_share is None
