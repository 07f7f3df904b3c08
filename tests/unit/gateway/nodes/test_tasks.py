from __future__ import annotations

from concurrent.futures import Future
from threading import Event, Timer
from typing import Any, cast

import pytest
from stack import wait_until

from gateway.clock import utc_now
from gateway.errors import NodeUnreachableError
from gateway.nodes import tasks as node_tasks
from gateway.nodes.scrapyd import ScrapydClient
from gateway.nodes.store import Node
from gateway.nodes.tasks import NodeStep, NodeTasks


class Answering:
    """A client of nodes that are all well."""

    def question(self, _url: str) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()
        answer.set_result({})
        return answer


def node(name: str) -> Node:
    since = utc_now()
    return Node(id=name, url=f"http://{name}.example", max_slots=1, heartbeat_at=since, beating_since=since)


def unreachable() -> None:
    raise NodeUnreachableError("nobody answers")


def test_a_node_that_has_failed_takes_a_place_from_others_only_after_it_has_done_something() -> None:
    tasks, over, done = NodeTasks(cast("ScrapydClient", Answering()), 1, utc_now), Event(), Event()
    sick, well = node("sick"), node("well")
    for carry_out in (unreachable, lambda: False, lambda: over.wait(60)):
        assert tasks.wait(10)
        tasks.add(sick, NodeStep("bring", carry_out))
    tasks.add(well, NodeStep("bring", done.set))
    try:
        wait_until(done.is_set, timeout=5, what="the other node's step")
    finally:
        over.set()
    assert tasks.wait(10)


class FarAway(Answering):
    """A client whose every answer takes a time."""

    seconds = 0.0

    def question(self, _url: str) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()
        Timer(self.seconds, answer.set_result, [{}]).start()
        return answer


def test_a_node_is_named_while_all_its_last_answers_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tasks, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(node_tasks, "SLOW_ANSWER", 0.05)
    client = FarAway()
    tasks = NodeTasks(cast("ScrapydClient", client), 1, utc_now)

    def ask(seconds: float) -> list[str]:
        client.seconds = seconds
        tasks.add(node("far"), NodeStep("bring", lambda: True))
        assert tasks.wait(10)
        return [name for name, took in tasks.slow_nodes() if took >= 0.06]

    # it may be busy once, or twice
    assert [ask(0.06), ask(0.06), ask(0.06)] == [[], [], ["far"]]
    assert ask(0.0) == []
    monkeypatch.setattr(node_tasks, "_LATELY", 0.0)
    assert [ask(0.06), ask(0.06), ask(0.06)] == [[]] * 3
