"""Time, memory and log that one attempt may take, and how long it may stand still, as seen from outside of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from twisted.internet.base import DelayedCall

from crawler.node.loop import reactor
from crawler.node.process_tree import uses_more_than
from gateway.contract.log_line import LogEntry, split_entries
from gateway.contract.outbox import ACTIVE, LOG, open_file
from gateway.settings import NodeSettings

#: Looks within the time that it may be quiet for, and seconds between two of them at most.
LOOKS = 20
INTERVAL_MAX = 5.0
#: Bytes of new log that are read. What writes more than this between two looks does something.
READ = 64 << 10
#: Say the same again and again, whether or not anything happens.
_LOG_STATS = "scrapy.extensions.logstats"
_PERIODIC_LOG = "scrapy.extensions.periodic_log"


class Quiet:
    """To be asked once every `interval` seconds. It counts from then on, and only what it sees go by: had all of the
    node stood still (a virtual machine, a laptop's lid), that was no time in which the crawl could do anything.
    """

    def __init__(self, folder: Path, log: int | None, limit: float) -> None:
        self.interval = min(INTERVAL_MAX, limit / LOOKS)
        self._active = folder / ACTIVE
        self._touched = 0
        self._log = None if log is None else NewLines(log)
        self._looked_at = monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        now = monotonic()
        passed, self._looked_at = now - self._looked_at, now
        self._seconds = 0.0 if self._is_alive() else self._seconds + min(passed, 2 * self.interval)
        return self._seconds

    def _is_alive(self) -> bool:
        touched, was_touched = self._touched_at(), self._touched
        self._touched = touched
        told = self._log is not None and self._log.tell()
        return told or touched != was_touched

    def _touched_at(self) -> int:
        try:
            return self._active.lstat().st_mtime_ns
        except OSError:
            return 0


class NewLines:
    """Whether the log that is open as `fd` tells anything new."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = 0
        self._in_stats = False

    def tell(self) -> bool:
        """Whether more was written since the last time than what Scrapy writes by the clock."""
        before, self._size = self._size, os.fstat(self._fd).st_size
        if self._size - before > READ:
            self._in_stats = False
            return True
        entries, _ = split_entries(os.pread(self._fd, max(0, self._size - before), before), before, final=True)
        # each has to be looked at
        by_the_clock = [self._is_by_the_clock(entry) for entry in entries]
        return not all(by_the_clock)

    def _is_by_the_clock(self, entry: LogEntry) -> bool:
        if entry.cont:
            by_the_clock, ends = self._in_stats, entry.msg == "}"
            self._in_stats = by_the_clock and not ends
            return by_the_clock
        # its JSON is many lines; what is printed after that of the other is somebody else's
        self._in_stats = entry.logger == _PERIODIC_LOG and entry.msg == "{"
        return entry.logger in {_LOG_STATS, _PERIODIC_LOG}


#: Seconds between two looks at the memory.
MEMORY_INTERVAL = 1.0
#: Seconds between two looks at the size of the log; less, down to the minimum, when it grows quickly.
LOG_INTERVAL = 0.25
LOG_INTERVAL_MIN = 0.02
#: Share of its log limit that an attempt may go on printing while it is asked to stop; then it is killed.
LOG_SLACK = 0.25


class Limits(NamedTuple):
    #: Seconds from now.
    timeout: float
    #: Bytes of everything that belongs to the attempt, its browser too; 0 is no limit.
    memory: int = 0
    #: Bytes of `crawl.log`; 0 is no limit. What logs through Python keeps within it by itself (`LogLimit`).
    log: int = 0
    #: Seconds in which nothing happens; 0 is no limit.
    stall: float = 0


def limits_of(settings: NodeSettings, timeout: float) -> Limits:
    """The node's, and the `timeout` of the attempt."""
    return Limits(timeout, settings.crawl_memory_limit, settings.crawl_max_log_bytes, settings.crawl_stall_seconds)


class LimitWatch:
    """Calls `exceeded("timeout" | "memory" | "log" | "stall")`, once at most, unless it is stopped before.

    `flooding` is called if the log goes on growing after that.
    """

    def __init__(
        self,
        limits: Limits,
        exceeded: Callable[[str], None],
        flooding: Callable[[], None] | None = None,
        uses_more_than: Callable[[int, int, Path], bool] = uses_more_than,
    ) -> None:
        self._limits = limits
        self._uses_more_than = uses_more_than
        self._exceeded = exceeded
        self._flooding = flooding
        self._reported = False
        #: Descriptor of the log.
        self._log: int | None = None
        #: What is going to happen, by what it is about.
        self._calls: dict[str, DelayedCall] = {}

    def start(self, pid: int, folder: Path) -> None:
        self._later("timeout", max(0.0, self._limits.timeout), self._report, "timeout")
        if self._limits.memory:
            self._later("memory", MEMORY_INTERVAL, self._look_at_memory, pid, folder)
        with suppress(OSError):
            # held open: one that is deleted goes on growing
            self._log = open_file(folder / LOG)
        if self._limits.log and self._log is not None:
            self._later("log", LOG_INTERVAL, self._look_at_log, self._log, 0)
        if self._limits.stall:
            quiet = Quiet(folder, self._log, self._limits.stall)
            self._later("stall", quiet.interval, self._look_for_life, quiet)

    def stop(self) -> None:
        for call in self._calls.values():
            if call.active():
                call.cancel()
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _later(self, about: str, seconds: float, call: Callable[..., None], *args: object) -> None:
        self._calls[about] = reactor.callLater(seconds, call, *args)

    def _look_at_memory(self, pid: int, folder: Path) -> None:
        self._later("memory", MEMORY_INTERVAL, self._look_at_memory, pid, folder)
        if self._uses_more_than(self._limits.memory, pid, folder):
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

    def _look_for_life(self, quiet: Quiet) -> None:
        self._later("stall", quiet.interval, self._look_for_life, quiet)
        if quiet.seconds() >= self._limits.stall:
            self._report("stall")

    def _report(self, limit: str) -> None:
        if not self._reported:
            self._reported = True
            self._exceeded(limit)
