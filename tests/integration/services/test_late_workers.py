"""A worker that stood still for too long: what it writes, frees or decides after that has no effect any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from conftest import DEAD_AFTER, Platform
from jobs import make_job

from gateway.dispatch.dispatcher import CLOCK_MARGIN, MAX_DISPATCH_FAILURES, START_SECONDS
from gateway.dispatch.fair_queue import NodeChoice, Selection
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.queue import ATTEND_SECONDS
from gateway.nodes.tasks import NodeStep

PAUSE = timedelta(seconds=ATTEND_SECONDS + 1)


def submitted(platform: Platform, **fields: object) -> Job:
    platform.heartbeat()
    job = make_job(**fields)
    platform.jobs.insert(job)
    return job


@pytest.fixture
def other(platform: Platform, redis_url: str) -> Iterator[Platform]:
    """Another worker."""
    other = Platform(redis_url, platform.double, platform.database)
    yield other
    other.scrapyd.close()
    other.redis.close()


def test_a_late_refusal_takes_no_slot_from_the_attempt_that_runs(platform: Platform, other: Platform) -> None:
    job = submitted(platform)

    def another_worker_takes_over() -> None:
        platform.ahead = other.ahead = PAUSE
        platform.heartbeat()
        assert other.dispatch.fill() == 1
        platform.double.mode = "refuse"

    platform.double.meanwhile = another_worker_takes_over
    assert platform.dispatch.fill() == 0
    assert platform.double.posted == [f"{job.id}-1"] * 2
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
    assert platform.slots() == [f"{job.id}-1"]


def test_a_late_refusal_gives_no_job_up_that_a_node_may_have(platform: Platform, other: Platform) -> None:
    job = submitted(platform, dispatch_failures=MAX_DISPATCH_FAILURES - 1)

    def another_workers_answer_is_lost() -> None:
        platform.ahead = other.ahead = PAUSE
        platform.heartbeat()
        platform.double.mode = "lost"
        assert other.dispatch.fill() == 0
        platform.double.mode = "refuse"

    platform.double.meanwhile = another_workers_answer_is_lost
    platform.dispatch.fill()
    unsure = platform.jobs.get(job.id)
    assert (unsure.status, unsure.assignment and unsure.assignment.attempt) == (JobStatus.PENDING, 1)
    assert platform.slots() == [f"{job.id}-1"]


def test_a_worker_that_sleeps_between_its_holds_and_its_assignment_can_assign_nothing_any_more(
    platform: Platform,
) -> None:
    job = submitted(platform)
    choice = NodeChoice(platform.nodes.all(), platform.clock(), DEAD_AFTER, frozenset())
    planned = platform.dispatch._plan(choice, look(platform))
    assert platform.holds.take(planned[0].wishes(0), planned[0].assignment.token)
    platform.ahead += TAKEN_FOR
    platform.heartbeat()
    platform.reconcile()
    assert platform.held() == {}
    assert platform.queue.assign([(one.candidate, one.assignment) for one in planned]) == []
    assert platform.dispatch.fill() == 1
    assert platform.double.posted == [f"{job.id}-2"]


def look(platform: Platform) -> Selection:
    return platform.fair.look()


def test_a_worker_that_sleeps_after_its_assignment_keeps_what_it_holds(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, assigned = submitted(platform), list[NodeStep]()
    with monkeypatch.context() as asleep:
        asleep.setattr(platform.dispatch.tasks, "add", lambda _, step: assigned.append(step))
        platform.dispatch.look()
    platform.ahead += TAKEN_FOR
    platform.heartbeat()
    platform.reconcile()
    assert platform.held() == {"node:n1": [f"{job.id}-1"], f"user:{job.user_id}": [f"{job.id}-1"]}
    assert platform.dispatch.fill() == 1
    # the first worker wakes up, and posts the attempt that another worker has posted already
    assigned[0].carry_out()
    assert len(platform.double.posted) == 2
    assert set(platform.double.posted) == {f"{job.id}-1"}
    assert platform.slots() == [f"{job.id}-1"]


def test_a_worker_that_sleeps_before_it_sees_what_it_has_assigned_takes_nothing_from_whoever_took_it_over(
    platform: Platform, other: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, gone = submitted(platform), submitted(platform)
    assign = platform.queue._assign

    def slow(wanted: Any) -> int:
        # one of the jobs does not wait any more, so the worker has to look which ones it has got
        platform.database["jobs"].update_one({"_id": gone.id}, {"$unset": {"lane": ""}})
        matched = assign(wanted)
        platform.ahead = other.ahead = PAUSE
        platform.heartbeat()
        assert other.dispatch.fill() == 1
        return matched

    monkeypatch.setattr(platform.queue, "_assign", slow)
    platform.dispatch.look()
    platform.dispatch.wait()
    assert platform.double.posted == [f"{job.id}-1"]
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
    assert platform.held() == {"node:n1": [f"{job.id}-1"], f"user:{job.user_id}": [f"{job.id}-1"]}


@pytest.mark.parametrize("gone", [True, False])
def test_a_job_goes_elsewhere_though_nobody_can_read_the_document_of_the_node_that_may_have_it(
    platform: Platform, *, gone: bool
) -> None:
    job = submitted(platform)
    platform.double.mode = "lost"
    assert platform.dispatch.fill() == 0
    platform.double.mode = "ok"
    nodes = platform.database["nodes"]
    if gone:
        nodes.delete_one({"_id": "n1"})
    else:
        nodes.update_one({"_id": "n1"}, {"$set": {"failures": "many"}})
    platform.ahead += timedelta(seconds=START_SECONDS) + CLOCK_MARGIN + timedelta(seconds=9)
    platform.heartbeat("n2")
    assert platform.dispatch.fill() == 1
    assert platform.jobs.get(job.id).node == "n2"
