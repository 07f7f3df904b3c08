from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from jobs import make_job
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.errors import InvalidRequestError
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.queries import FIRST_LOOK, JobFilter, JobQueries
from gateway.jobs.store import JobStore

Documents = Database[dict[str, Any]]
NOW = utc_now()


def keep(database: Documents, *, age: int = 0, **fields: Any) -> Job:
    job = make_job(created_at=NOW - timedelta(seconds=age), **fields)
    JobStore(database).insert(job)
    return job


def test_pages_are_newest_first_and_meet_without_gap(database: Documents) -> None:
    made = [keep(database, age=n // 2) for n in range(5)]
    expected = sorted(made, key=lambda job: (job.created_at, job.id), reverse=True)
    queries = JobQueries(database)
    first, cursor, _ = queries.page(JobFilter(), 3)
    second, end, _ = queries.page(JobFilter(), 3, cursor)
    assert [job.id for job in first + second] == [job.id for job in expected]
    assert end is None


@pytest.mark.parametrize("cursor", ["", "x", "1-2", f"{'9' * 15}-{'0' * 32}"])
def test_a_cursor_of_nobodys_making_is_refused(database: Documents, cursor: str) -> None:
    with pytest.raises(InvalidRequestError, match="after"):
        JobQueries(database).page(JobFilter(), 3, cursor)


def test_filters_are_all_to_be_met(database: Documents) -> None:
    ours = keep(database, user_id="ada", tags=["daily"], message="50% (a+b)")
    keep(database, user_id="ada", age=60, status=JobStatus.ERROR, live_key=None)
    keep(database, user_id="bob", tags=["daily"])
    queries = JobQueries(database)

    def found(**wanted: Any) -> list[str]:
        return [job.id for job in queries.page(JobFilter(user_id="ada", **wanted), 10)[0]]

    waiting = (JobStatus.PENDING, JobStatus.RUNNING)
    assert found(status=waiting) == found(tag="daily") == found(since=NOW) == found(q="% (A+") == [ours.id]
    assert found(status=(JobStatus.ERROR,)) == found(until=NOW)
    assert len(found(until=NOW)) == 1
    assert found(spider="other") == []


@pytest.mark.parametrize("few", [1, 500])
@pytest.mark.parametrize(
    "wanted",
    [
        {"tag": "daily"},
        {"spider": "rare"},
        {"tag": "daily", "user_id": "ada"},
        {"tag": "daily", "q": "SITE.example"},
        {"spider": "seo", "user_id": "bob", "since": NOW - timedelta(seconds=30)},
        {"status": (JobStatus.PENDING, JobStatus.FINISHED)},
        {"status": (JobStatus.PENDING, JobStatus.FINISHED), "tag": "daily", "until": NOW - timedelta(seconds=5)},
    ],
    ids="+".join,
)
def test_lists_are_the_same_by_any_index(
    database: Documents, wanted: dict[str, Any], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.jobs.queries.FEW", few)
    monkeypatch.setattr("gateway.jobs.queries.FIRST_LOOK", 2)
    jobs = [
        keep(
            database, age=n // 2, user_id=("ada", "bob")[n % 2], tags=["daily", "x"][: n % 3],
            spider=("seo", "rare")[n % 5 == 0], status=[*JobStatus][n % 7],
        )
        for n in range(80)
    ]  # fmt: skip
    expected = [
        job.id for job in sorted(jobs, key=lambda job: (job.created_at, job.id), reverse=True) if meets(job, **wanted)
    ]
    assert 5 < len(expected) < 80
    assert list_all(JobQueries(database), JobFilter(**wanted), 4) == expected


def meets(
    job: Job, *, since: datetime = NOW - timedelta(days=1), until: datetime = NOW + timedelta(days=1), **wanted: Any
) -> bool:
    own = {"tag": job.tags, "spider": [job.spec.spider], "user_id": [job.user_id]}
    by_name = all(wanted[name] in values for name, values in own.items() if name in wanted)
    return by_name and job.status in wanted.get("status", JobStatus) and since <= job.created_at < until


def list_all(queries: JobQueries, wanted: JobFilter, limit: int) -> list[str]:
    found, cursor = list[str](), None
    while True:
        jobs, cursor, _ = queries.page(wanted, limit, cursor)
        found += [job.id for job in jobs]
        if cursor is None:
            return found


def test_a_search_that_takes_long_says_how_far_it_came_and_goes_on_from_there(database: Documents) -> None:
    jobs = [keep(database, age=n, tags=["last"] if n == FIRST_LOOK + 9 else []) for n in range(FIRST_LOOK + 10)]
    seconds = count()
    queries = JobQueries(database, lambda: float(next(seconds)))
    found, cursor, searched_to = queries.page(JobFilter(q="LAST"), 5)
    assert (found, searched_to) == ([], jobs[FIRST_LOOK - 1].created_at)
    found, cursor, searched_to = queries.page(JobFilter(q="LAST"), 5, cursor)
    assert ([job.id for job in found], cursor, searched_to) == ([jobs[-1].id], None, None)


def test_the_queue_is_by_priority_then_age(database: Documents) -> None:
    late, early = keep(database, age=1), keep(database, age=2)
    urgent = keep(database, priority=5)
    ended = keep(database, age=9, status=JobStatus.FINISHED, live_key=None)
    queries = JobQueries(database)
    assert [queries.queue_position(job) for job in (urgent, early, late, ended)] == [1, 2, 3, None]
    assert queries.oldest_waiting() == early.created_at
    counts = queries.counts()
    assert (counts[JobStatus.PENDING], counts[JobStatus.FINISHED], counts[JobStatus.RUNNING]) == (3, 1, 0)


def test_an_empty_queue_has_no_oldest(database: Documents) -> None:
    assert JobQueries(database).oldest_waiting() is None
