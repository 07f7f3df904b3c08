"""Two machines with the same name: one of them is the node."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import TailingNode
from forms import first_in_short
from stores import StoreProcess
from tailer_node import Node, eventually

from gateway.contract.outbox import INSTANCE
from gateway.contract.records import SpiderInfo

NAME = {"NODE_NAME": "twice"}
#: The shortest time that may be set.
DEAD_AFTER = {"NODE_DEAD_AFTER": "12"}


def instance_of(node: Node) -> str | None:
    found = node.nodes.get("twice")
    return found and found.instance


def test_a_second_machine_is_refused_until_the_first_is_dead_and_then_follows_it(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    with tailing_node(tmp_path / "first", mongo, valkey, **NAME, SCRAPYD_PORT="7001") as first:
        begun = eventually(lambda: instance_of(first))
        running = first.crawl()
        eventually(lambda: (found := first.nodes.get("twice")) and found.alive == [str(running.id)])
        with tailing_node(tmp_path / "second", mongo, valkey, **NAME, **DEAD_AFTER, SCRAPYD_PORT="7002") as second:
            eventually(lambda: (found := first.nodes.get("twice")) and found.rival_at)
            second.spiders.publish("twice", [SpiderInfo(project="default", name="only-first")])
            found = first.nodes.get("twice")
            assert found is not None
            assert (found.url[-4:], found.alive, found.rival_url and found.rival_url[-4:]) == (
                "7001", [str(running.id)], "7002",
            )  # fmt: skip
            assert "another machine, at http://127.0.0.1:7001, calls itself 'twice'" in said(second)
            # a restart changes nothing: the id of the machine is in its folder
            first.kill_tailer()
            first.start_tailer()
            beat = found.heartbeat_at
            eventually(lambda: (now := first.nodes.get("twice")) and now.heartbeat_at > beat)
            assert instance_of(first) == begun
            first.kill_tailer()
            eventually(lambda: instance_of(first) != begun)
            followed = first.nodes.get("twice")
            assert followed is not None
            assert (followed.url[-4:], followed.alive, followed.rival_at) == ("7002", [], None)
            # now the first machine is too late
            first.start_tailer()
            eventually(lambda: "at http://127.0.0.1:7002, calls itself 'twice'" in said(first))
            assert instance_of(first) == followed.instance
        running.die()


def said(node: Node) -> str:
    return (node.home / "tailer.log").read_text().replace("\\'", "'")


@pytest.mark.parametrize("side", first_in_short(["before", "after"]))
def test_a_machine_that_is_killed_while_it_is_named_has_one_name_for_good(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess, side: str
) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    point = plan / f"node.name_instance.{side}"
    point.write_text(signal.SIGKILL.name)
    with tailing_node(tmp_path / "home", mongo, valkey, DISCOVERYBOT_CRASH_PLAN=str(plan)) as node:
        node.wait_for_tailer()
        assert not point.exists()
        path = node.node_dir / INSTANCE
        kept = path.read_text() if side == "after" else None
        node.start_tailer()
        found = eventually(lambda: node.nodes.get(node.name))
        assert found.instance == path.read_text()
        assert kept in {None, found.instance}
