from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from jobs import OURS, claim, make_job
from pymongo.database import Database

from gateway.domain.clock import utc_now
from gateway.domain.job import JobStatus, WaitingReason
from gateway.domain.room import Room
from gateway.storage.job_queries import JobQueries
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.lanes import LaneStore
from gateway.storage.leases import Lease, LeaseStore


@pytest.fixture
def leases(database: Database[dict[str, Any]]) -> LeaseStore:
    return LeaseStore(database)


@pytest.fixture
def sweeps(database: Database[dict[str, Any]]) -> JobSweeps:
    return JobSweeps(database)


def test_a_lease_is_one_jobs_until_that_frees_it(leases: LeaseStore) -> None:
    assert leases.take("site:a", "job1", "t1")
    assert not leases.take("site:a", "job2", "t2")
    assert leases.take("site:a", "job1", "t3")
    assert leases.take("site:b", "job2", "t4")
    leases.free("site:a", "job2")
    assert leases.holder("site:a") == "job1"
    leases.free("site:a", "job1")
    assert leases.holder("site:a") is None
    assert leases.take("site:a", "job2", "t5")
    assert leases.held(["site:a", "site:b", "site:c"]) == {"site:a", "site:b"}


def test_of_many_that_want_it_at_once_one_has_it(leases: LeaseStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        took = list(threads.map(lambda number: leases.take("site:a", f"job{number}", "t"), range(8)))
    assert took.count(True) == 1
    assert leases.holder("site:a") == f"job{took.index(True)}"


def test_a_lease_that_was_taken_again_cannot_be_given_back_by_whoever_saw_it_before(leases: LeaseStore) -> None:
    leases.take("site:a", "job1", "t1")
    (seen,) = leases.page(9)
    assert seen == Lease("site:a", "job1", "t1")
    leases.take("site:a", "job1", "t2")
    leases.give_back(seen)
    assert leases.holder("site:a") == "job1"
    leases.give_back(seen._replace(token="t2"))
    assert leases.page(9) == []


def test_leases_are_read_in_order_page_by_page(leases: LeaseStore) -> None:
    for key in ("c", "a", "b"):
        leases.take(key, "job1", "t")
    assert [lease.key for lease in leases.page(2)] == ["a", "b"]
    assert [lease.key for lease in leases.page(2, "b")] == ["c"]


def test_a_blocked_job_is_neither_claimed_nor_explained_nor_counted_until_it_is_unblocked(
    jobs: JobStore, queue: JobQueue, database: Database[dict[str, Any]]
) -> None:
    queries, lanes = JobQueries(database), LaneStore(database)
    first, second = make_job(exclusive="site:a", priority=5), make_job()
    for job in (first, second):
        jobs.insert(job)
    queue.claim(claim(), OURS)
    blocked = queue.block(first.id, claim(), WaitingReason.SITE_BUSY)
    assert blocked is not None
    assert (blocked.claim, blocked.waiting_reason) == (None, WaitingReason.SITE_BUSY)
    assert queue.note_waiting(first.id, WaitingReason.CAPACITY) is None
    assert [head.job_id for head in lanes.heads(utc_now(), Room().fits)] == [second.id]
    assert [queries.queue_position(job) for job in (blocked, second)] == [None, 1]
    claimed = queue.claim(claim(), OURS)
    assert claimed is not None
    assert claimed.id == second.id
    assert queue.claim(claim(), OURS) is None
    free = queue.unblock("site:a")
    assert free is not None
    assert (free.id, free.blocked, free.waiting_reason) == (first.id, None, None)
    assert [queries.queue_position(job) for job in (free, second)] == [1, 2]
    assert queue.claim(claim(), OURS) is not None


def test_nobody_blocks_a_job_whose_claim_is_no_longer_theirs(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job(exclusive="site:a")
    jobs.insert(job)
    queue.claim(claim(), OURS)
    theirs = claim().model_copy(update={"token": "other"})
    assert queue.block(job.id, theirs, WaitingReason.SITE_BUSY) is None


def test_the_best_of_those_that_wait_for_a_lease_is_unblocked_first(jobs: JobStore, queue: JobQueue) -> None:
    now = utc_now()
    made = {
        "late": make_job(exclusive="site:a", blocked=True, created_at=now),
        "early": make_job(exclusive="site:a", blocked=True, created_at=now - timedelta(minutes=1)),
        "urgent": make_job(exclusive="site:a", blocked=True, priority=3),
        "other": make_job(exclusive="site:b", blocked=True, priority=9),
    }
    for job in made.values():
        jobs.insert(job)
    order = [job.id for _ in range(4) if (job := queue.unblock("site:a"))]
    assert order == [made[name].id for name in ("urgent", "early", "late")]


def test_what_jobs_wait_for_is_found_in_order_from_anywhere(jobs: JobStore, sweeps: JobSweeps) -> None:
    for key in ("site:a", "site:a", "site:b", "site:c"):
        jobs.insert(make_job(exclusive=key, blocked=True))
    jobs.insert(make_job(exclusive="site:d"))
    assert sweeps.blocked_for(9) == ["site:a", "site:b", "site:c"]
    assert sweeps.blocked_for(2) == ["site:a"]
    assert sweeps.blocked_for(2, "site:a") == ["site:b", "site:c"]


def test_a_lease_is_needed_by_what_runs_or_is_tried_again_and_by_whoever_has_not_settled(
    jobs: JobStore, sweeps: JobSweeps
) -> None:
    over = {"status": JobStatus.FINISHED, "live_key": None, "attempt": 1}
    made = {
        "running": make_job(status=JobStatus.RUNNING, attempt=1),
        "between attempts": make_job(attempt=1),
        "claimed": make_job(claim=claim(-9)),
        "unsettled": make_job(**over, settled=False),
        "settled": make_job(**over, settled=True),
        "blocked": make_job(blocked=True, attempt=1),
        "not looked at": make_job(),
    }
    for job in made.values():
        jobs.insert(job)
    needed = sweeps.in_need_of_lease([*(job.id for job in made.values()), "gone"])
    assert needed == {made[name].id for name in ("running", "between attempts", "claimed", "unsettled")}


def test_what_keeps_jobs_from_starting_is_looked_at_for_each_of_them_in_turn(
    jobs: JobStore, sweeps: JobSweeps
) -> None:
    reasons = [WaitingReason.NO_NODE, WaitingReason.BACKOFF, WaitingReason.DISK_FULL, WaitingReason.NO_SUCH_PROJECT]
    made = [make_job(waiting_reason=reason) for reason in reasons * 2]
    ahead = utc_now() + timedelta(minutes=1)
    for job in (*made, make_job(waiting_reason=WaitingReason.BACKOFF, not_before=ahead), make_job()):
        jobs.insert(job)
    first = sweeps.hindered(utc_now(), 3)
    second = sweeps.hindered(utc_now(), 3, first[-1].job_id)
    found = [*first, *second, *sweeps.hindered(utc_now(), 3, second[-1].job_id)]
    assert [(job.job_id, job.reason) for job in found] == sorted((job.id, job.waiting_reason) for job in made)
