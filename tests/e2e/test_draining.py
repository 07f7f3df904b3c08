"""A node is drained while a crawl runs on it, and its processes are killed and come back: it stays drained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sites.gated import GatedSite
from sites.server import html
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
PATIENCE = 90.0


@pytest.fixture
def gated() -> Iterator[GatedSite]:
    with GatedSite() as site:
        assert isinstance(site, GatedSite)
        site.pages |= {"/a/": html('<a href="/rest">.</a>'), "/b/": html("the other"), "/rest": html("the rest")}
        yield site


def nodes(stack: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.http.get(f"{stack.url}/nodes").raise_for_status().json()["nodes"]
    return found


def test_a_drained_node_ends_what_it_runs_and_starts_nothing_before_it_is_resumed(
    stack: Stack, gated: GatedSite
) -> None:
    runs = stack.crawl(f"{gated.url}/a/")
    wait_until(lambda: gated.under_way, timeout=PATIENCE, what="the crawl")
    (node,) = nodes(stack)
    drained = stack.http.post(f"{stack.url}/nodes/{node['name']}/drain").raise_for_status().json()
    try:
        assert drained["state"] == "draining"
        waits = stack.crawl(f"{gated.url}/b/")
        heartbeat = restart(stack)
        (after,) = nodes(stack)
        assert (after["state"], after["since"]) == ("draining", drained["since"])
        assert after["heartbeat_at"] > heartbeat
        reason = "no_node"
        wait_until(
            lambda: stack.status(waits)["waiting_reason"] == reason, timeout=PATIENCE, what="the reason for waiting"
        )
        gated.open()
        assert stack.wait_final(runs, timeout=PATIENCE)["status"] == "finished"
        assert (stack.status(waits)["status"], gated.hits("/b/")) == ("pending", 0)
    finally:
        stack.http.post(f"{stack.url}/nodes/{node['name']}/resume").raise_for_status()
    assert stack.wait_final(waits, timeout=PATIENCE)["status"] == "finished"
    assert len(stack.job(runs)["attempts"]) == 1


def restart(stack: Stack) -> str:
    """The node's processes are killed, and `up` starts them again. The last heartbeat before that."""
    before = stack.ready["pids"]
    (node,) = nodes(stack)
    for name in ("scrapyd", "tailer"):
        stack.kill(name)
        wait_until(
            lambda name=name: stack.ready["pids"][name] != before[name], timeout=PATIENCE, what=f"a new {name}"
        )  # type: ignore[misc]  # mypy knows no lambda with a default
    wait_until(lambda: nodes(stack)[0]["heartbeat_at"] > node["heartbeat_at"], timeout=PATIENCE, what="a heartbeat")
    return str(node["heartbeat_at"])
