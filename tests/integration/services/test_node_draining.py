"""Nodes that are there but get no work: drained, not listed, hung, or back from a rest."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from conftest import DEAD_AFTER, Platform
from node_double import NodeDouble, node_double
from node_story import ends_well, later, node, state, submitted

from gateway.jobs.job import JobStatus, WaitingReason
from gateway.jobs.queries import JobStatistics
from gateway.nodes.health import report_on
from gateway.nodes.node import NodeList, NodeState, node_resource
from gateway.nodes.scrapyd import ScrapydClient
from gateway.nodes.store import NodeStore
from gateway.status.health import IdleSlots


def test_a_drained_node_keeps_what_it_runs_and_gets_nothing_new_even_after_it_was_started_anew(
    platform: Platform,
) -> None:
    platform.heartbeat()
    (runs,) = submitted(platform)
    assert platform.dispatch.fill() == 1
    assert platform.nodes.drain("n1") is not None
    (waits,) = submitted(platform)
    platform.nodes.heartbeat(
        "n1", url=platform.double.url, max_slots=9, alive=(), present=(), beating_since=platform.clock()
    )
    assert platform.dispatch.fill(waits.id) == 0
    assert state(platform) is NodeState.DRAINING
    assert platform.jobs.get(waits.id).waiting_reason is WaitingReason.NO_NODE
    assert platform.double.cancelled == []
    ends_well(platform, runs.id)
    assert platform.jobs.get(runs.id).status is JobStatus.FINISHED
    assert platform.nodes.resume("n1") is not None
    assert platform.dispatch.fill() == 1
    assert platform.nodes.drain("nobody") is None
    assert platform.nodes.resume("nobody") is None


def test_a_node_that_was_drained_since_it_was_looked_at_gives_no_slot(platform: Platform) -> None:
    platform.heartbeat()
    platform.nodes.drain("n1")
    assert not platform.take(node_resource("n1"), f"{'a' * 32}-1")
    platform.nodes.resume("n1")
    assert platform.take(node_resource("n1"), f"{'a' * 32}-1")


def test_a_job_says_why_it_waits_where_a_node_was_drained_since_it_was_read(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.heartbeat()
    submitted(platform)
    with monkeypatch.context() as slow:
        slow.setattr("gateway.nodes.store.KEPT", timedelta(hours=1))
        assert platform.dispatch.fill() == 1
        # another process drains the node
        assert NodeStore(platform.database, platform.clock).drain("n1") is not None
        (waits,) = submitted(platform)
        assert platform.dispatch.fill() == 0
    platform.ahead += timedelta(seconds=1)
    platform.explain()
    assert platform.jobs.get(waits.id).waiting_reason is WaitingReason.NO_NODE


def test_whoever_resumes_a_node_in_quarantine_has_it_probed_at_once(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "broken"
    submitted(platform)
    platform.dispatch.fill()
    for _ in range(8):
        later(platform, 300)
    assert state(platform) is NodeState.QUARANTINED
    platform.double.mode = "ok"
    platform.nodes.resume("n1")
    assert state(platform) is NodeState.RESTING
    later(platform, 0.5)
    assert (state(platform), node(platform).failures) == (NodeState.UP, 0)


def test_a_node_that_was_started_anew_is_probed_at_once(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "broken"
    submitted(platform)
    platform.dispatch.fill()
    for _ in range(8):
        later(platform, 300)
    platform.double.mode = "ok"
    platform.ahead += timedelta(seconds=1)
    platform.nodes.heartbeat(
        "n1", url=platform.double.url, max_slots=2, alive=(), present=(), beating_since=platform.clock()
    )
    platform.look_at_nodes()
    assert state(platform) is NodeState.UP


def test_failures_of_long_ago_are_forgotten(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "broken"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.jobs.request_cancel(job.id)
    platform.double.mode = "ok"
    later(platform, 10)
    assert node(platform).failures == 1
    later(platform, 700)
    assert node(platform).failures == 0


def test_only_nodes_that_are_listed_get_work(platform: Platform) -> None:
    other = "http://127.0.0.1:9"
    platform.dispatch._nodes = NodeStore(platform.database, platform.clock, NodeList([other]))
    platform.heartbeat()
    (job,) = submitted(platform)
    assert platform.dispatch.fill(job.id) == 0
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.NO_NODE
    (unlisted,) = platform.dispatch._nodes.all()
    told = report_on(unlisted, platform.clock(), DEAD_AFTER)
    assert told.state is NodeState.NOT_LISTED
    assert "SCRAPYD_URL" in (told.todo or "")
    platform.dispatch._nodes = NodeStore(
        platform.database, platform.clock, NodeList([f"{platform.double.url}/", other])
    )
    assert platform.dispatch.fill() == 1


def test_an_attempt_that_a_node_accepts_and_never_starts_goes_elsewhere(platform: Platform) -> None:
    platform.heartbeat()
    (job,) = submitted(platform)
    assert platform.dispatch.fill() == 1
    for _ in range(40):
        later(platform, 5)
    waiting = platform.jobs.get(job.id)
    assert waiting.attempts["1"].exit is not None
    assert "never started on" in (waiting.message or "")
    assert node(platform).failures == 1


def test_an_attempt_whose_answer_is_missing_leaves_a_node_that_has_not_got_it(platform: Platform) -> None:
    """The node's Scrapyd is gone for good, but its tailer lives and reports which attempts are there."""
    platform.heartbeat()
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.heartbeat("n2")
    with node_double() as well:
        for _ in range(20):
            platform.ahead += timedelta(seconds=10)
            platform.heartbeat()
            platform.nodes.heartbeat(
                "n2", url=well.url, max_slots=2, alive=(), present=(), beating_since=platform.clock()
            )
            platform.reconcile()
            platform.dispatch.fill()
        assert set(well.posted) == {f"{job.id}-2"}


def test_jobs_that_wait_beside_a_free_slot_are_told_unless_something_is_started(platform: Platform) -> None:
    idle = IdleSlots(
        statistics=JobStatistics(platform.database), projects=platform.projects, dead_after=DEAD_AFTER,
        clock=platform.clock, monotonic=platform.monotonic,
    )  # fmt: skip
    submitted(platform, 3)
    later(platform, 60)
    assert idle.check(platform.nodes.all()).ok
    later(platform, 6)
    # no worker dispatches
    told = idle.check(platform.nodes.all())
    assert (told.status, told.message.split()[0]) == ("down", "3")
    assert platform.dispatch.fill() == 2
    assert idle.check(platform.nodes.all()).ok
    later(platform, 60)
    # the third one has no slot to wait beside
    assert idle.check(platform.nodes.all()).ok
    platform.heartbeat(slots=9)
    assert idle.check(platform.nodes.all()).ok
    platform.nodes.drain("n1")
    later(platform, 60, slots=9)
    assert idle.check(platform.nodes.all()).ok


@pytest.fixture
def hung() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_scrapyd_that_hangs_costs_one_waiting_and_no_job(
    platform: Platform, hung: str, monkeypatch: pytest.MonkeyPatch, double: NodeDouble
) -> None:
    for name in ("CALL_SECONDS", "VERDICT_SECONDS"):
        monkeypatch.setattr(f"gateway.nodes.scrapyd.{name}", 0.5)
    platform.dispatch._scrapyd = ScrapydClient("", "")
    now = platform.clock()
    platform.nodes.heartbeat("hung", url=hung, max_slots=50, alive=(), present=(), beating_since=now)
    platform.nodes.heartbeat("n1", url=double.url, max_slots=3, alive=(), present=(), beating_since=now)
    submitted(platform, 4)
    assert platform.dispatch.fill() == 3
    assert len(double.posted) == 3
    assert state(platform, "hung") is NodeState.RESTING
