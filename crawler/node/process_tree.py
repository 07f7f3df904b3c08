"""All the processes that belong to one attempt, also those that have left its session and group.

A browser is started detached: in a session of its own, and when what started it has died, a child of nobody we know.
So an attempt's processes are its spider, all that carry the attempt's folder in their environment (which is
inherited), and the descendants of all of these.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

#: Seconds after which it is believed that a process has executed what it was started for. Until then its
#: environment may still be that of its parent, and is looked at again.
SETTLED = 2.0
#: Seconds without a look after which all numbers might have been given to others.
MEMORY = 10.0
#: How often what was found is looked for again once it was killed: it may have been starting processes.
KILL_ROUNDS = 4


class _Known(NamedTuple):
    process: psutil.Process
    #: The attempt's folder in its environment.
    folder: str | None
    seen_at: float
    settled: bool


class _Surroundings:
    """Who carries which attempt's folder. Of most processes it is enough to read the environment twice."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._looked_at = 0.0

    def carriers(self, folder: Path) -> list[psutil.Process]:
        self._look()
        return [known.process for known in self._known.values() if known.folder == str(folder)]

    def _look(self) -> None:
        now = time.monotonic()
        present = set(psutil.pids())
        if now - self._looked_at > MEMORY:
            self._known.clear()
        self._looked_at = now
        for gone in self._known.keys() - present:
            del self._known[gone]
        for pid in present:
            known = self._known.get(pid)
            if known is None or not (known.settled or known.folder):
                with suppress(psutil.Error):
                    self._known[pid] = _read(pid, known, now)


#: By the user who looks: nobody sees whose folder is in the environments of others' processes.
_surroundings: defaultdict[int, _Surroundings] = defaultdict(_Surroundings)


def members(pid: int, folder: Path) -> list[psutil.Process]:
    """The living processes of the attempt in `folder`, whose spider is or was `pid`; the spider first."""
    found: dict[int, psutil.Process] = {}
    with suppress(psutil.Error):
        found[pid] = psutil.Process(pid)
    for process in _surroundings[os.geteuid()].carriers(folder):
        found.setdefault(process.pid, process)
    for root in tuple(found.values()):
        with suppress(psutil.Error):
            for descendant in root.children(recursive=True):
                found.setdefault(descendant.pid, descendant)
    return list(found.values())


def find_leader(folder: Path) -> int | None:
    """The attempt's spider by its environment, where nobody was left to note its process id."""
    for process in _surroundings[os.geteuid()].carriers(folder):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:
                return process.pid
    return None


def memory(pid: int, folder: Path) -> int:
    """Bytes that the attempt's processes hold: shares of what they share on Linux (PSS), all of it elsewhere."""
    return sum(_proportional(process) for process in members(pid, folder))


def uses_more_than(limit: int, pid: int, folder: Path) -> bool:
    """Whether `memory` is more than `limit`, without asking for the shares, which are dear, where that is plain."""
    return use_more_than(limit, members(pid, folder))


def use_more_than(limit: int, family: list[psutil.Process]) -> bool:
    return sum(map(_resident, family)) > limit and sum(map(_proportional, family)) > limit


def kill_rest(pid: int, folder: Path) -> None:
    """SIGKILL to the spider, its group, and everything else that belongs to the attempt.

    Of one that is no longer there, only what carries its environment can still be found.
    """
    for _ in range(KILL_ROUNDS):
        family = members(pid, folder)
        kill_group(pid)
        family = [process for process in family if lives(process)]
        for process in family:
            with suppress(psutil.Error):
                process.kill()
        if not family:
            return


def kill_group(leader: int) -> None:
    """SIGKILL to the process group of which this is, or was, the leader, if there still is one."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM where only zombies are left
        os.killpg(leader, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Whether there is a process of this number, and not only what is left of one that has ended."""
    try:
        return lives(psutil.Process(pid))
    except psutil.Error:
        return False


def _read(pid: int, known: _Known | None, now: float) -> _Known:
    process = known.process if known else psutil.Process(pid)
    seen_at = known.seen_at if known else now
    return _Known(process, _folder_of(process), seen_at, now - seen_at > SETTLED)


def _folder_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("DISCOVERYBOT_ATTEMPT_DIR")
    except psutil.AccessDenied:  # somebody else's; or it has variables, and with them its folder as last argument
        with suppress(psutil.Error):
            return next(iter(process.cmdline()[-1:]), None)
    except (psutil.Error, OSError):
        pass
    return None


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _resident(process: psutil.Process) -> int:
    try:
        resident: int = process.memory_info().rss
    except psutil.Error:
        return 0
    return resident


def _proportional(process: psutil.Process) -> int:
    try:
        shares: int = process.memory_full_info().pss
    except (psutil.AccessDenied, AttributeError):  # it is closed to its own user; only Linux has shares
        return _resident(process)
    except psutil.Error:
        return 0
    return shares
