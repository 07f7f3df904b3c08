"""What processes cost: CPU time of whole trees, including ended children, and memory with shared parts divided."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from contextlib import suppress

import psutil


def tree_seconds(root: int) -> float:
    """CPU seconds of the process, of all below it, and of all ended children that they have waited for."""
    return sum(_seconds(process) for process in tree(root))


def tree(root: int) -> list[psutil.Process]:
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def proportional_bytes(pids: Iterable[int]) -> list[int]:
    """PSS of each process: memory that several processes share is divided among them."""
    return [psutil.Process(pid).memory_full_info().pss for pid in pids]


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the process, then SIGKILL to the rest of its tree."""
    family = tree(process.pid) if process.poll() is None else []
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(15)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it has just ended, and its time is counted for the process that waited for it
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
