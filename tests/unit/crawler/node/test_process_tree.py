"""Who belongs to whom, in one look at all processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gateway.subreaper import CAN_MIND

if not CAN_MIND:
    pytest.skip("only Linux has /proc", allow_module_level=True)

CROWD = 300
#: Counts what is opened below /proc while it finds out who belongs to a process that has many children.
COUNTING = f"""
import os, signal, subprocess, sys
from crawler.node.process_tree import Snapshot

crowd = "i=0; while [ $i -lt {CROWD} ]; do sleep 60 & i=$((i+1)); done; echo; wait"
child = subprocess.Popen(["sh", "-c", crowd], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
opened = []
def note(event, args):
    if event == "open" and str(args[0]).startswith("/proc"):
        opened.append(args[0])

sys.addaudithook(note)
snapshot = Snapshot.take()
families = [snapshot.family(child.pid) for _ in range(8)]
print(len(opened), len(set(opened)), *(len(family) for family in families))
os.killpg(child.pid, signal.SIGKILL)
"""
MINDED = """
import os, signal, sys, time
from gateway.subreaper import fork_minded
from gateway.process import run_and_end

def work():
    os.setsid()
    {work}

minder, pid = fork_minded(lambda: run_and_end(work))
print(os.waitstatus_to_exitcode(os.waitpid(minder, 0)[1]))
"""
LEAVES = """
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    os.wait()
    print(os.read(read, 20).decode())
"""

#: A minder that is slow, and a process that stops its minder as the first thing that it does.
STOPPED = """
import os, signal, time
from gateway.subreaper import fork_minded
from gateway.process import run_and_end

def slow_write(fd, content, write=os.write):
    time.sleep(0.3)
    return write(fd, content)

os.write = slow_write
minder, pid = fork_minded(lambda: run_and_end(lambda: os.kill(os.getppid(), signal.SIGSTOP)))
while os.WIFSTOPPED(status := os.waitpid(minder, os.WUNTRACED)[1]):
    os.kill(minder, signal.SIGCONT)
print(os.waitstatus_to_exitcode(status))
"""


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_a_look_opens_what_is_there_once_however_many_ask_of_it() -> None:
    opened, different, *families = map(int, run(COUNTING))
    assert opened == different
    assert families == [CROWD + 1] * 8


@pytest.mark.parametrize(
    ("work", "code"),
    [("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGTERM)", -15), ("os.kill(os.getpid(), signal.SIGKILL)", -9)],
)
def test_what_minds_a_process_ends_as_that_does(work: str, code: int) -> None:
    assert run(MINDED.format(work=work)) == [str(code)]


def test_what_minds_a_process_ends_after_all_that_this_leaves() -> None:
    left, code = run(MINDED.format(work=LEAVES))
    assert code == "0"
    assert not os.path.exists(f"/proc/{left}")  # noqa: PTH110 - it is a number


def test_a_minder_that_its_process_stops_at_once_has_told_its_id() -> None:
    assert run(STOPPED) == ["0"]
