"""A node that fails: how long it rests, how it returns, and how few jobs it costs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from conftest import Platform
from node_double import node_double
from node_story import ends, ends_well, later, node, running_on, state, submitted

from gateway.contract.crawl import CrawlSpec, Egg
from gateway.contract.outbox import AttemptId
from gateway.contract.records import Progress
from gateway.dispatch.dispatcher import MAX_DISPATCH_FAILURES
from gateway.errors import NodeUnreachableError
from gateway.jobs.job import JobStatus
from gateway.nodes.node import NodeState

CRASH = {"exit_code": 1, "log_tail": "ImportError: libssl.so.3"}


@pytest.mark.parametrize("mode", ["vanish", "broken", "shut"])
def test_a_node_that_fails_rests_for_twice_as_long_each_time_and_returns_by_a_probe(
    platform: Platform, mode: str
) -> None:
    platform.heartbeat()
    platform.double.mode = mode
    submitted(platform)
    platform.dispatch.fill()
    rests = []
    for failures in range(1, 11):
        failed = node(platform)
        assert failed.failures == failures
        assert state(platform) is (NodeState.QUARANTINED if failures >= 3 else NodeState.RESTING)
        assert failed.rest_until is not None
        assert failed.failed_at is not None
        rests.append((failed.rest_until - failed.failed_at).total_seconds())
        posted = len(platform.double.posted)
        later(platform, rests[-1] - 1)
        assert len(platform.double.probes) == failures
        later(platform, 1)
        platform.dispatch.fill()
        # a probe found out, without a job
        assert len(platform.double.probes) == failures + 1
        assert len(platform.double.posted) == posted
    # a node that does not answer is probed more often, because that costs nothing
    longest = 300 if mode == "shut" else 30
    assert rests == [min(longest, seconds) for seconds in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)]
    platform.double.mode = "ok"
    later(platform, 300)
    assert state(platform) is NodeState.UP
    assert platform.dispatch.fill() == 1


def test_a_failure_at_an_address_that_the_node_has_left_is_none_of_its_own(platform: Platform) -> None:
    platform.heartbeat()
    before = node(platform)
    platform.double.url += "/moved"
    platform.heartbeat()
    platform.dispatch._node_failed(before, NodeUnreachableError("nobody answers"), platform.clock())
    assert node(platform).failures == 0
    platform.dispatch._node_failed(node(platform), NodeUnreachableError("nobody answers"), platform.clock())
    assert node(platform).failures == 1


def test_a_success_makes_up_for_all_failures(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "broken"
    jobs = submitted(platform, 2)
    platform.dispatch.fill()
    platform.double.mode = "ok"
    later(platform, 60)
    # after a failure only one job at a time, until one has ended well
    assert platform.dispatch.fill() == 1
    assert node(platform).failures == 1
    (running,) = running_on(platform, jobs, "n1")
    ends_well(platform, running)
    assert (node(platform).failures, state(platform)) == (0, NodeState.UP)


@pytest.mark.parametrize("sign", ["a page", "a while"])
def test_a_crawl_that_runs_is_a_success_before_it_ends(platform: Platform, sign: str) -> None:
    platform.heartbeat()
    platform.double.mode = "broken"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "ok"
    later(platform, 60)
    assert platform.dispatch.fill() == 1
    attempt = AttemptId(job.id, platform.jobs.get(job.id).attempt)
    platform.completion.attempt_started(attempt, platform.clock())
    if sign == "a page":
        platform.jobs.record_progress(*attempt, Progress(requested_pages=1, completed_pages=1))
    else:
        platform.ahead += timedelta(seconds=11)
    platform.heartbeat(alive=(str(attempt),))
    platform.look_at_nodes()
    assert node(platform).failures == 0


def test_of_all_that_failed_together_one_counts(platform: Platform) -> None:
    platform.heartbeat(slots=5)
    jobs = submitted(platform, 5)
    assert platform.dispatch.fill() == 5
    platform.ahead += timedelta(seconds=1)
    for job in jobs:
        ends(platform, job.id, **CRASH)
    assert (node(platform).failures, state(platform)) == (1, NodeState.RESTING)


def test_a_job_that_kills_itself_does_not_put_a_node_into_quarantine(platform: Platform) -> None:
    platform.heartbeat()
    (poison,) = submitted(platform, max_retries=5)
    for _ in range(5):
        platform.dispatch.fill()
        ends(platform, poison.id, signal=9)
        assert node(platform).failures == 1
        later(platform, 600)


@pytest.mark.parametrize(
    ("facts", "project"),
    [
        pytest.param(CRASH, "shop", id="an egg that does not import"),
        pytest.param({"signal": 9, "stopped_by": "memory"}, "default", id="its memory limit"),
        pytest.param({"signal": 9, "lost": True}, "default", id="the memory of its node"),
        pytest.param({"signal": 9, "stopped_by": "cancel"}, "default", id="a cancellation"),
        pytest.param({"refused": "cancelled", "stopped_by": "cancel"}, "default", id="a cancellation before it ran"),
        pytest.param({"refused": "spawn_failed: x", "fault": "job"}, "default", id="a folder that it has spoilt"),
    ],
)
def test_what_the_crawl_brought_about_is_not_held_against_the_node(
    platform: Platform, facts: dict[str, object], project: str
) -> None:
    spec = CrawlSpec(project=project, spider="seo", start_urls=("https://example.com/",))
    platform.nodes.heartbeat(
        "n1", url=platform.double.url, max_slots=2, alive=(), present=(), beating_since=platform.clock(),
        eggs=[Egg("shop", "1")],
    )  # fmt: skip
    (job,) = submitted(platform, spec=spec)
    assert platform.dispatch.fill() == 1
    ends(platform, job.id, **facts)
    assert node(platform).failures == 0


def test_what_crashes_after_it_made_requests_is_not_held_against_the_node(platform: Platform) -> None:
    platform.heartbeat()
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.jobs.record_progress(job.id, 1, Progress(requested_pages=9))
    ends(platform, job.id, signal=11)
    assert node(platform).failures == 0


def test_an_attempt_that_a_node_does_not_start_costs_the_job_no_retry_but_not_for_ever(platform: Platform) -> None:
    platform.heartbeat()
    (job,) = submitted(platform, max_retries=1)
    for attempt in range(1, 11):
        assert platform.jobs.get(job.id).status is JobStatus.PENDING
        assert platform.dispatch.fill() == 1
        assert platform.jobs.get(job.id).attempt == attempt
        ends(platform, job.id, refused="spawn_failed: Cannot allocate memory")
        later(platform, 600)
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.dead) == (JobStatus.ERROR, True)


def test_a_refusal_for_which_the_job_is_to_blame_costs_it_a_retry(platform: Platform) -> None:
    platform.heartbeat()
    (job,) = submitted(platform, max_retries=1)
    for _ in range(2):
        assert platform.dispatch.fill() == 1
        ends(platform, job.id, refused="spawn_failed: crawl.log is a folder", fault="job")
        later(platform, 600)
    assert platform.jobs.get(job.id).status is JobStatus.ERROR
    assert node(platform).failures == 0


def test_what_a_node_refuses_for_reasons_of_its_own_runs_on_its_neighbour(platform: Platform) -> None:
    with node_double() as sick:
        sick.mode = "full"
        platform.heartbeat("good")
        # the node with the most free slots, so it is chosen first
        heartbeat(platform, "sick", sick.url, slots=99)
        (job,) = submitted(platform)
        assert platform.dispatch.fill() == 1
        assert (sick.posted, platform.double.posted) == ([f"{job.id}-1"], [f"{job.id}-2"])
        runs = platform.jobs.get(job.id)
        assert (runs.status, runs.dispatch_failures, runs.avoid) == (JobStatus.RUNNING, 0, ["sick"])
        assert (node(platform, "sick").failures, platform.slots("sick")) == (1, [])
        assert "Too many open files" in (node(platform, "sick").failure or "")


def test_no_number_of_refusals_for_its_own_reasons_ends_a_job_but_they_put_the_node_into_quarantine(
    platform: Platform,
) -> None:
    platform.heartbeat()
    platform.double.mode = "full"
    (job,) = submitted(platform)
    for failures in range(1, MAX_DISPATCH_FAILURES + 2):
        platform.dispatch.fill()
        assert node(platform).failures == failures
        assert state(platform) is (NodeState.QUARANTINED if failures >= 3 else NodeState.RESTING)
        later(platform, 310)
    assert len(platform.double.posted) == MAX_DISPATCH_FAILURES + 1
    assert platform.jobs.get(job.id).status is JobStatus.PENDING
    platform.double.mode = "ok"
    assert platform.dispatch.fill() == 1


def heartbeat(platform: Platform, name: str, url: str, *, slots: int) -> None:
    platform.nodes.heartbeat(
        name, url=url, max_slots=slots, alive=(), present=(), beating_since=platform.clock() - timedelta(hours=1)
    )


def test_a_black_hole_does_not_eat_the_queue(platform: Platform) -> None:
    """One of two nodes takes every job and fails it at once. No job is lost, and soon this node gets hardly any."""
    slots = 4
    for name in ("good", "hole"):
        platform.heartbeat(name, slots=slots)
    jobs = submitted(platform, 30, max_retries=2)
    eaten = 0
    for _ in range(200):
        platform.dispatch.fill()
        for job_id in running_on(platform, jobs, "hole"):
            eaten += 1
            ends(platform, job_id, **CRASH)
        for job_id in running_on(platform, jobs, "good"):
            ends_well(platform, job_id)
        if all(platform.jobs.get(job.id).is_final for job in jobs):
            break
        later(platform, 1, "good", "hole", slots=slots)
    assert {platform.jobs.get(job.id).status for job in jobs} == {JobStatus.FINISHED}
    # one for each of its slots, before the first failure was known, and one for each return
    assert slots <= eaten <= slots + 6
    assert state(platform, "hole") in {NodeState.QUARANTINED, NodeState.RESTING, NodeState.UP}
    assert node(platform, "good").failures == 0


def test_a_retry_goes_to_another_node_first(platform: Platform) -> None:
    for name in ("n1", "n2"):
        platform.heartbeat(name)
    spec = CrawlSpec(project="shop", spider="offers", start_urls=("https://example.com/",))
    for name, slots in (("n1", 9), ("n2", 2)):
        platform.nodes.heartbeat(
            name, url=platform.double.url, max_slots=slots, alive=(), present=(), beating_since=platform.clock(),
            eggs=[Egg("shop", "1")],
        )  # fmt: skip
    (job,) = submitted(platform, spec=spec)
    platform.dispatch.fill()
    assert running_on(platform, [job], "n1")
    ends(platform, job.id, **CRASH)
    platform.ahead += timedelta(seconds=20)
    for name, slots in (("n1", 9), ("n2", 2)):
        platform.nodes.heartbeat(
            name, url=platform.double.url, max_slots=slots, alive=(), present=(), beating_since=platform.clock(),
            eggs=[Egg("shop", "1")],
        )  # fmt: skip
    platform.dispatch.fill()
    assert running_on(platform, [job], "n2")
