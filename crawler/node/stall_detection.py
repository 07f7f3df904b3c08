"""Detects from outside that a crawl has stalled: it logs nothing, requests nothing and finds nothing."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

from gateway.contract import outbox
from gateway.contract.log_line import LogEntry, split_entries

#: A crawl is checked for a stall this many times within its time limit; and the most seconds between two checks.
LOOKS = 20
INTERVAL_MAX = 5.0
#: Bytes of new log that are read. A crawl that writes more than this between two checks has not stalled.
READ = 64 << 10
#: These loggers write at regular intervals, whether or not anything happens.
_LOG_STATS = "scrapy.extensions.logstats"
_PERIODIC_LOG = "scrapy.extensions.periodic_log"


class StallDetector:
    """Counts how long a crawl has been idle. It must be asked every `interval` seconds. The time between two calls
    counts as two intervals at most: if the whole node was suspended (a virtual machine, a closed laptop), so was the
    crawl.
    """

    def __init__(self, folder: Path, log: int | None, limit: float) -> None:
        self.interval = min(INTERVAL_MAX, limit / LOOKS)
        self._active = outbox.state_dir(folder) / outbox.ACTIVE
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
        has_logged = self._log is not None and self._log.tell()
        return has_logged or touched != was_touched

    def _touched_at(self) -> int:
        try:
            return self._active.lstat().st_mtime_ns
        except OSError:
            return 0


class NewLines:
    """Finds out whether the log that is open as `fd` has anything new."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = 0
        self._in_stats = False

    def tell(self) -> bool:
        """Whether, since the last call, anything was written besides Scrapy's periodic log lines."""
        before, self._size = self._size, os.fstat(self._fd).st_size
        if self._size - before > READ:
            self._in_stats = False
            return True
        entries, _ = split_entries(os.pread(self._fd, max(0, self._size - before), before), before, final=True)
        # a list, because `_is_by_the_clock` must see every entry
        by_the_clock = [self._is_by_the_clock(entry) for entry in entries]
        return not all(by_the_clock)

    def _is_by_the_clock(self, entry: LogEntry) -> bool:
        if entry.cont:
            by_the_clock, ends = self._in_stats, entry.msg == "}"
            self._in_stats = by_the_clock and not ends
            return by_the_clock
        # the periodic JSON has many lines; other continuation lines in an entry of the stats were printed by other
        # code
        self._in_stats = entry.logger == _PERIODIC_LOG and entry.msg == "{"
        return entry.logger in {_LOG_STATS, _PERIODIC_LOG}
