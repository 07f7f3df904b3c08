from __future__ import annotations

import httpx2
import pytest

from embedded.stack.process import healthy


def told(status: str, **checks: str) -> str | None:
    body = {"status": status, "checks": {name: {"status": one, "message": "why"} for name, one in checks.items()}}
    return healthy(httpx2.Response(200, json=body, request=httpx2.Request("GET", "http://127.0.0.1/health")))


@pytest.mark.parametrize("check", ["node_states", "node_list", "files", "waiting", "schedules"])
def test_a_stack_is_up_though_its_node_is_drained_or_its_work_is_late(check: str) -> None:
    assert told("degraded", mongo="ok", **{check: "down"}) is None


def test_a_stack_is_not_up_while_a_part_of_it_is_missing() -> None:
    assert told("ok", mongo="ok") is None
    assert told("degraded", nodes="down", node_states="down") == "nodes: why; node_states: why"
    assert told("down") == "status down"
