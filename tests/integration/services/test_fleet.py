"""The number of commands to MongoDB does not depend on the number of nodes."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta
from typing import Any

import pytest
from conftest import DEAD_AFTER, Platform
from databases import Databases
from jobs import assigned
from node_story import node, submitted
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from gateway.contract.outbox import AttemptId
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.jobs.job import JobStatus
from gateway.nodes.health import NodeHealth
from gateway.nodes.node import node_resource
from gateway.nodes.store import KEPT, NodeStore
from gateway.status.health import Health

FEW, MANY = 2, 12


class Asked(CommandListener):
    """Counts the commands by name and collection."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def started(self, event: CommandStartedEvent) -> None:
        self.counts[event.command_name, str(event.command[event.command_name])] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Of no interest."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Of no interest."""

    def during(self, step: Callable[[], object]) -> Counter[tuple[str, str]]:
        before = self.counts.copy()
        step()
        return self.counts - before


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def database(databases: Databases, asked: Asked) -> Iterator[Any]:
    client = MongoClient[dict[str, Any]](databases.uri, event_listeners=[asked], tz_aware=True, tzinfo=UTC)
    with databases.lent() as name, client:
        yield client[name]


def failing_nodes(platform: Platform, numbers: range) -> None:
    """Make nodes that have failed, each with one running attempt that is to show whether the node works again."""
    for number in numbers:
        name = f"n{number}"
        platform.heartbeat(name)
        NodeHealth(platform.nodes, platform.clock).failed(name, "it broke", platform.clock())
        (job,) = submitted(platform)
        running = platform.jobs.mark_running(job.id, assigned(platform.queue, job, node=name))
        assert running is not None
        attempt = str(AttemptId(job.id, running.attempt))
        assert platform.take(node_resource(name), attempt)
        assert platform.nodes.begin_trial(node(platform, name), attempt)
        platform.heartbeat(name, alive=(attempt,))


def test_a_look_at_nodes_of_which_all_have_failed_takes_as_many_commands_for_many_as_for_few(
    platform: Platform, asked: Asked
) -> None:
    def tick() -> None:
        platform.compare()

    failing_nodes(platform, range(FEW))
    few, few_read = asked.during(tick), asked.during(platform.nodes.all)
    failing_nodes(platform, range(FEW, MANY))
    many, many_read = asked.during(tick), asked.during(platform.nodes.all)
    assert all(found.is_tried for found in platform.nodes.all())
    assert (few, few_read) == (many, many_read)
    assert sum(many_read.values()) == 3


def paused_at_sites(platform: Platform, numbers: range) -> None:
    """Make paused jobs, each of which keeps its site."""
    for number in numbers:
        site = f"site:{number}"
        (job,) = submitted(platform, exclusive=site, status=JobStatus.PAUSED, attempt=1)
        assert platform.take(site, str(AttemptId(job.id, 1)), 1)


def test_paused_crawls_that_keep_their_sites_cost_as_many_commands_for_many_as_for_few(
    platform: Platform, asked: Asked
) -> None:
    def sweep() -> None:
        platform.ahead += TAKEN_FOR
        platform.sweeper.sweep()

    paused_at_sites(platform, range(FEW))
    few = asked.during(sweep)
    paused_at_sites(platform, range(FEW, MANY))
    many = asked.during(sweep)
    assert many == few
    assert sorted(platform.held()) == sorted(f"site:{number}" for number in range(MANY))


def test_whether_a_node_has_rested_enough_is_told_without_a_query(platform: Platform, asked: Asked) -> None:
    failing_nodes(platform, range(MANY))
    platform.ahead += timedelta(seconds=1)
    # the second failure makes the rest longer than 3 s: after that, only another node that is up delays the probe
    health = NodeHealth(platform.nodes, platform.clock)
    health.failed("n0", "it broke again", platform.clock())
    platform.ahead += timedelta(seconds=3)
    platform.heartbeat("well")
    resting, nodes = node(platform, "n0"), platform.nodes.all()
    assert resting.is_resting
    may_be_probed: list[bool] = []
    assert not asked.during(lambda: may_be_probed.append(health.may_be_probed(resting, nodes)))
    assert may_be_probed == [False]
    # a node that is drained does not count as another node that is up
    platform.nodes.drain("well")
    assert health.may_be_probed(resting, platform.nodes.all())


def test_the_health_reads_all_nodes_once(platform: Platform, asked: Asked, redis_url: str) -> None:
    health = Health(
        database=platform.database, redis=platform.redis, broker_url=redis_url, dead_after=DEAD_AFTER,
        clock=platform.clock,
    )  # fmt: skip
    try:
        failing_nodes(platform, range(FEW))
        few = asked.during(health.report)
        failing_nodes(platform, range(FEW, MANY))
        many = asked.during(health.report)
    finally:
        health.close()
    assert few == many
    assert many["find", "nodes"] == 1
    assert many["find", "heartbeats"] == 1


def test_looks_in_quick_succession_read_the_nodes_once_and_their_free_slots_each_time(
    platform: Platform, asked: Asked
) -> None:
    for number in range(MANY):
        platform.heartbeat(f"n{number}", alive=tuple(f"{uuid.uuid4().hex}-1" for _ in range(20)))
    moment = platform.clock()
    nodes = NodeStore(platform.database, lambda: moment)
    first, second = asked.during(nodes.lately), asked.during(nodes.lately)
    assert first == {("find", "nodes"): 1, ("find", "holds"): 1}
    assert second == {("find", "holds"): 1}
    (job,) = submitted(platform)
    assert platform.take(node_resource("n1"), str(AttemptId(job.id, 1)))
    assert {found.id: found.used_slots for found in nodes.lately() if found.used_slots} == {"n1": 1}
    # a process sees at once what it has written itself, and a moment later what others have written
    assert nodes.drain("n1") is not None
    assert ("find", "nodes") in asked.during(nodes.lately)
    assert platform.nodes.drain("n2") is not None
    moment += 2 * KEPT
    assert {found.id for found in nodes.lately() if found.draining_since} == {"n1", "n2"}


def test_what_was_written_during_a_look_is_seen_by_the_next(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.heartbeat()
    moment = platform.clock()
    nodes = NodeStore(platform.database, lambda: moment)
    read = nodes._documents.many

    def many(found: Any) -> Any:
        documents = read(list(found))
        nodes.drain("n1")
        return documents

    monkeypatch.setattr(nodes._documents, "many", many)
    assert [found.draining_since for found in nodes.lately()] == [None]
    monkeypatch.undo()
    assert [found.draining_since for found in nodes.lately()] == [
        moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    ]


def test_a_look_leaves_out_what_has_no_part_in_the_choice_of_a_node(platform: Platform) -> None:
    failing_nodes(platform, range(1))
    platform.heartbeat("n1", alive=(f"{uuid.uuid4().hex}-1",))
    unseen = {"alive", "present", "failure", "failed_jobs", "taken_slots", "clock_ahead", "round_trip"}
    unseen |= {"unshipped", "version"}
    lean, full = (
        [node.model_dump(exclude=unseen) for node in read()] for read in (platform.nodes.lately, platform.nodes.all)
    )
    assert lean == full
    assert full[0]["is_tried"]
    assert [(node.alive, node.failure) for node in platform.nodes.lately()] == [([], None)] * 2
    assert platform.nodes.all()[0].failure
    assert platform.nodes.all()[1].alive
