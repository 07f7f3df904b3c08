"""A worker that stood still past its claim: whatever it writes, frees or decides then is not its to say any more."""

from __future__ import annotations

from datetime import timedelta

from conftest import DEAD_AFTER, Platform
from jobs import make_job

from gateway.domain.clock import to_iso
from gateway.domain.job import Job, JobStatus
from gateway.services.dispatch import CLAIM_SECONDS, MAX_DISPATCH_FAILURES

PAUSE = timedelta(seconds=CLAIM_SECONDS + 1)


def submitted(platform: Platform, **fields: object) -> Job:
    platform.heartbeat()
    job = make_job(**fields)
    platform.jobs.insert(job)
    return job


def test_a_late_refusal_takes_no_slot_from_the_attempt_that_runs(platform: Platform) -> None:
    job = submitted(platform)

    def another_worker_takes_over() -> None:
        platform.ahead += PAUSE
        platform.heartbeat()
        assert platform.dispatch.fill() == 1
        platform.double.mode = "refuse"

    platform.double.meanwhile = another_worker_takes_over
    assert platform.dispatch.fill() == 0
    assert platform.double.posted == [f"{job.id}-1"] * 2
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
    assert platform.slots() == [f"{job.id}-1"]


def test_a_late_refusal_gives_no_job_up_that_a_node_may_have(platform: Platform) -> None:
    job = submitted(platform, dispatch_failures=MAX_DISPATCH_FAILURES - 1)

    def another_workers_answer_is_lost() -> None:
        platform.ahead += PAUSE
        platform.heartbeat()
        platform.double.mode = "vanish"
        assert platform.dispatch.fill() == 0
        platform.double.mode = "refuse"

    platform.double.meanwhile = another_workers_answer_is_lost
    platform.dispatch.fill()
    unsure = platform.jobs.get(job.id)
    assert (unsure.status, unsure.placement and unsure.placement.attempt) == (JobStatus.PENDING, 1)
    assert platform.slots() == [f"{job.id}-1"]


def test_a_late_word_of_a_dead_node_ends_nothing_on_one_that_came_back(platform: Platform) -> None:
    job = submitted(platform)
    platform.dispatch.fill()
    node = platform.nodes.get("n1")
    assert node is not None
    platform.ahead += DEAD_AFTER + timedelta(seconds=5)
    platform.heartbeat(alive=(f"{job.id}-1",))
    platform.reconciliation.node("n1", to_iso(node.heartbeat_at))
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
