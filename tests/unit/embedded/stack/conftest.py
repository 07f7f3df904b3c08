"""A supervisor in a process of its own, over stand-ins: small programs that behave well, badly, or die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

T = TypeVar("T")
#: Seconds that anything here may take on a busy machine.
PATIENCE = 60.0
SCRIPT = Path(__file__).parent / "stand_in_stack.py"


def until(look: Callable[[], T], patience: float = PATIENCE) -> T:
    """The first truthy answer of `look`."""
    deadline = time.monotonic() + patience
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


class Stack:
    """A supervisor over stand-ins, and the ways to look at it."""

    until = staticmethod(until)

    def __init__(self, folder: Path, rows: list[dict[str, Any]], modules: Sequence[str]) -> None:
        self.ready_file = folder / "ready.json"
        table = folder / "table.json"
        table.write_text(json.dumps(rows))
        self.output = folder / "output"
        self.family: set[psutil.Process] = set()
        command = [sys.executable, str(SCRIPT), str(table), str(self.ready_file), *modules]
        with self.output.open("wb") as output:
            self.process = psutil.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)

    @property
    def log(self) -> str:
        return self.output.read_text()

    def pids(self) -> dict[str, int]:
        """Once all are ready."""
        until(self.ready_file.exists)
        self.family |= set(self.process.children(recursive=True))
        found: dict[str, int] = json.loads(self.ready_file.read_text())
        return found

    def restarted(self, name: str, old: int) -> int:
        """The pid of `name` once it is another than `old`."""
        return until(lambda: (pid := self.pids().get(name)) != old and pid)

    def signal(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def ended(self, patience: float = PATIENCE) -> int:
        """Its exit code."""
        code: int = self.process.wait(patience)
        return code

    def survivors(self) -> list[psutil.Process]:
        """Those of the processes ever seen that still live."""
        return [one for one in self.family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    stacks: list[Stack] = []

    def start_stack(rows: list[dict[str, Any]], modules: Sequence[str] = ()) -> Stack:
        stacks.append(Stack(tmp_path, rows, modules))
        return stacks[-1]

    yield start_stack
    for stack in stacks:
        if stack.process.is_running():
            stack.family |= set(stack.process.children(recursive=True))
            stack.process.kill()
            stack.process.wait()
        for one in stack.survivors():
            one.kill()
