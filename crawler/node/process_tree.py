"""All processes that belong to one attempt, including those that have left its session and group.

On Linux an attempt has a minder (`gateway.subreaper`): every process that its spider starts stays a descendant of the
minder, and ends with it. So one list of all processes with their parents finds them. Without a minder (on other
systems, or because it was killed) they are the spider's descendants, its group, and all processes that have the
attempt's folder in their environment, which is inherited.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from gateway.process import Seen, look_around
from gateway.subreaper import CAN_MIND, MINDER

#: How often processes are searched for and killed: a process may have started others before it was killed.
KILL_ROUNDS = 4


class Snapshot:
    """All processes at one moment."""

    def __init__(self, seen: Mapping[int, Seen]) -> None:
        self._seen = seen
        self._children: defaultdict[int, list[Seen]] = defaultdict(list)
        for process in seen.values():
            self._children[process.parent].append(process)

    @classmethod
    def take(cls) -> Snapshot:
        return cls(look_around() if CAN_MIND else _look_elsewhere())

    def family(self, pid: int) -> list[Seen]:
        """The living processes below the minder of the spider `pid`. Without a minder: the spider and
        those below it.
        """
        spider = self._seen.get(pid)
        minder = self._seen.get(spider.parent) if spider else None
        first = self._children[minder.pid] if minder and minder.name == MINDER else [spider] if spider else []
        return [process for one in first for process in self._with_all_below(one) if not process.is_zombie]

    def _with_all_below(self, process: Seen) -> Iterator[Seen]:
        waiting = [process]
        while waiting:
            yield (one := waiting.pop())
            waiting += self._children[one.pid]


def _look_elsewhere() -> dict[int, Seen]:
    return {
        process.pid: Seen(
            process.pid,
            b"",
            process.info["ppid"] or 0,
            0,
            getattr(process.info["memory_info"], "rss", 0),
            process.info["status"] == psutil.STATUS_ZOMBIE,
        )
        for process in psutil.process_iter(["ppid", "memory_info", "status"])
    }


def find_leader(folder: Path) -> int | None:
    """The process id of the attempt's spider, found by its environment, in case its mark has no id."""
    for process in _carriers(folder):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:
                return process.pid
    return None


class MemoryShare(NamedTuple):
    """A process and its resident bytes."""

    pid: int
    resident: int


def use_more_than(limit: int, family: list[MemoryShare]) -> bool:
    """Whether these processes together hold more than `limit` bytes. Memory that several of them share counts once on
    Linux (PSS), and for each of them elsewhere.
    """
    total = 0
    for share in family:
        total += _proportional(share)
        if total > limit:
            return True
    return False


def kill_rest(pid: int | None, folder: Path) -> None:
    """Where there is no minder, kill the spider, its group, and everything else that belongs to the attempt.

    If the spider is gone (`pid` is `None`), only processes with its environment can still be found.
    """
    for _ in range(KILL_ROUNDS):
        family = {one.pid for one in _carriers(folder)}
        if pid is not None:
            family |= {seen.pid for seen in Snapshot.take().family(pid)}
            kill_group(pid)
        for process in family:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not family:
            return


def kill_group(leader: int) -> None:
    """Kill the process group that `leader` leads, or has led, if it still exists."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM where only zombies are left
        os.killpg(leader, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Whether there is a process with this id that is not a zombie."""
    try:
        process = psutil.Process(pid)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _carriers(folder: Path) -> list[psutil.Process]:
    """The processes whose environment names this attempt's folder. Those of other users cannot be read."""
    return [process for process in psutil.process_iter() if _folder_of(process) == str(folder)]


def _folder_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("DISCOVERYBOT_ATTEMPT_DIR")
    except psutil.AccessDenied:  # another user's, or one with secret variables; their last argument is the folder
        with suppress(psutil.Error):
            return next(iter(process.cmdline()[-1:]), None)
    except (psutil.Error, OSError):
        pass
    return None


def _proportional(share: MemoryShare) -> int:
    try:
        shares: int = psutil.Process(share.pid).memory_full_info().pss
    except (
        psutil.AccessDenied,
        AttributeError,
    ):  # closed even to its own user, or there is no PSS (only Linux has it)
        return share.resident
    except psutil.Error:
        return 0
    return shares
