from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from machine import small_disk
from node import GRACE

pytestmark = pytest.mark.parametrize("node_fork", ["true", "false"], ids=["forked", "started"])


def test_an_attempt_runs_once_though_scrapyd_is_killed_and_it_is_posted_again(new_node: Callable[..., Any]) -> None:
    node = new_node().start()
    spec = node.spec("polite")
    folder = node.outbox / node.post(spec)["jobid"]
    node.wait_for((folder / "ready").exists)
    node.end(signal.SIGKILL)
    node.start()
    assert node.post(spec)["status"] == "ok"
    assert node.status()["running"] == 0  # what was left running holds no slot
    assert node.cancel(folder) == "running"
    node.wait_for((folder / "asked").exists)
    assert node.runs(folder) == 1
    node.wait_for(lambda: node.cancel(folder) is None)
    assert not (folder / "exit.json").exists()  # for the tailer to write: nobody saw it end


def test_one_left_running_is_held_to_its_limits_and_ends_with_the_next_scrapyd(new_node: Callable[..., Any]) -> None:
    node = new_node().start()
    overdue = node.run_until_ready("polite", timeout=1)
    stubborn, lasting = node.run_until_ready("stubborn"), node.run_until_ready("polite")
    node.end(signal.SIGKILL)
    node.start()
    assert node.cancel(stubborn) == "running"
    node.wait_for(lambda: node.cancel(stubborn) is None)
    node.wait_for((overdue / "asked").exists)
    assert not (lasting / "asked").exists()
    node.end(signal.SIGINT)
    assert (lasting / "asked").exists()


def test_no_moment_of_a_kill_makes_an_attempt_run_twice(new_node: Callable[..., Any], tmp_path: Path) -> None:
    lost = {"node.mark_started.after"}  # a mark, a free lock and no report: the tailer's to see
    unseen = {*lost, "node.write_exit.before"}
    points = ("write_spec.after", "queue.after", "mark_started.before", "mark_started.after")
    node = new_node(DISCOVERYBOT_CRASH_PLAN=str(tmp_path)).start()
    for point in [f"node.{point}" for point in (*points, "write_exit.before")]:
        (tmp_path / point).touch()
        spec = node.spec("quick")
        folder = node.post_and_be_killed(spec)
        node.start()
        assert node.post(spec)["status"] == "ok", point
        node.wait_until_idle()
        assert node.runs(folder) == (point not in lost), point
        assert (folder / "exit.json").exists() == (point not in unseen), point


def test_one_whose_process_id_was_never_noted_is_found_and_cancelled(
    new_node: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "node.note_pid.before").touch()
    node = new_node(DISCOVERYBOT_CRASH_PLAN=str(tmp_path)).start()
    folder = node.post_and_be_killed(node.spec("polite"))
    node.wait_for((folder / "ready").exists)
    node.start()
    assert node.cancel(folder) == "running"
    node.wait_for((folder / "asked").exists)


def test_the_end_of_scrapyd_ends_its_spiders(new_node: Callable[..., Any]) -> None:
    node = new_node().start()
    polite, stubborn = node.run_until_ready("polite"), node.run_until_ready("stubborn")
    waiting = [node.run("polite"), node.run("quick")]
    assert 0.8 * GRACE < node.end() < 10 * GRACE
    assert node.exit_of(polite)["stopped_by"] == "shutdown"
    assert node.exit_of(polite)["exit_code"] == 0
    assert (node.exit_of(stubborn)["stopped_by"], node.exit_of(stubborn)["signal"]) == ("shutdown", signal.SIGKILL)
    assert not (waiting[1] / "started").exists()
    node.start()
    assert node.exit_of(waiting[1])["exit_code"] == 0  # it waited for the next start


def test_without_a_password_there_is_no_start(new_node: Callable[..., Any]) -> None:
    node = new_node(SCRAPYD_PASSWORD="")
    with pytest.raises(AssertionError, match="SCRAPYD_PASSWORD is not set"):
        node.start()
    assert node.process.returncode == 1


def test_a_full_disk_costs_neither_the_end_of_an_attempt_nor_its_slot(
    new_node: Callable[..., Any], tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, "512k"):
        node = new_node(NODE_MIN_FREE_BYTES="0").start()
        (node.home / "node/outbox").rmdir()
        (node.home / "node/outbox").symlink_to(disk)
        busy = [node.run_until_ready("polite") for _ in range(3)]
        node.run("quick")
        fill(disk / "filler")
        for folder in busy:
            node.cancel(folder)
        assert [node.exit_of(folder)["stopped_by"] for folder in busy] == ["cancel"] * 3
        node.wait_until_idle()
        (disk / "filler").unlink()
        node.exit_of(node.run("quick"))
        node.end()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
