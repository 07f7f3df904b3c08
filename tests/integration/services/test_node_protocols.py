"""Nodes of other versions: what they cannot understand does not come to them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from conftest import DEAD_AFTER, Platform
from jobs import make_job
from node_story import node, running_on, state, submitted

from gateway.contract.crawl import Expect
from gateway.contract.outbox import PROTOCOLS
from gateway.jobs.job import WaitingReason
from gateway.nodes.health import report_on
from gateway.nodes.node import NodeState

NEWEST = max(PROTOCOLS)


def _beats(platform: Platform, name: str, *protocols: int, version: str = "9.9.9") -> None:
    platform.nodes.heartbeat(
        name,
        url=platform.double.url,
        max_slots=2,
        alive=(),
        present=(),
        beating_since=platform.clock(),
        version=version,
        protocols=protocols,
    )


@pytest.mark.parametrize(("protocol", "age"), [(0, "old"), (NEWEST + 1, "new")])
def test_a_node_that_speaks_no_protocol_of_ours_is_named_and_gets_nothing(
    platform: Platform, protocol: int, age: str
) -> None:
    _beats(platform, "n1", protocol)
    (job,) = submitted(platform)
    assert platform.dispatch.fill(job.id) == 0
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.NO_NODE
    told = report_on(node(platform), platform.clock(), DEAD_AFTER)
    assert told.state is NodeState.INCOMPATIBLE
    assert f"9.9.9 is too {age}: it speaks protocol {protocol}" in (told.why or "")
    # upgraded, it is like any other
    _beats(platform, "n1", NEWEST)
    assert (state(platform), platform.dispatch.fill(job.id)) == (NodeState.UP, 1)


def test_a_newer_node_that_speaks_an_older_protocol_as_well_gets_work(platform: Platform) -> None:
    _beats(platform, "n1", NEWEST, NEWEST + 1)
    submitted(platform)
    assert platform.dispatch.fill() == 1


def test_a_node_of_0_1_0_gets_only_what_it_knows(platform: Platform) -> None:
    """It would leave settings, variables and expectations out in silence."""
    _beats(platform, "n1", 1, version="0.1.0")
    spec = make_job(user_id="ada").spec
    (plain,) = submitted(platform, user_id="bob")
    (expecting,) = submitted(platform, user_id="ada", spec=spec.model_copy(update={"expect": Expect(min_items=1)}))
    assert platform.dispatch.fill(expecting.id) == 1
    assert running_on(platform, [plain, expecting], "n1") == [plain.id]
    assert platform.jobs.get(expecting.id).waiting_reason is WaitingReason.NO_NODE
    _beats(platform, "n2", 1, 2)
    assert platform.dispatch.fill() == 1
    assert running_on(platform, [expecting], "n2") == [expecting.id]


def test_a_tailer_of_0_1_0_that_takes_over_speaks_its_own_protocol(platform: Platform) -> None:
    """It says nothing of protocols, and does not remove what the tailer before it has said."""
    _beats(platform, "n1", 1, 2)
    assert node(platform).speaks(2)
    platform.ahead += timedelta(seconds=2)
    beaten = {"heartbeat_at": platform.clock(), "version": "0.1.0"}
    platform.database["nodes"].update_one({"_id": "n1"}, {"$set": beaten})
    assert (node(platform).speaks(1), node(platform).speaks(2)) == (True, False)
