"""A spider puts other things in the place of its files. Only its own job lacks what cannot be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from forms import in_full
from hostile import KINDS, fill_tree, plant
from stores import StoreProcess
from tailer_node import Crawl, Node, eventually

from gateway.contract.outbox import (
    ACTIVE,
    EXIT,
    ITEMS,
    LOG,
    PROGRESS,
    REPORT,
    REQUESTS,
    SHIPPED,
    SPEC,
    STARTED,
    STOPPING,
    remove_tree,
)
from gateway.contract.records import ExitReport
from gateway.jobs.outcome import decide

TailingNode = Callable[..., AbstractContextManager[Node]]
NAMES = (LOG, ITEMS, REQUESTS, PROGRESS, ACTIVE, REPORT, STOPPING, EXIT, SHIPPED, STARTED, SPEC)
#: Seconds within which the lines and items of other crawls arrive meanwhile.
PROMPT = 30.0
#: Seconds that nothing may be blocked. It was more than twice as long when a look at such a log took 6 s of CPU time.
NO_BLOCKAGE = 10.0
#: Bytes of a log. Its end is cut off at twice this size.
MAX_LOG = 1 << 20
SECRET = "a secret of the process that others look at"


@pytest.fixture
def node(tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess) -> object:
    with tailing_node(tmp_path, mongo, valkey, CRAWL_MAX_LOG_BYTES=str(MAX_LOG)) as running:
        yield running


def hostile_crawl(node: Node, name: str, kind: str) -> Crawl:
    crawl = node.crawl()
    crawl.log_line("before")
    crawl.item(b'{"number":0}\n')
    plant(crawl.folder / name, kind)
    return crawl


def assert_ships(node: Node, crawl: Crawl) -> None:
    """Check that lines and items which are written now arrive soon."""
    crawl.log_line("meanwhile")
    crawl.item(b'{"number":1}\n')
    eventually(
        lambda: node.stored_log(crawl) == crawl.log_file and len(node.stored_items(crawl)) == crawl.items,
        timeout=PROMPT,
    )  # fmt: skip


def facts_of(node: Node, crawl: Crawl) -> ExitReport:
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    return facts


def lives(node: Node) -> bool:
    """Whether the node still sends heartbeats."""

    def beat() -> datetime:
        found = node.nodes.get(node.name)
        assert found is not None
        return found.heartbeat_at

    before = beat()
    return eventually(lambda: beat() > before)


def test_whatever_lies_in_the_place_of_a_file_the_attempt_ends_and_others_are_shipped(node: Node) -> None:
    neighbour = node.crawl()
    # all kinds at once, because the end of each takes a while
    hostile = {(name, kind): hostile_crawl(node, name, kind) for name in NAMES for kind in KINDS}
    assert_ships(node, neighbour)
    for crawl in hostile.values():
        crawl.end()
    assert_ships(node, neighbour)
    for (name, kind), crawl in hostile.items():
        facts = facts_of(node, crawl)
        assert (name in (facts.items_lost or ""), name in (facts.log_lost or "")) == (
            name == ITEMS, name == LOG and kind != "file without end"
        ), (name, kind)  # fmt: skip
        assert not facts.lost, "that would be its node's fault"
        assert len(node.stored_log(crawl)) <= 2 * MAX_LOG
        assert b"PATH=" not in node.stored_log(crawl)
    assert_ships(node, neighbour)
    assert lives(node)
    neighbour.end()
    assert node.ended(neighbour).attempts["1"].exit


@in_full("other files here")
def test_a_log_of_millions_of_lines_holds_nobody_up(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    with tailing_node(tmp_path, mongo, valkey) as node:
        noisy, neighbour = node.crawl(), node.crawl()
        assert_ships(node, neighbour)
        noisy.log(b"\n" * (12 << 20))
        eventually(lambda: node.stored_log(noisy))
        began = time.monotonic()
        assert_ships(node, neighbour)
        neighbour.end()
        node.ended(neighbour)
        assert time.monotonic() - began < NO_BLOCKAGE


def test_a_job_whose_items_cannot_be_read_has_those_from_before_and_says_so(node: Node) -> None:
    crawl = node.crawl()
    crawl.item(b'{"number":0}\n')
    eventually(lambda: node.stored_items(crawl))
    (crawl.folder / ITEMS).unlink()
    os.mkfifo(crawl.folder / ITEMS)
    crawl.end()
    facts = facts_of(node, crawl)
    assert facts.items_lost == "items.jsonl is a FIFO"
    outcome = decide(facts)
    assert (outcome.status, outcome.retryable) == ("error", False)
    assert outcome.message == "its items could not be read on the node: items.jsonl is a FIFO"
    assert len(node.stored_items(crawl)) == 1


def test_items_that_were_cut_after_they_were_read_are_missed(node: Node) -> None:
    crawl = node.crawl()
    crawl.item(b'{"number":0}\n')
    eventually(lambda: node.stored_items(crawl))
    os.truncate(crawl.folder / ITEMS, 3)
    crawl.end()
    assert facts_of(node, crawl).items_lost == "items.jsonl was cut to 3 bytes when 13 were read"


def test_a_log_that_becomes_a_link_ends_where_it_was_a_file(node: Node, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("somebody else's\n" * 100)
    crawl = node.crawl()
    crawl.log_line("before")
    log = crawl.log_file
    eventually(lambda: node.stored_log(crawl) == log)
    crawl.log_path.unlink()
    crawl.log_path.symlink_to(tmp_path / "secret")
    crawl.end()
    assert facts_of(node, crawl).log_lost == "crawl.log is a link"
    assert node.jobs.get(crawl.id.job_id).attempts["1"].log_end == len(log)
    assert node.stored_log(crawl) == log


def test_a_folder_that_becomes_a_link_is_left_alone(node: Node, tmp_path: Path) -> None:
    other = node.crawl()
    crawl = node.crawl()
    crawl.folder.rename(tmp_path / "away")
    crawl.folder.symlink_to(other.folder)
    assert_ships(node, other)
    other.end()
    node.ended(other)
    assert node.stored_log(crawl) == b""


@contextmanager
def closing_tree(folder: Path) -> Iterator[None]:
    """Remove the tree also if the test fails: it is too deep for pytest."""
    try:
        yield
    finally:
        remove_tree(folder)


def test_a_hostile_tree_goes_when_its_time_has_come_and_nothing_else_does(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    with (
        tailing_node(tmp_path / "home", mongo, valkey, NODE_KEEP_SECONDS="0") as node,
        closing_tree(node.outbox),
    ):
        neighbour = node.crawl()
        crawl = node.crawl()
        fill_tree(crawl.folder, depth=1500, files=20_000)
        for link in (crawl.folder / "link", crawl.folder / "shut" / "link"):
            link.symlink_to(tmp_path / "kept")
        crawl.end()
        node.ended(crawl)
        while list(node.outbox.iterdir()) != [neighbour.folder]:
            assert_ships(node, neighbour)
        assert (tmp_path / "kept" / "file").exists()
        assert lives(node)


def test_a_record_of_requests_that_no_crawl_of_ours_writes_is_shipped_as_far_as_it_may_be(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    with tailing_node(tmp_path, mongo, valkey, REQUESTS_MAX_BYTES="100000") as node:
        endless, vast = node.crawl(), node.crawl()
        line = b'{"url":"http://site/"}\n'
        endless.request(line + b"x" * 200_000)
        vast.request(line * 50_000)
        for crawl in (endless, vast):
            crawl.end()
            node.ended(crawl)
        assert node.stored_requests(endless) == line
        assert 100_000 <= len(node.stored_requests(vast)) <= 165_536
