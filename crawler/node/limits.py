"""Time and memory that one crawl may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import psutil
from twisted.internet.base import DelayedCall
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.loop import reactor

log = Logger()

#: Seconds between two looks at the memory.
MEMORY_INTERVAL = 1.0


class Limits(NamedTuple):
    #: Seconds from now.
    timeout: float
    #: Resident bytes of the spider's own process (not of a browser it drives); 0 is no limit.
    memory: int


class LimitWatch:
    """Calls `exceeded("timeout")` or `exceeded("memory")`, once at most, unless it is stopped before."""

    def __init__(self, limits: Limits, exceeded: Callable[[str], None]) -> None:
        self._limits = limits
        self._exceeded = exceeded
        self._timer: DelayedCall | None = None
        self._memory: LoopingCall | None = None

    def start(self, pid: int) -> None:
        self._timer = reactor.callLater(max(0.0, self._limits.timeout), self._report, "timeout")
        if self._limits.memory:
            self._memory = LoopingCall(self._look, pid)
            self._memory.start(MEMORY_INTERVAL, now=False).addErrback(_memory_unknown)

    def stop(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._memory is not None and self._memory.running:
            self._memory.stop()

    def _look(self, pid: int) -> None:
        try:
            resident: int = psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:  # it is being reaped
            return
        if resident > self._limits.memory:
            self._report("memory")

    def _report(self, limit: str) -> None:
        self.stop()
        self._exceeded(limit)


def _memory_unknown(failure: Failure) -> None:
    log.failure("the memory limit is no longer watched", failure)
