"""Time, memory and log that one attempt may take, and how long it may stand still, as seen from outside of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from twisted.internet.base import DelayedCall

from crawler.node.family import uses_more_than
from crawler.node.loop import reactor
from crawler.node.quiet import Quiet
from gateway.domain.node_files import LOG, open_file
from gateway.settings import NodeSettings

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
    #: Bytes of `crawl.log`; 0 is no limit. What logs through Python keeps within it by itself (`crawler.log_limit`).
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
