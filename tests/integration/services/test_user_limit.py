"""Of one user, no more crawls run than allowed, however many workers look at once. MongoDB is real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from threading import Event, Lock
from typing import Any

import pytest
from conftest import Platform
from jobs import make_job
from node_double import NodeDouble

from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.jobs.job import Job, JobStatus, WaitingReason

Limited = Callable[[int], Platform]


@pytest.fixture
def limited(database: Any, redis_url: str, double: NodeDouble) -> Iterator[Limited]:
    with ExitStack() as stack:

        def platform(running_max: int) -> Platform:
            made = Platform(redis_url, double, database, running_max=running_max)
            stack.callback(made.scrapyd.close)
            stack.callback(made.redis.close)
            return made

        yield platform


def submitted(platform: Platform, count: int = 1, **fields: object) -> list[Job]:
    jobs = [make_job(**fields) for _ in range(count)]
    for job in jobs:
        platform.jobs.insert(job)
    return jobs


def running(platform: Platform) -> list[dict[str, str]]:
    return list(platform.database["jobs"].find({"status": JobStatus.RUNNING}, {"user_id": 1}))


def held(platform: Platform) -> dict[str, list[str]]:
    """The attempts that hold a share of their user, by user."""
    users = (one for one in platform.holds.all() if one.resource.startswith("user:"))
    return {one.resource[5:]: [holder.attempt for holder in one.holders] for one in users if one.holders}


def ends(platform: Platform, job_id: str, pages: int = 1) -> None:
    attempt = platform.jobs.get(job_id).attempt
    now = platform.clock()
    progress = Progress(completed_pages=pages, errors_count=1 - pages)
    report = SpiderReport(finish_reason="finished", progress=progress, ended_at=now)
    facts = ExitReport(attempt=attempt, exit_code=0, ended_at=now, report=report)
    platform.completion.record_exit(AttemptId(job_id, attempt), facts, 0)
    platform.completion.conclude(job_id)


def reasons(platform: Platform, jobs: list[Job]) -> Counter[WaitingReason | None]:
    return Counter(platform.jobs.get(job.id).waiting_reason for job in jobs)


def passes(platform: Platform, seconds: float) -> None:
    platform.ahead += timedelta(seconds=seconds)
    platform.heartbeat(slots=50)


def test_a_user_who_has_as_many_as_may_be_waits_says_so_and_lets_others_pass(limited: Limited) -> None:
    platform = limited(2)
    platform.heartbeat(slots=50)
    mine, other = submitted(platform, 4), submitted(platform, user_id="bob")[0]
    assert platform.dispatch.fill(mine[3].id) == 3
    assert Counter(job["user_id"] for job in running(platform)) == {"ada": 2, "bob": 1}
    assert platform.jobs.get(mine[3].id).waiting_reason is WaitingReason.USER_QUOTA
    assert platform.dispatch.fill() == 0
    ends(platform, mine[0].id)
    assert held(platform)["ada"] == [f"{mine[1].id}-1"]
    assert platform.dispatch.fill() == 1
    assert set(held(platform)) == {"ada", other.user_id}


def test_the_reason_is_the_limit_only_where_a_node_would_take_the_job(limited: Limited) -> None:
    platform = limited(1)
    platform.heartbeat(slots=50)
    mine = submitted(platform, 3)
    platform.dispatch.fill()
    platform.database["jobs"].update_many({"status": "pending"}, {"$set": {"waiting_reason": WaitingReason.CAPACITY}})
    passes(platform, 3)
    platform.explain()
    assert reasons(platform, mine) == {None: 1, WaitingReason.USER_QUOTA: 2}
    platform.ahead += timedelta(minutes=5)
    platform.explain()
    assert reasons(platform, mine) == {None: 1, WaitingReason.NO_NODE: 2}


def test_between_its_attempts_a_job_holds_nothing_of_its_user(limited: Limited) -> None:
    platform = limited(1)
    platform.heartbeat(slots=50)
    first, second = submitted(platform, 2)
    platform.dispatch.fill()
    ends(platform, first.id, pages=0)
    assert held(platform) == {}
    assert platform.dispatch.fill() == 1
    assert [job["_id"] for job in running(platform)] == [second.id]


@pytest.mark.parametrize("mode", ["refuse", "broken"])
def test_what_no_node_took_holds_nothing_and_what_one_may_have_taken_does(
    limited: Limited, double: NodeDouble, mode: str
) -> None:
    platform = limited(1)
    platform.heartbeat(slots=50)
    (job,) = submitted(platform)
    double.mode = mode
    assert platform.dispatch.fill() == 0
    unsure = platform.jobs.get(job.id).assignment is not None
    assert held(platform) == ({"ada": [f"{job.id}-1"]} if unsure else {})
    double.mode = "ok"
    passes(platform, 600)
    # the node has failed, and returns once it answers a probe
    platform.reconcile()
    assert platform.dispatch.fill() == 1
    assert len(held(platform)["ada"]) == 1


def test_attempts_that_ran_before_there_was_a_limit_count(limited: Limited) -> None:
    before = limited(0)
    before.heartbeat(slots=50)
    submitted(before, 3)
    assert before.dispatch.fill() == 3
    platform = limited(3)
    (job,) = submitted(platform)
    assert platform.dispatch.fill(job.id) == 0
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.USER_QUOTA


def test_many_workers_that_look_at_once_never_start_one_too_many(limited: Limited) -> None:
    platforms = [limited(2) for _ in range(3)]
    platform = platforms[0]
    platform.heartbeat(slots=50)
    users = ("ada", "bob", "carl")
    jobs = [job for user in users for job in submitted(platform, 10, user_id=user, max_retries=2)]
    most, lock, over = Counter[str](), Lock(), Event()

    def work(seed: int) -> None:
        mine = platforms[seed % len(platforms)]
        while not over.is_set():
            mine.dispatch.fill()
            mine.compare()
            for job in running(mine):
                look_and_end(mine, job["_id"], pages=seed % 2)

    def look_and_end(mine: Platform, job_id: str, pages: int) -> None:
        with lock:
            job = mine.jobs.get(job_id)
            if job.status is not JobStatus.RUNNING:
                return
            for user, count in Counter(job["user_id"] for job in running(mine)).items():
                most[user] = max(most[user], count)
            ends(mine, job_id, pages=1 if job.attempt > 1 else pages)
        mine.end_back_off(job)
        if mine.database["jobs"].count_documents({"status": JobStatus.FINISHED}) == len(jobs):
            over.set()

    platform.work_at_once(work, over, 90)
    assert most == dict.fromkeys(users, 2)
    assert held(platform) == {}
