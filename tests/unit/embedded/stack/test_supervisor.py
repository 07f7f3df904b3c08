from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stores import free_port

from embedded.stack.supervisor import STOP_SECONDS
from gateway.process import NEWER_STORES

if TYPE_CHECKING:
    from conftest import Stack

    Start = Callable[[list[dict[str, Any]]], Stack]

SLEEPS = "import time; time.sleep(600)"
IGNORES_SIGTERM = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ignores it', flush=True)\n"
    "time.sleep(600)\n"
)
SAYS_WHEN_IT_STOPS = (
    "import signal\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    "print('waits', flush=True)\n"
    "signal.sigwait({signal.SIGTERM})\n"
    "print('going', flush=True)\n"
)
FORKS = (
    "import os, time; from pathlib import Path\n"
    "pid = os.fork()\n"
    "pid and Path('grandchild').write_text(str(pid))\n"
    "time.sleep(600)"
)
#: A parent whose child leads a session of its own, as a spider of Scrapyd's does.
HAS_A_SPIDER = (
    "import os, signal, time; from pathlib import Path\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    "pid = os.fork()\n"
    "pid or (os.setsid(), signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}))\n"
    "pid and Path('spider').write_text(str(pid))\n"
    "signal.sigwait({signal.SIGTERM}) if pid else time.sleep(600)\n"
)


def _listens(port: int) -> str:
    return f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"


@pytest.fixture
def port() -> int:
    return free_port()


def test_a_process_waits_for_those_it_needs(start: Start, port: int) -> None:
    connects = f"import socket, time; socket.create_connection(('127.0.0.1', {port})); time.sleep(600)"
    stack = start(
        [
            {"name": "client", "code": connects, "needs": ["server"]},
            {"name": "server", "code": "import time; time.sleep(0.5)\n" + _listens(port), "port": port},
        ]
    )
    assert set(stack.pids()) == {"client", "server"}
    assert "ended" not in stack.log


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_in_reverse_order_and_leaves_nothing(start: Start, signum: signal.Signals) -> None:
    stack = start([{"name": name, "code": SAYS_WHEN_IT_STOPS} for name in ("first", "second", "third")])
    stack.pids()
    stack.until(lambda: stack.log.count("| waits") == 3)
    stack.signal(signum)
    assert stack.ended() == 0
    stops = [line.split()[1] for line in stack.log.splitlines() if line.endswith("| going")]
    assert stops == ["third", "second", "first"]
    assert not stack.survivors()


def test_what_dies_is_started_again(start: Start) -> None:
    stack = start([{"name": "mortal", "code": SLEEPS}, {"name": "other", "code": SLEEPS}])
    before = stack.pids()
    os.kill(before["mortal"], signal.SIGKILL)
    stack.restarted("mortal", before["mortal"])
    assert stack.pids()["other"] == before["other"]
    assert "mortal was killed by SIGKILL; starting it again in 0.2 s" in stack.log


def test_the_pause_doubles_up_to_the_limit_for_one_that_keeps_dying(start: Start) -> None:
    stack = start([{"name": "steady", "code": SLEEPS}, {"name": "mortal", "code": SLEEPS}])
    for pause in ("0.2", "0.4", "0.8", "1.0"):
        pid = stack.until(lambda: stack.pids().get("mortal"))
        os.kill(pid, signal.SIGKILL)
        stack.until(lambda pause=pause: f"starting it again in {pause} s" in stack.log)
        stack.restarted("mortal", pid)


def test_the_rest_of_a_dead_group_goes_before_its_successor_starts(start: Start, tmp_path: Path) -> None:
    stack = start([{"name": "forks", "code": FORKS}])
    old = stack.pids()["forks"]
    grandchild = int(stack.until(lambda: (f := tmp_path / "grandchild").exists() and f.read_text()))
    stack.pids()
    os.kill(old, signal.SIGKILL)
    stack.restarted("forks", old)
    assert grandchild not in {one.pid for one in stack.survivors()}


def test_one_that_does_not_stop_is_killed_after_its_grace(start: Start) -> None:
    stack = start([{"name": "deaf", "code": IGNORES_SIGTERM, "grace": 0.3}])
    stack.pids()
    stack.until(lambda: "| ignores it" in stack.log)
    stack.signal(signal.SIGTERM)
    assert stack.ended() == 0
    assert not stack.survivors()


@pytest.mark.parametrize("hangs", ["deaf", "stopped"])
def test_a_stack_all_of_whose_parts_hang_is_gone_after_the_time_it_has_to_stop(
    start: Start, hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP_SECONDS", "2")
    names = ["redis", "mongo", "scrapyd", "tailer", "worker", "beat", "gateway"]
    rows = [
        {
            "name": name,
            "code": IGNORES_SIGTERM,
            "grace": 15 if name == "scrapyd" else 10,
            "goes_last": name in names[:2],
        }
        for name in names
    ]
    stack = start(rows)
    pids = stack.pids()
    stack.until(lambda: stack.log.count("| ignores it") == len(names))
    if hangs == "stopped":
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    stack.signal(signal.SIGINT)
    assert stack.ended() == 0
    # the shortest grace is five times as long
    assert time.monotonic() - began < 9
    assert not stack.survivors()


def test_users_wait_less_than_fifteen_seconds_for_that() -> None:
    assert STOP_SECONDS <= 13, "killing what is left takes a moment, too"


def test_stores_go_when_all_others_are_gone(start: Start) -> None:
    stack = start(
        [
            {"name": "store", "code": SAYS_WHEN_IT_STOPS, "goes_last": True},
            {"name": "deaf", "code": IGNORES_SIGTERM, "grace": 2},
        ]
    )
    stack.pids()
    stack.until(lambda: "| waits" in stack.log and "| ignores it" in stack.log)
    stack.signal(signal.SIGTERM)
    assert stack.ended() == 0
    assert stack.log.index("deaf did not stop") < stack.log.index("stopping store")


def test_a_second_ctrl_c_kills_at_once(start: Start) -> None:
    stack = start([{"name": "deaf", "code": IGNORES_SIGTERM, "grace": 600}])
    stack.pids()
    stack.until(lambda: "| ignores it" in stack.log)
    stack.signal(signal.SIGINT)
    stack.until(lambda: "stopping deaf" in stack.log)
    time.sleep(0.6)  # closer together, they count as one
    stack.signal(signal.SIGINT)
    assert stack.ended() == 0
    assert not stack.survivors()


def test_nothing_outlives_a_killed_supervisor(start: Start) -> None:
    stack = start([{"name": "deaf", "code": IGNORES_SIGTERM}, {"name": "forks", "code": SLEEPS}])
    stack.pids()
    stack.until(lambda: "| ignores it" in stack.log)
    stack.signal(signal.SIGKILL)
    stack.ended()
    stack.until(lambda: not stack.survivors())


def test_an_orphaned_spider_runs_on_and_is_ended_with_the_stack(start: Start, tmp_path: Path) -> None:
    stack = start([{"name": "scrapyd", "code": HAS_A_SPIDER}])
    old = stack.pids()["scrapyd"]
    spider = int(stack.until(lambda: (f := tmp_path / "spider").exists() and f.read_text()))
    stack.pids()
    os.kill(old, signal.SIGKILL)
    stack.restarted("scrapyd", old)
    assert spider in {one.pid for one in stack.survivors()}
    stack.signal(signal.SIGTERM)
    assert stack.ended() == 0
    assert not stack.survivors()


def test_a_stack_that_cannot_start_says_why_and_gives_up(start: Start) -> None:
    stack = start(
        [{"name": "fine", "code": SLEEPS}, {"name": "broken", "code": "raise SystemExit('no such thing')", "port": 1}]
    )
    assert stack.ended() == 1
    assert "giving up. Its last lines:\n" in stack.log
    assert "broken | no such thing" in stack.log
    assert not stack.survivors()


def test_a_process_that_refuses_its_stores_is_started_once(start: Start) -> None:
    stack = start([{"name": "old", "code": f"print('too new'); raise SystemExit({NEWER_STORES})", "port": 1}])
    assert stack.ended() == 1
    assert stack.log.count("starting old") == 1
    assert f"old ended with exit code {NEWER_STORES}: giving up. Its last lines:\n" in stack.log
    assert "old | too new" in stack.log


def test_what_is_awaited_is_said_when_it_takes_long_and_not_before(start: Start, port: int) -> None:
    slow = "import time; time.sleep(600)"
    stack = start([{"name": "slow", "code": slow, "port": port}])
    began = time.monotonic()
    stack.until(lambda: "waiting for slow: nothing listens on" in stack.log)
    assert time.monotonic() - began > 1.5


def test_any_output_reaches_the_log(start: Start) -> None:
    code = "import sys, time; sys.stdout.buffer.write(b'x' * 300_000 + b'\\n\\xff\\ntorn'); sys.stdout.flush()"
    stack = start([{"name": "talks", "code": code + "; time.sleep(0.5)"}, {"name": "steady", "code": SLEEPS}])
    stack.until(lambda: "| torn" in stack.log)
    assert "x" * 300_000 + "\n" in stack.log
    assert "| \N{REPLACEMENT CHARACTER}\n" in stack.log
