"""A tailer is killed at rare steps: when it gives up an attempt that was not launched, or removes an old one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import StoreProcess
from tailer_node import Crawl, Node, eventually

from crawler.node.started_mark import StartedMark
from gateway.clock import utc_now
from gateway.contract.outbox import DEPLOYED, EXIT, NOTED, STARTED
from gateway.contract.records import Deployments, ExitReport, NotedDeployment, read_record
from gateway.jobs.job import Job
from gateway.jobs.outcome import decide

SIDES = ("before", "after")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


@pytest.fixture
def node(tmp_path: Path, plan: Path, mongo: StoreProcess, valkey: StoreProcess) -> Iterator[Node]:
    """A node that removes an attempt as soon as it is acknowledged. Its tailer is not started yet."""
    node = Node(tmp_path, mongo, valkey, NODE_KEEP_SECONDS="0", DISCOVERYBOT_CRASH_PLAN=str(plan))
    yield node
    node.kill_tailer()
    node.close()


def start_to_be_killed(node: Node, point: Path) -> None:
    """Start a tailer that dies at `point`; returns once it is gone."""
    point.touch()
    node.start_tailer()
    node.wait_for_tailer()
    assert not point.exists()


def can_be_launched(crawl: Crawl) -> bool:
    """Whether the attempt can be launched, found out as Scrapyd does. If so, it counts as launched."""
    mark = StartedMark.make(crawl.folder, utc_now())
    if mark is not None:
        mark.release()
    return mark is not None


def ended_as_stale(node: Node, crawl: Crawl) -> Job:
    job = node.ended(crawl)
    facts = job.attempts["1"].exit
    assert facts is not None
    assert (facts.refused, facts.lost, facts.started_at) == ("stale", False, None)
    assert decide(facts).retryable
    return job


@pytest.mark.parametrize("side", SIDES)
def test_an_attempt_whose_withdrawal_was_cut_short_ends_as_stale_and_can_be_launched_no_more(
    node: Node, plan: Path, side: str
) -> None:
    node.environment["NODE_KEEP_SECONDS"] = "3600"
    crawl = node.crawl(started=False)
    start_to_be_killed(node, plan / f"tailer.withdraw.{side}")
    assert not (crawl.folder / EXIT).exists()
    assert (crawl.folder / STARTED).exists() == (side == "after")
    if side == "after":
        assert not can_be_launched(crawl)
    node.start_tailer()
    job = ended_as_stale(node, crawl)
    assert job.started_at is None
    assert not can_be_launched(crawl)
    assert read_record(crawl.folder / EXIT, ExitReport) == job.attempts["1"].exit


def test_an_attempt_that_was_launched_after_all_is_not_withdrawn(node: Node, plan: Path) -> None:
    crawl = node.crawl(started=False)
    start_to_be_killed(node, plan / "tailer.withdraw.before")
    crawl.start()
    crawl.log_line("launched")
    node.start_tailer()
    eventually(lambda: node.stored_log(crawl) == crawl.log_file)
    crawl.end()
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    assert (facts.refused, facts.exit_code) == (None, 0)


@pytest.mark.parametrize("side", SIDES)
def test_a_removal_that_was_cut_short_is_finished_and_loses_nothing(node: Node, plan: Path, side: str) -> None:
    crawl = node.crawl()
    link = node.node_dir / "logs" / "default" / "seo" / f"{crawl.id}.log"
    link.parent.mkdir(parents=True)
    link.symlink_to(crawl.log_path)
    crawl.log_line("all there is")
    crawl.item(b'{"number":0}\n')
    log = crawl.log_file
    crawl.end()
    start_to_be_killed(node, plan / f"tailer.remove_attempt.{side}")
    assert crawl.folder.exists() == link.is_symlink() == (side == "before")
    node.start_tailer()
    assert_gone(node)
    assert not link.is_symlink()
    assert node.stored_log(crawl) == log
    assert [item.data for item in node.stored_items(crawl)] == [{"number": 0}]
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    assert not facts.lost


def test_what_is_left_in_the_middle_of_a_removal_goes_with_the_next_start(node: Node) -> None:
    crawl = node.crawl()
    crawl.log_line("half of it")
    crawl.end()
    # `Outbox.remove` first renames the folder, then removes it file by file
    left = crawl.folder.rename(node.outbox / f".removed-{crawl.id}")
    (left / STARTED).unlink()
    node.start_tailer()
    assert_gone(node)
    assert node.jobs.get(crawl.id.job_id).attempts["1"].exit is None


@pytest.mark.parametrize("side", SIDES)
def test_an_old_log_whose_removal_was_cut_short_goes_with_the_next_start(node: Node, plan: Path, side: str) -> None:
    old = node.node_dir / "logs" / "shop" / "offers" / "plain.log"
    old.parent.mkdir(parents=True)
    old.write_text("plain\n")
    os.utime(old, (0, 0))
    start_to_be_killed(node, plan / f"tailer.remove_plain_logs.{side}")
    assert old.exists() == (side == "before")
    node.start_tailer()
    eventually(lambda: not old.exists())


@pytest.mark.parametrize("side", SIDES)
def test_a_deployment_that_was_half_noted_is_noted_by_the_next(node: Node, plan: Path, side: str) -> None:
    told = Deployments(deployments=[NotedDeployment(number=7, project="shop", version="removed-since")])
    node.node_dir.mkdir(parents=True, exist_ok=True)
    (node.node_dir / DEPLOYED).write_text(told.model_dump_json())
    start_to_be_killed(node, plan / f"tailer.note_deployment.{side}")
    node.start_tailer()
    eventually(lambda: (noted := read_record(node.node_dir / NOTED, NotedDeployment)) and noted.number == 7)


def assert_gone(node: Node) -> None:
    """Check that no attempt is left on the node, and that its heartbeat says so."""
    eventually(lambda: not list(node.outbox.iterdir()))
    eventually(lambda: (found := node.nodes.get(node.name)) and found.present == [])
