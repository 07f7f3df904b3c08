"""Jobs that need more than a slot: a browser, a deployed project, disk."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from conftest import Platform
from jobs import make_job

from gateway.contract.crawl import CrawlSpec, Egg
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.jobs.job import Job, JobStatus, WaitingReason


def submitted(platform: Platform, **fields: Any) -> Job:
    job = make_job(**fields)
    platform.jobs.insert(job)
    return job


def of_shop(version: str = "1.0", **fields: Any) -> dict[str, Any]:
    spec = CrawlSpec(project="shop", version=version, spider="offers", start_urls=("http://shop.example/",))
    return {"spec": spec, **fields}


def node(platform: Platform, name: str = "n1", **facts: Any) -> None:
    """A heartbeat of a node that has been up for an hour."""
    since = platform.clock() - timedelta(hours=1)
    given = {"url": platform.double.url, "max_slots": 4, "alive": (), "present": (), "beating_since": since}
    platform.nodes.heartbeat(name, **{**given, **facts})


def reason(platform: Platform, job: Job) -> WaitingReason | None:
    return platform.jobs.get(job.id).waiting_reason


def placed_on(platform: Platform, job: Job) -> str:
    current = platform.jobs.get(job.id).current
    assert current is not None
    return current.node


def end(platform: Platform, job: Job) -> None:
    now = platform.clock()
    platform.completion.record_exit(AttemptId(job.id, 1), ExitReport(attempt=1, ended_at=now, exit_code=0), 0)
    platform.completion.conclude(job.id)


def test_rendering_jobs_wait_for_a_browser_and_let_the_others_pass(platform: Platform) -> None:
    node(platform, max_render_slots=1)
    rendering = [submitted(platform, render=True, priority=9) for _ in range(3)]
    plain = submitted(platform)
    assert platform.dispatch.fill(rendering[2].id) == 2
    assert placed_on(platform, rendering[0]) == placed_on(platform, plain) == "n1"
    assert reason(platform, rendering[2]) is WaitingReason.CAPACITY
    assert platform.dispatch.fill() == 0


def test_a_browser_that_is_free_again_goes_to_who_waits_for_it(platform: Platform) -> None:
    node(platform, max_render_slots=1)
    first, second = (submitted(platform, render=True) for _ in range(2))
    assert platform.dispatch.fill() == 1
    end(platform, first)
    assert platform.held() == {}
    assert platform.dispatch.fill() == 1
    assert placed_on(platform, second) == "n1"


def test_a_rendering_job_goes_where_the_browser_is(platform: Platform) -> None:
    node(platform, "big", max_slots=50)
    node(platform, "small", max_slots=1, max_render_slots=1)
    job = submitted(platform, render=True)
    assert platform.dispatch.fill() == 1
    assert placed_on(platform, job) == "small"


def test_a_leaked_render_slot_is_freed(platform: Platform) -> None:
    node(platform, max_render_slots=1)
    platform.take("browser:n1", f"{'f' * 32}-1", 1)
    platform.ahead += TAKEN_FOR
    platform.reconcile()
    found = platform.nodes.get("n1")
    assert found is not None
    assert found.free_render_slots == 1


def test_a_job_whose_project_no_node_has_says_so_until_it_is_deployed(platform: Platform) -> None:
    node(platform)
    ours = submitted(platform)
    job = submitted(platform, **of_shop(priority=9))
    assert platform.dispatch.fill(job.id) == 1
    assert placed_on(platform, ours) == "n1"
    assert reason(platform, job) is WaitingReason.NO_SUCH_PROJECT
    node(platform, "n2", eggs=[Egg("shop", "0.9"), Egg("other", "1.0")])
    assert platform.dispatch.fill(job.id) == 0
    node(platform, "n2", eggs=[Egg("shop", "1.0")])
    assert platform.dispatch.fill() == 1
    assert placed_on(platform, job) == "n2"


def test_what_a_job_waits_for_changes_by_itself(platform: Platform) -> None:
    job = submitted(platform, **of_shop())
    platform.dispatch.fill(job.id)
    assert reason(platform, job) is WaitingReason.NO_NODE
    for facts, expected in (
        ({}, WaitingReason.NO_SUCH_PROJECT),
        ({"eggs": [Egg("shop", "1.0")], "disk_full": True}, WaitingReason.DISK_FULL),
        ({"eggs": [Egg("shop", "1.0")], "max_slots": 0}, WaitingReason.CAPACITY),
    ):
        platform.ahead += timedelta(seconds=3)
        node(platform, **facts)
        platform.explain()
        assert reason(platform, job) is expected


def test_who_waited_for_a_slot_is_told_when_there_is_no_node_any_more(platform: Platform) -> None:
    node(platform, max_slots=1)
    submitted(platform)
    waiting = submitted(platform)
    assert platform.dispatch.fill(waiting.id) == 1
    assert reason(platform, waiting) is WaitingReason.CAPACITY
    platform.nodes.drain("n1")
    platform.explain()
    assert reason(platform, waiting) is WaitingReason.NO_NODE
    platform.nodes.resume("n1")
    platform.ahead += timedelta(seconds=3)
    platform.explain()
    assert reason(platform, waiting) is WaitingReason.CAPACITY


def test_a_rendering_job_of_a_deployed_project_needs_both_on_one_node(platform: Platform) -> None:
    node(platform, "browser", max_render_slots=1)
    node(platform, "shop", eggs=[Egg("shop", "1.0")])
    job = submitted(platform, **of_shop(render=True))
    assert platform.dispatch.fill(job.id) == 0
    assert reason(platform, job) is WaitingReason.CAPACITY
    node(platform, "both", max_render_slots=1, eggs=[Egg("shop", "1.0")])
    assert platform.dispatch.fill() == 1
    assert placed_on(platform, job) == "both"


@pytest.mark.parametrize("other", [False, True])
def test_a_full_disk_gets_no_new_work(platform: Platform, *, other: bool) -> None:
    node(platform, disk_full=True)
    if other:
        node(platform, "n2", max_slots=0)
    job = submitted(platform)
    assert platform.dispatch.fill(job.id) == 0
    assert reason(platform, job) is WaitingReason.DISK_FULL
    node(platform)
    assert platform.dispatch.fill() == 1
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING


def test_an_attempt_that_is_at_a_full_node_already_is_handed_over_all_the_same(platform: Platform) -> None:
    node(platform)
    platform.double.mode = "lost"
    job = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "ok"
    platform.ahead += timedelta(seconds=10)
    node(platform, disk_full=True)
    platform.reconcile()
    assert platform.dispatch.fill() == 1
    assert platform.jobs.get(job.id).assignment is None
