"""Nodes that cannot do as they are asked: one that refuses all by its own fault, and two whose clocks are off."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawl_verifier import Crawl, CrawlVerifier
from fault_table import record
from forms import full_or_short, in_full
from node import TurnedClock
from nodes import nodes_beside, own_node
from sites.gated import GatedSite
from sites.server import Site
from stack import Stack, running_stack, wait_until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(600),
    in_full("what a node refuses in services/test_node_health.py"),
]

SLOTS = 3
CRAWLS = full_or_short(30, 6)
ROUNDS = full_or_short(5, 1)
#: Seconds that a clock is off.
OFF = 600
#: Seconds within which crawls begin beside such nodes.
BEGUN_WITHIN = full_or_short(5.0, 20.0)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("unfit") / "home", NODE_SLOTS=str(SLOTS)) as stack:
        yield stack


def test_what_a_node_refuses_its_neighbour_runs(stack: Stack, site: Site) -> None:
    # the emptiest, so that it is asked first
    with nodes_beside(stack, "sick", NODE_SLOTS="50") as (sick,), CrawlVerifier(stack, site) as verifier:
        change_queue(sick.home / "node", "ALTER TABLE spider_queue RENAME TO elsewhere")
        waited = [verifier.begun() for _ in range(CRAWLS)]
        verifier.wait()
        crawls = list(verifier.crawls)
        assert {name for crawl in crawls for name in nodes_of(verifier, crawl)} == {own_node(stack)["name"]}
        told = next(node for node in nodes(stack) if node["name"] == "sick")
        assert told["failures"], told
        assert "sick (" in stack.check("node_states")["message"]
        change_queue(sick.home / "node", "ALTER TABLE elsewhere RENAME TO spider_queue")
        record(
            "A refusing node", f"{CRAWLS} crawls beside it, the emptiest of two",
            recovered=max(waited), **verifier.verdict(),
        )  # fmt: skip
    assert max(waited) < BEGUN_WITHIN, waited


def test_nodes_whose_clocks_are_ten_minutes_off_run_crawls_like_others(stack: Stack, tmp_path: Path) -> None:
    own = own_node(stack)["name"]
    ahead, behind = (TurnedClock(tmp_path / str(seconds), seconds).environment() for seconds in (OFF, -OFF))
    with (
        nodes_beside(stack, "ahead", NODE_SLOTS=str(SLOTS), **ahead),
        nodes_beside(stack, "behind", NODE_SLOTS=str(SLOTS), **behind),
        GatedSite() as site,
        CrawlVerifier(stack, site) as verifier,
    ):
        stack.http.post(f"{stack.url}/nodes/{own}/drain").raise_for_status()
        waited = []
        for _ in range(ROUNDS):
            site.shut()
            asked = time.monotonic()
            verifier.begin(2 * SLOTS)
            wait_until(lambda: site.under_way == 2 * SLOTS, timeout=60, what="crawls in all slots")
            waited.append(time.monotonic() - asked)
            site.open()
            verifier.wait()
        told = stack.check("clocks")
        assert told["message"] == f"different from MongoDB's clock: ahead {OFF} s ahead, behind {OFF} s behind"
        used = Counter(name for crawl in verifier.crawls for name in nodes_of(verifier, crawl))
        stack.http.post(f"{stack.url}/nodes/{own}/resume").raise_for_status()
        assert used.keys() == {"ahead", "behind"}
        assert all(node["failures"] == 0 for node in nodes(stack) if node["name"] in used)
        record(
            "A node ten minutes off", f"one ahead, one behind, {len(verifier.crawls)} crawls",
            recovered=max(waited), **verifier.verdict(),
        )  # fmt: skip
    assert max(waited) < BEGUN_WITHIN, waited


def change_queue(node: Path, statement: str) -> None:
    """Of Scrapyd, which finds no queue, or finds it again."""
    database = node / "dbs" / "default.db"
    wait_until(database.exists, what="Scrapyd's queue")
    connection = sqlite3.connect(database)
    with connection:
        connection.execute(statement)
    connection.close()


def nodes(stack: Stack) -> list[dict[str, object]]:
    found: list[dict[str, object]] = stack.http.get(f"{stack.url}/nodes").raise_for_status().json()["nodes"]
    return found


def nodes_of(verifier: CrawlVerifier, crawl: Crawl) -> list[str]:
    """Of each of its attempts."""
    return [attempt["node"] for attempt in verifier.stack.job(verifier.jobs[crawl.number])["attempts"]]
