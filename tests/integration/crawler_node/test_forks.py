"""Crawls that are forked, and what becomes of them when the process they are forked from does not live."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest


def zygotes(node: Any, *, warm: bool = True) -> list[int]:
    """Process ids of the living ones: those that have a runner imported, or those that start what is not forked."""
    found = []
    for child in psutil.Process(node.process.pid).children():
        with suppress(psutil.NoSuchProcess):
            _, _, command = (" ".join(child.cmdline())).partition(" -m crawler.node.zygote")
            is_one = "crawler.node.zygote" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE
            if is_one and bool(command) == warm:
                found.append(child.pid)
    return found


def portrait(node: Any) -> dict[str, Any]:
    """What a forked or started process is like, by its own account."""
    folder = node.run("portrait")
    assert node.exit_of(folder)["exit_code"] == 0
    own: dict[str, Any] = json.loads((folder / "portrait.json").read_bytes())
    return own


@pytest.fixture
def node(new_node: Callable[..., Any]) -> Any:
    return new_node().start()


def test_our_warm_process_has_everything_imported_but_no_reactor_and_one_thread() -> None:
    code = """
import logging, sys, threading
from crawler.node import runner, zygote
runner.preload()
zygote.check_forkable()
assert threading.active_count() == 1
assert not logging.getLogger().handlers
needed = {"scrapy.crawler", "crawler.spiders.seo", "crawler.addon", "redis", "trafilatura", "re2", "encodings.idna"}
assert needed <= set(sys.modules), needed - set(sys.modules)
import twisted.internet.reactor
try:
    zygote.check_forkable()
except zygote.NotForkableError:
    print("refused")
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "refused\n"


def test_a_forked_process_is_like_a_started_one(node: Any, new_node: Callable[..., Any]) -> None:
    (zygote,) = zygotes(node)
    forked, again = portrait(node), portrait(node)
    starting = new_node(NODE_FORK="false").start()
    started = portrait(starting)
    assert not zygotes(starting)
    assert (forked["parent"], [started["parent"]]) == (zygote, zygotes(starting, warm=False))
    assert forked["chance"] != again["chance"]
    for own in (forked, started):
        assert own["leads"]
        names = [Path(name).name.partition(".started")[1] or Path(name).name for name in own["descriptors"].values()]
        assert names == ["null", "crawl.log", "crawl.log", ".started"]
    for fact in ("inherits", "folder", "signals", "blocked", "arguments", "handlers"):
        assert forked[fact] == started[fact], fact
    assert psutil.Process(zygote).num_threads() == 1


def test_the_spiders_are_listed_by_a_fork_too_and_without_one_by_a_process_of_its_own(
    new_node: Callable[..., Any],
) -> None:
    warm, starting, dying = (new_node(NODE_FORK=fork) for fork in ("true", "false", "true"))
    dying.home.mkdir()
    (dying.home / "no-zygote").touch()
    for node in (warm, starting, dying):
        node.start()
        node.wait_for((node.home / "node" / "catalog.json").exists)
    assert listers(warm) == zygotes(warm)
    assert listers(starting) == zygotes(starting, warm=False)
    assert listers(dying) == zygotes(dying, warm=False)
    spiders = [json.loads((node.home / "node" / "catalog.json").read_bytes()) for node in (warm, starting, dying)]
    assert spiders[0] == spiders[1] == spiders[2] != []


def test_a_lister_that_dies_in_a_fork_is_followed_by_one_that_is_started(new_node: Callable[..., Any]) -> None:
    node = new_node()
    node.home.mkdir()
    (node.home / "no-forked-listing").touch()
    node.start()
    node.wait_for((node.home / "node" / "catalog.json").exists)
    assert listers(node) == [*zygotes(node), *zygotes(node, warm=False)]
    assert portrait(node)["parent"] in zygotes(node)


def listers(node: Any) -> list[int]:
    """The parents of the processes that have listed the project's spiders."""
    return [int(line) for line in (node.home / "listers").read_text().splitlines()]


def test_exit_code_signal_and_use_are_the_kernels(node: Any) -> None:
    dead, left = node.run("dies"), node.run("exits")
    assert node.exit_of(dead)["signal"] == signal.SIGUSR1
    assert node.exit_of(left)["exit_code"] == 7
    for folder in (dead, left):
        assert node.exit_of(folder)["cpu_seconds"] > 0
        assert node.exit_of(folder)["peak_memory_bytes"] > 1 << 20


def test_crawls_outlive_their_zygote_in_their_slots_and_within_their_limits(node: Any) -> None:
    cancelled, stubborn = node.run_until_ready("polite"), node.run_until_ready("stubborn")
    (zygote,) = zygotes(node)
    limited = node.run_until_ready("polite", timeout=5)
    os.kill(zygote, signal.SIGKILL)
    waiting = node.run("quick")
    assert node.status()["running"] == 3
    assert not (waiting / "started").exists()
    (another,) = node.wait_for(lambda: [pid for pid in zygotes(node) if pid != zygote])
    assert node.cancel(cancelled) == "running"
    report = node.exit_of(cancelled)
    assert (report["stopped_by"], report["lost"]) == ("cancel", True)
    assert node.exit_of(waiting)["exit_code"] == 0
    assert node.cancel(stubborn) == "running"
    for folder, reason in ((stubborn, "cancel"), (limited, "timeout")):
        assert node.exit_of(folder)["stopped_by"] == reason
    node.wait_until_idle()
    assert portrait(node)["parent"] == another


def test_what_a_zygote_had_not_forked_when_it_died_is_started_once(node: Any) -> None:
    (zygote,) = zygotes(node)
    portrait(node)  # it is warm
    os.kill(zygote, signal.SIGSTOP)
    folders = [node.run("quick") for _ in range(3)]
    cancelled = node.run("quick")
    os.kill(zygote, signal.SIGKILL)
    for folder in folders:
        assert node.exit_of(folder)["exit_code"] == 0
        assert node.runs(folder) == 1
    node.exit_of(cancelled)
    node.wait_until_idle()


def test_one_that_is_cancelled_before_it_is_forked_never_runs(node: Any) -> None:
    (zygote,) = zygotes(node)
    portrait(node)  # it is warm
    os.kill(zygote, signal.SIGSTOP)
    folder = node.run("quick")
    node.wait_for((folder / "started").exists)
    assert node.cancel(folder) == "running"
    os.kill(zygote, signal.SIGKILL)
    report = node.exit_of(folder)
    assert report["stopped_by"] == "cancel"
    assert report["refused"]
    assert node.runs(folder) == 0


@pytest.mark.parametrize("moment", ["node.fork.before", "node.fork.after", "node.note_fork.before"])
def test_a_zygote_killed_around_a_fork_costs_no_slot_and_runs_nothing_twice(
    new_node: Callable[..., Any], tmp_path: Path, moment: str
) -> None:
    node = new_node(DISCOVERYBOT_CRASH_PLAN=str(tmp_path)).start()
    (tmp_path / moment).touch()
    folder = node.run("quick")
    report = node.exit_of(folder)
    assert not (tmp_path / moment).exists()
    node.wait_until_idle()
    assert node.runs(folder) == (moment != "node.note_fork.before")
    if moment == "node.fork.before":
        assert report["exit_code"] == 0  # nothing was forked, so it was started
    elif moment == "node.fork.after":
        assert report["lost"]
    else:
        assert report["signal"] == signal.SIGKILL
    assert forked_again(node)


def forked_again(node: Any) -> bool:
    return bool(node.wait_for(lambda: portrait(node)["parent"] in zygotes(node)))


def test_after_so_many_forks_a_new_zygote_comes_and_the_old_one_stays_for_its_crawls(
    new_node: Callable[..., Any],
) -> None:
    node = new_node(NODE_FORK_RENEW_AFTER="2").start()
    (old,) = zygotes(node)
    lasting = node.run_until_ready("polite")
    node.exit_of(node.run("quick"))
    (new,) = node.wait_for(lambda: [pid for pid in zygotes(node) if pid != old])
    node.wait_for(lambda: portrait(node)["parent"] != old)
    assert old in zygotes(node)
    node.cancel(lasting)
    report = node.exit_of(lasting)
    assert (report["exit_code"], report["lost"]) == (0, False)
    node.wait_for(lambda: old not in zygotes(node))
    assert new != old


def test_without_a_zygote_that_can_live_crawls_are_started_until_there_is_one(new_node: Callable[..., Any]) -> None:
    node = new_node()
    node.home.mkdir()
    (node.home / "no-zygote").touch()
    node.start()
    node.wait_for(lambda: "keep dying" in node.log())
    assert [portrait(node)["parent"]] == zygotes(node, warm=False)
    assert node.log().count("keep dying") == 1
    (node.home / "no-zygote").unlink()
    assert forked_again(node)


def test_a_zygote_ends_with_its_scrapyd_and_its_crawls_run_on_until_their_limit(new_node: Callable[..., Any]) -> None:
    node = new_node().start()
    limited, lasting = node.run_until_ready("polite", timeout=2), node.run_until_ready("polite")
    (zygote,) = zygotes(node)
    node.end(signal.SIGKILL)
    node.wait_for(lambda: not psutil.pid_exists(zygote) or psutil.Process(zygote).status() == psutil.STATUS_ZOMBIE)
    node.start()
    node.wait_for((limited / "asked").exists)
    assert (limited / "stopping").read_text() == "timeout"
    assert not (lasting / "asked").exists()
    assert not (lasting / "stopping").exists()
    assert node.cancel(lasting) == "running"
    node.wait_for((lasting / "stopping").exists)


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_reason_of_a_stop_is_written_before_the_signal(
    new_node: Callable[..., Any], tmp_path: Path, side: str
) -> None:
    node = new_node(DISCOVERYBOT_CRASH_PLAN=str(tmp_path)).start()
    folder = node.run_until_ready("polite")
    (tmp_path / f"node.note_stopping.{side}").touch()
    with suppress(httpx2.TransportError):
        node.cancel(folder)
    node.process.wait(60)
    assert (folder / "stopping").exists() == (side == "after")
    assert not (folder / "asked").exists()
    node.start()
    # what was asked is done all the same: the cancellation is repeated, or the grace is over
    if side == "before":
        assert node.cancel(folder) == "running"
    node.wait_for(lambda: node.cancel(folder) is None)
    assert (folder / "stopping").read_text() == "cancel"


def test_scrapyds_password_is_read_neither_from_its_process_nor_from_its_zygote(
    new_node: Callable[..., Any],
) -> None:
    node = new_node()
    node.forked = False
    node.start()
    code = """
import ctypes, subprocess, sys
from gateway.process import hide_process
ask = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
hide_process()
exec(ask)
sys.stdout.flush()
subprocess.run([sys.executable, "-c", ask])
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["0", "1"]  # the process itself, and what it executes
    assert "SCRAPYD_PASSWORD" in psutil.Process(node.process.pid).environ()
    for zygote in zygotes(node):
        assert "SCRAPYD_PASSWORD" not in psutil.Process(zygote).environ()
