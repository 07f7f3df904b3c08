"""All the processes that belong to one attempt, also those that have left its session and group.

On Linux an attempt has a minder (`gateway.process`): whatever its spider starts stays below that, however it hides,
and ends with it. So its processes are found in one look at all there are, by whose children they are. Where there is
no minder, as elsewhere, or no more, because it was killed, they are the spider's descendants, its group, and all that
carry the attempt's folder in their environment (which is inherited).
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

from gateway.process import CAN_MIND, MINDER, Seen, look_around

#: How often what was found is looked for again once it was killed: it may have been starting processes.
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
        """The living processes below the minder of the spider `pid`, or else the spider and those below it."""
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
    """The attempt's spider by its environment, where nobody was left to note its process id."""
    for process in _carriers(folder):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:
                return process.pid
    return None


class MemoryShare(NamedTuple):
    """Of a process, what the kernel can say of its memory."""

    pid: int
    resident: int


def use_more_than(limit: int, family: list[MemoryShare]) -> bool:
    """Whether they hold more bytes: shares of what they share on Linux (PSS), all of it elsewhere."""
    total = 0
    for share in family:
        total += _proportional(share)
        if total > limit:
            return True
    return False


def kill_rest(pid: int | None, folder: Path) -> None:
    """SIGKILL to the spider, its group, and everything else that belongs to the attempt, where nobody minds it.

    Of one that is no longer there (`None`), only what carries its environment can still be found.
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
    """SIGKILL to the process group of which this is, or was, the leader, if there still is one."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM where only zombies are left
        os.killpg(leader, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Whether there is a process of this number, and not only what is left of one that has ended."""
    try:
        process = psutil.Process(pid)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _carriers(folder: Path) -> list[psutil.Process]:
    """The living processes whose environment has this attempt's folder. Nobody sees others' users' environments."""
    return [process for process in psutil.process_iter() if _folder_of(process) == str(folder)]


def _folder_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("DISCOVERYBOT_ATTEMPT_DIR")
    except psutil.AccessDenied:  # somebody else's; or it has variables, and with them its folder as last argument
        with suppress(psutil.Error):
            return next(iter(process.cmdline()[-1:]), None)
    except (psutil.Error, OSError):
        pass
    return None


def _proportional(share: MemoryShare) -> int:
    try:
        shares: int = psutil.Process(share.pid).memory_full_info().pss
    except (psutil.AccessDenied, AttributeError):  # it is closed to its own user; only Linux has shares
        return share.resident
    except psutil.Error:
        return 0
    return shares
