"""Limits that are held from outside of a spider's process, and all that has to end with it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from forms import in_full
from node import TurnedClock

LOG_LIMIT = 2 << 20


def browser_of(folder: Path) -> int:
    return int((folder / "browser").read_text())


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_browser_in_sessions_of_its_own_is_killed_with_its_spider(node: Any) -> None:
    folder = node.run("browses", timeout=1)
    node.wait_for((folder / "ready").exists)
    assert is_running(browser_of(folder))
    report = node.exit_of(folder)
    assert (report["stopped_by"], report["signal"]) == ("timeout", signal.SIGKILL)
    node.wait_for(lambda: not is_running(browser_of(folder)))


def test_a_browser_that_its_spider_left_running_is_ended(node: Any) -> None:
    folder = node.run("leaves_a_browser")
    assert node.exit_of(folder)["exit_code"] == 0
    node.wait_for(lambda: not is_running(browser_of(folder)))


def test_a_daemon_that_hides_from_its_spider_ends_with_it(node: Any) -> None:
    folder = node.run("leaves_a_daemon")
    report = node.exit_of(folder)
    assert report["exit_code"] == 0
    assert not is_running(int((folder / "daemon").read_text())), "it ends before its end is told"


def test_one_that_stops_its_minder_ends_all_the_same(node: Any) -> None:
    assert node.exit_of(node.run("stops_its_minder"))["exit_code"] == 0


def test_what_is_left_among_temporary_files_goes_with_its_attempt(node: Any) -> None:
    folder = node.run("litters")
    node.exit_of(folder)
    litter = Path((folder / "litter").read_text())
    assert litter.is_relative_to(folder)
    node.wait_for(lambda: not litter.parent.exists())


def test_one_with_too_many_processes_is_stopped_and_they_with_it(node: Any) -> None:
    folder = node.run("crowds")
    report = node.exit_of(folder)
    assert report["stopped_by"] == "processes"
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", "654"] not in commands


def test_the_browsers_memory_is_the_spiders(node: Any) -> None:
    folder = node.run("browses_greedily")
    report = node.exit_of(folder)
    assert report["stopped_by"] == "memory"
    node.wait_for(lambda: not is_running(browser_of(folder)))


@in_full("other limits here")
def test_one_whose_files_take_twice_what_is_kept_is_stopped(new_node: Callable[..., Any]) -> None:
    node = new_node(FILES_MAX_BYTES=str(1 << 20), CRAWL_STOP_GRACE="10").start()
    for folder in [node.run(spider) for spider in ("hoards", "hoards_without_a_name")]:
        report = node.exit_of(folder)
        assert (report["stopped_by"], report.get("signal")) == ("files", None)


@pytest.mark.parametrize("grace", ["0.5", "30"])
def test_one_that_prints_without_end_is_stopped_while_its_log_is_small(
    new_node: Callable[..., Any], grace: str
) -> None:
    node = new_node(CRAWL_MAX_LOG_BYTES=str(LOG_LIMIT), CRAWL_STOP_GRACE=grace).start()
    began = time.monotonic()
    folder = node.run("prints")
    report = node.exit_of(folder)
    assert (report["stopped_by"], report["signal"]) == ("log", signal.SIGKILL)
    assert time.monotonic() - began < 25, "it is not given the grace to print on"
    # the limit, a quarter of it, and what is printed between two looks
    assert LOG_LIMIT < (folder / "crawl.log").stat().st_size < 40 * LOG_LIMIT


@in_full("other limits here")
def test_a_clock_that_is_turned_by_an_hour_ends_no_crawl_and_saves_none(
    new_node: Callable[..., Any], tmp_path: Path
) -> None:
    clock = TurnedClock(tmp_path / "clock")
    node = new_node(**clock.environment()).start()
    stubborn, lasting = node.run_until_ready("stubborn"), node.run_until_ready("polite")
    clock.turn(-3600)
    assert node.cancel(stubborn) == "running"
    report = node.exit_of(stubborn)
    assert (report["stopped_by"], report["signal"]) == ("cancel", signal.SIGKILL)
    clock.turn(2 * 3600)
    assert node.answers(), "it has looked at the time"
    assert node.cancel(lasting) == "running"
    assert node.exit_of(lasting)["stopped_by"] == "cancel"
