"""Scrapyd is killed in mid-crawl, and a whole node for good, in a stack of three: its work goes on elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawl_verifier import Crawl, CrawlVerifier
from fault_table import record
from forms import full_or_short, in_full
from nodes import ExtraNode, nodes_beside, own_node
from sites.gated import GatedSite
from stack import Stack, running_stack, wait_until

pytestmark = in_full("a node that dies in services/test_reconciliation.py and e2e/test_scaled_nodes.py")

#: Of each node.
SLOTS = 3
#: Each time: more than three nodes can take at once.
CRAWLS = 12
ROUNDS = full_or_short(3, 1)
#: Seconds; several heartbeats, and more than a machine stands still that is busy with other tests.
DEAD_AFTER = full_or_short(12, 30)
PATIENCE = 120.0


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    variables = {
        "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2",
        "NODE_DEAD_AFTER": str(DEAD_AFTER),
        "NODE_SLOTS": str(SLOTS),
    }
    with running_stack(tmp_path / "home", **variables) as stack:
        yield stack


@pytest.mark.stack
@pytest.mark.timeout(600)
def test_the_work_of_a_node_that_died_is_done_by_the_others(stack: Stack) -> None:
    with (
        nodes_beside(stack, "north", "south", NODE_SLOTS=str(SLOTS)) as nodes,
        GatedSite() as site,
        CrawlVerifier(stack, site) as verifier,
    ):
        waited = []
        for number in range(ROUNDS):
            if number:
                replace(nodes[(number - 1) % 2])
            waited.append(lose(nodes[number % 2], verifier, site))
        record(
            "A node dies for good, another one's Scrapyd in mid-crawl", f"{ROUNDS} × 2 SIGKILLs, 3 nodes",
            recovered=max(waited), **verifier.verdict(retried=True),
        )  # fmt: skip


def replace(node: ExtraNode) -> None:
    """By a machine with the same name, and what was on the disk of the first one."""
    node.start()
    node.wait_until_ready()


def lose(victim: ExtraNode, verifier: CrawlVerifier, site: GatedSite) -> float:
    """All that ran on the victim runs elsewhere, nothing else is begun anew; seconds until the first one does."""
    stack = verifier.stack
    site.shut()
    crawls = verifier.begin(CRAWLS)
    wait_until(lambda: site.under_way == 3 * SLOTS, timeout=PATIENCE, what="crawls in all slots")
    placed = {crawl: nodes_of(verifier, crawl) for crawl in crawls}
    # a node that was too busy to take a crawl is among its nodes, too
    running = [crawl for crawl in crawls if stack.status(verifier.jobs[crawl.number])["status"] == "running"]
    interrupted = [crawl for crawl in running if placed[crawl][-1] == victim.name]
    assert Counter(placed[crawl][-1] for crawl in running)[own_node(stack)["name"]] == SLOTS
    assert len(interrupted) == SLOTS
    stack.kill("scrapyd")
    victim.kill()
    killed = time.monotonic()
    site.open()
    waited = verifier.wait_for_visit(interrupted, after=killed)
    verifier.wait()
    for crawl in crawls:
        nodes = nodes_of(verifier, crawl)
        assert nodes[-1] != victim.name
        if crawl in running:
            assert (nodes != placed[crawl]) == (crawl in interrupted)
    return waited


def nodes_of(verifier: CrawlVerifier, crawl: Crawl) -> list[str]:
    """Of each of its attempts."""
    return [attempt["node"] for attempt in verifier.stack.job(verifier.jobs[crawl.number])["attempts"]]
