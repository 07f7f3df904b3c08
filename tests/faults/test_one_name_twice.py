"""Two machines have the same name, each with a folder of its own: one is the node, the other is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short, in_full
from nodes import ExtraNode, nodes_beside
from sites.server import Site
from stack import Stack, running_stack, wait_until

pytestmark = in_full("a name that is taken in tailer/test_names.py and services/test_dispatch.py")

ROUNDS = full_or_short(5, 1)
CRAWLS = 6
#: Seconds within which others' crawls begin meanwhile.
PROMPT = full_or_short(5.0, 20.0)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    # the stack's own node has too little room for all
    with running_stack(tmp_path / "home", NODE_SLOTS="1") as stack:
        yield stack


@pytest.mark.stack
@pytest.mark.timeout(300)
def test_a_second_machine_of_the_same_name_costs_nobody_anything(stack: Stack) -> None:
    with nodes_beside(stack, "twice") as (first,), Site() as site, CrawlVerifier(stack, site) as verifier:
        second = ExtraNode(stack, "again", NODE_NAME="twice")
        try:
            second.start()
            wait_until(
                lambda: "two machines have the name twice" in stack.check("node_states")["message"],
                what="the check",
            )
            slowest = 0.0
            for _ in range(ROUNDS):
                slowest = max(slowest, verifier.begun(CRAWLS))
                verifier.wait()
            # each of its own outbox, and nothing but that
            ran = {path.name for path in first.outbox.iterdir()}
            assert ran
            assert not list(second.outbox.iterdir())
            # its next heartbeat may be late on a busy machine
            wait_until(lambda: second.url in _told(stack)["why"], what="a word about the second machine")
            assert _told(stack)["url"] == first.url
        finally:
            second.stop()
        assert slowest < PROMPT
        record(
            "One name on two machines", f"{len(verifier.crawls)} crawls beside the second",
            recovered=slowest, **verifier.verdict(),
        )  # fmt: skip


def _told(stack: Stack) -> dict[str, Any]:
    """What is said of the node."""
    nodes = stack.http.get(f"{stack.url}/nodes").json()["nodes"]
    told: dict[str, Any] = next(node for node in nodes if node["name"] == "twice")
    return told
