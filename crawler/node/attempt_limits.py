"""The limits of one attempt that are checked from outside: time, memory, processes, log, files, and stalls."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.accounts import Account
from crawler.node.process_tree import MemoryShare, Snapshot
from crawler.node.reactor import reactor
from crawler.node.space import Space, exceeded
from crawler.node.stall_detection import StallDetector
from gateway.contract import outbox
from gateway.settings import NodeSettings

log = Logger()

#: Seconds between two checks of the processes and their memory.
PROCESS_INTERVAL = 1.0
#: Seconds for which one list of all processes is used.
FRESH = 0.5
#: Seconds between two checks of the size of the log; less, down to the minimum, when it grows quickly.
LOG_INTERVAL = 0.25
LOG_INTERVAL_MIN = 0.02
#: Seconds between two checks that the attempt's folder exists.
FOLDER_INTERVAL = 1.0
#: Seconds between two measurements of the attempt's files: usually, and while the disk is nearly full. That is when
#: less is free than `NEARLY_FULL` times `AttemptLimits.free`.
FILES_INTERVAL, FILES_INTERVAL_MIN = 5.0, 0.5
NEARLY_FULL = 4
#: Share of `AttemptLimits.free` that an attempt can always take. With less, the attempt does not cause a full disk.
SPARED = 1 / 16
#: After so many failed measurements in a row (folders may be moved all the time) the limit counts as exceeded.
MOST_NOT_MEASURED = 12
#: Share of the log limit that an attempt can exceed it by while it is asked to stop; beyond that it is killed.
LOG_SLACK = 0.25


class AttemptLimits(NamedTuple):
    #: Seconds from now.
    timeout: float
    #: Bytes of memory of all processes of the attempt, including a browser; 0 is no limit.
    memory: int = 0
    #: Bytes of `crawl.log`; 0 is no limit. Python's logging keeps within it by itself (`LogLimit`).
    log: int = 0
    #: Seconds in which nothing happens; 0 is no limit.
    stall: float = 0
    #: Bytes of all files that the attempt has written, without its `records`; 0 is no limit.
    files: int = 0
    #: Processes at a time; 0 is no limit.
    processes: int = 0
    #: Number of files and folders; 0 is no limit.
    entries: int = 0
    #: Bytes of its items, requests and frontier; 0 is no limit.
    records: int = 0
    #: If fewer bytes than this are free on the disk, the attempt must not have written more than is free. It is twice
    #: what the node needs for new work, so that other jobs are not kept waiting; 0 is no limit.
    free: int = 0


def limits_of(settings: NodeSettings, timeout: float) -> AttemptLimits:
    """The limits of the node's settings, with the `timeout` of the attempt (seconds from now)."""
    return AttemptLimits(
        timeout,
        settings.crawl_memory_limit,
        settings.crawl_max_log_bytes,
        settings.crawl_stall_seconds,
        2 * settings.files_max_bytes,
        settings.crawl_max_processes,
        settings.crawl_max_entries,
        settings.crawl_max_record_bytes,
        2 * settings.node_min_free_bytes,
    )


class SharedSnapshot:
    """Lists all processes in a thread. Callers that ask at about the same time share one list."""

    def __init__(self) -> None:
        self._taken_at = float("-inf")
        self._latest: Snapshot | None = None
        self._waiting: list[Deferred[Snapshot]] = []

    def get(self) -> Deferred[Snapshot]:
        result: Deferred[Snapshot] = Deferred()
        if self._latest is not None and time.monotonic() - self._taken_at < FRESH:
            result.callback(self._latest)
            return result
        self._waiting.append(result)
        if len(self._waiting) == 1:
            deferToThread(Snapshot.take).addBoth(self._answer)
        return result

    def _answer(self, result: Any) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(result, Snapshot):
            self._latest, self._taken_at = result, time.monotonic()
        for one in waiting:
            one.callback(result)


class LimitWatch:
    """Calls `exceeded` once, with the name of the first limit that is exceeded (timeout, memory, processes, log,
    stall, files, entries, records, disk).

    `flooding` is called if the log goes on growing after that, `removed` if the attempt's folder is gone.
    """

    #: Shared by all attempts.
    _processes = SharedSnapshot()

    def __init__(
        self,
        limits: AttemptLimits,
        account: Account,
        exceeded: Callable[[str], None],
        flooding: Callable[[], None] | None = None,
        removed: Callable[[], None] | None = None,
    ) -> None:
        self._limits = limits
        self._account = account
        self._exceeded = exceeded
        self._flooding = flooding
        self._removed = removed
        self._reported = False
        self._is_over = False
        #: How many measurements of the files have failed in a row.
        self._not_measured = 0
        #: Descriptor of the log.
        self._log: int | None = None
        #: The next check of each kind, by what it checks.
        self._calls: dict[str, DelayedCall] = {}

    def start(self, pid: int, folder: Path | None = None) -> None:
        """Begin to watch a process. `folder` is its attempt's, or the one in which it lists spiders; without it, only
        time, memory and processes count.
        """
        if self._is_over:  # it was stopped before it began
            return
        self._later("timeout", max(0.0, self._limits.timeout), self._report, "timeout")
        if self._limits.memory or self._limits.processes:
            self._later("processes", PROCESS_INTERVAL, self._look_at_processes, pid)
        if folder is not None:
            self._start_in(folder, pid)

    def _start_in(self, folder: Path, pid: int) -> None:
        with suppress(OSError):
            # kept open, because a log that is deleted can go on growing
            self._log = outbox.open_file(folder / outbox.LOG)
        if self._limits.log and self._log is not None:
            self._later("log", LOG_INTERVAL, self._look_at_log, self._log, 0)
        if self._limits.stall:
            detector = StallDetector(folder, self._log, self._limits.stall)
            self._later("stall", detector.interval, self._look_for_stall, detector)
        if self._removed is not None:
            self._look_at_folder(folder, _number(folder))
        if any((self._limits.files, self._limits.entries, self._limits.records, self._limits.free)):
            self._measure_later(folder, pid)

    def stop(self) -> None:
        self._is_over = True
        for call in self._calls.values():
            if call.active():
                call.cancel()
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _later(self, about: str, seconds: float, call: Callable[..., None], *args: object) -> None:
        self._calls[about] = reactor.callLater(seconds, call, *args)

    def _look_at_processes(self, pid: int) -> None:
        self._processes.get().addCallback(self._count, pid).addErrback(_not_seen).addBoth(self._look_again, pid)

    def _look_again(self, _: object, pid: int) -> None:
        if not self._is_over:
            self._later("processes", PROCESS_INTERVAL, self._look_at_processes, pid)

    def _count(self, snapshot: Snapshot, pid: int) -> Deferred[None] | None:
        """Check the number of processes and their memory. Shared memory is expensive to measure, so that is only done
        if the sum of all resident bytes is above the limit.
        """
        family = snapshot.family(pid)
        if 0 < self._limits.processes < len(family) and not self._is_over:
            self._report("processes")
        if self._is_over or not 0 < self._limits.memory < sum(process.resident for process in family):
            return None
        shares = [MemoryShare(process.pid, process.resident) for process in family]
        return self._account.weigh(self._limits.memory, shares).addCallback(self._weighed)

    def _weighed(self, is_too_much: bool) -> None:  # noqa: FBT001 - a callback's result
        if is_too_much and not self._is_over:
            self._report("memory")

    def _look_at_log(self, log: int, size_before: int) -> None:
        size, limit = os.fstat(log).st_size, self._limits.log
        in_a_hurry = size + 4 * (size - size_before) > limit
        self._later("log", LOG_INTERVAL_MIN if in_a_hurry else LOG_INTERVAL, self._look_at_log, log, size)
        if size > limit:
            self._report("log")
        if size > limit * (1 + LOG_SLACK) and self._flooding is not None:
            flooding, self._flooding = self._flooding, None
            flooding()

    def _look_at_folder(self, folder: Path, number: int | None) -> None:
        if number is not None and _number(folder) == number:
            self._later("folder", FOLDER_INTERVAL, self._look_at_folder, folder, number)
        elif self._removed is not None:
            self._removed()

    def _look_for_stall(self, detector: StallDetector) -> None:
        self._later("stall", detector.interval, self._look_for_stall, detector)
        if detector.seconds() >= self._limits.stall:
            self._report("stall")

    def _look_at_files(self, folder: Path, pid: int) -> None:
        most = Space(self._limits.files, self._limits.entries, self._limits.records)
        seen = self._processes.get().addCallback(lambda found: [process.pid for process in found.family(pid)])
        measured = seen.addCallback(lambda family: self._account.measure(folder, most, family))
        measured.addErrback(_not_seen).addCallback(self._weigh, most, folder)
        measured.addBoth(lambda _: self._measure_later(folder, pid))

    def _measure_later(self, folder: Path, pid: int) -> None:
        if not self._is_over:
            is_near = _free(folder) < NEARLY_FULL * self._limits.free
            self._later("files", FILES_INTERVAL_MIN if is_near else FILES_INTERVAL, self._look_at_files, folder, pid)

    def _weigh(self, taken: Space | None, most: Space, folder: Path) -> None:
        if self._is_over:
            return
        self._not_measured = 0 if taken else self._not_measured + 1
        if self._not_measured == MOST_NOT_MEASURED:
            self._report("files")
        elif taken and (limit := exceeded(taken, most)):
            self._report(limit)
        elif taken and self._is_greedy(taken, _free(folder)):
            self._report("disk")

    def _is_greedy(self, taken: Space, free: float) -> bool:
        """Whether the attempt is the reason why the disk runs full: it has written more than is left for all."""
        total = taken.bytes + taken.records
        return free < self._limits.free and total > max(free, SPARED * self._limits.free)

    def _report(self, limit: str) -> None:
        if not self._reported:
            self._reported = True
            self._exceeded(limit)


def _not_seen(failure: Failure) -> None:
    log.failure("cannot list the processes", failure)


def _free(folder: Path) -> float:
    """Free bytes of the folder's disk; infinite if that cannot be found out."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free
    return math.inf


def _number(folder: Path) -> int | None:
    """The folder's inode number, which tells it from a new folder of the same name; `None` if it is gone."""
    with suppress(OSError):
        return folder.lstat().st_ino
    return None
