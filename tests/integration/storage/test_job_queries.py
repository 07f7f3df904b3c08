from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from jobs import make_job
from pymongo.database import Database

from gateway.domain.clock import utc_now
from gateway.domain.errors import InvalidRequestError
from gateway.domain.job import Job, JobStatus
from gateway.storage.job_queries import JobFilter, JobQueries
from gateway.storage.jobs import JobStore

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
    first, cursor = queries.page(JobFilter(), 3)
    second, end = queries.page(JobFilter(), 3, cursor)
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
