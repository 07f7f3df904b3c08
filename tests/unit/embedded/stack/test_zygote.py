"""Processes of the stack that are forked from one that has imported what they need."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from conftest import Stack

    Start = Callable[[list[dict[str, Any]], list[str]], Stack]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere orphans are not the supervisor's")

SLEEPS = "import time; time.sleep(600)"
#: What it is to itself, in a file.
PORTRAIT = """
import json, os, sys, threading, time
from pathlib import Path
print("talks")
sys.stderr.write("mutters\\n")
Path("portrait").write_text(json.dumps({
    "name": __name__, "argv": sys.argv, "warm": "colorsys" in sys.modules, "told": os.environ["TOLD"],
    "cwd": os.getcwd(), "descriptors": sorted(map(int, os.listdir("/dev/fd")))[:-1], "stdin": sys.stdin.read(),
}))
"""


def forked(name: str, code: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "code": code, "forkable": True, **more}


def zygote(stack: Stack) -> psutil.Process:
    return next(child for child in stack.process.children() if child.cmdline()[0] == "discoverybot: zygote")


def test_a_fork_is_as_one_that_was_started(start: Start, tmp_path: Path) -> None:
    stack = start([forked("painter", PORTRAIT + SLEEPS, env={"TOLD": "so"})], ["colorsys"])
    pid = stack.pids()["painter"]
    stack.until((tmp_path / "portrait").exists)
    portrait = json.loads(stack.until((tmp_path / "portrait").read_text))
    assert portrait == {
        "name": "__main__",
        "argv": [str(tmp_path / "painter.py"), "an argument"],
        "warm": True,
        "told": "so",
        "cwd": str(tmp_path),
        "descriptors": [0, 1, 2],
        "stdin": "",
    }
    stack.until(lambda: "painter | talks" in stack.log and "painter | mutters" in stack.log)
    assert psutil.Process(pid).ppid() == stack.process.pid
    assert (os.getsid(pid), os.getpgid(pid), psutil.Process(pid).cmdline()[0]) == (pid, pid, "discoverybot: painter")


def test_how_it_ended_is_known(start: Start) -> None:
    ends = {
        "plainly": ("print('done')", "ended with exit code 0"),
        "with_a_code": ("import sys; sys.exit(3)", "ended with exit code 3"),
        "with_a_word": ("raise SystemExit('no more')", "ended with exit code 1"),
        "with_an_error": ("raise ValueError('what')", "ended with exit code 1"),
        "by_a_signal": ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        "after_its_threads": (
            "import threading, time; threading.Thread(target=lambda: (time.sleep(.3), print('last'))).start()",
            "ended with exit code 0",
        ),
        "after_its_executors": (
            "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor().submit(print, 'executed')",
            "ended with exit code 0",
        ),
    }
    stack = start([forked(name, code) for name, (code, _) in ends.items()], ["colorsys"])
    for name, (_, how) in ends.items():
        stack.until(lambda name=name, how=how: f"{name} {how}" in stack.log)
    for word in ("no more", "ValueError: what", "last", "executed"):
        assert f"| {word}\n" in stack.log


def test_what_dies_is_forked_again_with_the_rest_of_its_group_gone(start: Start, tmp_path: Path) -> None:
    forks = "import os; from pathlib import Path\npid = os.fork()\npid and Path('child').write_text(str(pid))\n"
    stack = start([forked("mortal", forks + SLEEPS)], ["colorsys"])
    old = stack.pids()["mortal"]
    child = int(stack.until(lambda: (f := tmp_path / "child").exists() and f.read_text()))
    stack.pids()
    os.kill(old, signal.SIGKILL)
    new = stack.restarted("mortal", old)
    assert child not in {one.pid for one in stack.survivors()}
    # its title is set a moment after its fork
    stack.until(lambda: psutil.Process(new).cmdline()[0] == "discoverybot: mortal")


def test_without_a_zygote_they_are_started_and_its_forks_live_on(start: Start) -> None:
    stack = start([forked("first", SLEEPS), forked("second", SLEEPS)], ["colorsys"])
    before = stack.pids()
    zygote(stack).kill()
    os.kill(before["first"], signal.SIGKILL)
    new = stack.restarted("first", before["first"])
    assert psutil.Process(new).cmdline()[1:] == ["-m", "first", "an argument"]
    assert stack.pids()["second"] == before["second"]


@pytest.mark.parametrize(
    ("module", "why"), [("no_such_module", "ModuleNotFoundError"), ("leaves_a_thread", "2 threads run")]
)
def test_a_zygote_that_cannot_be_forked_is_done_without(start: Start, module: str, why: str) -> None:
    stack = start([forked("one", SLEEPS)], [module])
    assert psutil.Process(stack.pids()["one"]).cmdline()[1:] == ["-m", "one", "an argument"]
    assert why in stack.log


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_neither_it_nor_its_forks_outlive_the_supervisor(start: Start, signum: signal.Signals, code: int) -> None:
    stack = start([forked("one", SLEEPS), forked("two", SLEEPS)], ["colorsys"])
    stack.pids()
    assert zygote(stack) in stack.family
    stack.signal(signum)
    assert stack.ended() == code
    stack.until(lambda: not stack.survivors())
    assert "left over" not in stack.log
