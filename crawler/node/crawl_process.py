"""A spider's process as Scrapyd sees it, and how it is stopped.

How the process came to be (spawned, forked) is the transport's business: anything with `pid`, `usage`,
`signalProcess` and `kill_group` will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from scrapyd.launcher import ScrapyProcessProtocol
from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.loop import reactor

log = Logger()


class CrawlProcess(ScrapyProcessProtocol):
    """Stops politely once, then for good; `deferred` fires when it has ended, whatever went wrong on the way."""

    deferred: Deferred[CrawlProcess]

    def __init__(self, project: str, spider: str, job: str, args: Sequence[str], grace: float) -> None:
        # Scrapyd prints `env` and `args` of its processes; there is no need to have the environment in a log
        super().__init__(project, spider, job, env={}, args=list(args))
        self.stopped_by: str | None = None
        self._grace = grace
        self._killer: DelayedCall | None = None

    def stop(self, why: str, signal: str | int = "INT") -> None:
        """Ask it to end, and see to it once the grace is over. Only the first reason counts, and only the first
        signal is sent: a second SIGINT would make Scrapy drop what it has in hand.
        """
        if self.stopped_by is not None:
            return
        self.stopped_by = why
        self._killer = reactor.callLater(self._grace, self.kill)
        self.stopping(why)
        with suppress(ProcessExitedAlready, ProcessLookupError):
            self.transport.signalProcess(signal)

    def kill(self) -> None:
        """SIGKILL to the whole process group."""
        self.transport.kill_group()

    def processEnded(self, status: Failure) -> None:  # noqa: N802 - Twisted's name
        if self._killer is not None and self._killer.active():
            self._killer.cancel()
        try:
            self.ended(status)
        except Exception:  # noqa: BLE001 - a full disk, say: the slot must be freed all the same
            log.failure("cannot account for the end of {job}", job=self.job)
        finally:
            super().processEnded(status)

    def stopping(self, why: str) -> None:
        """What there is to do before it is told."""

    def ended(self, status: Failure) -> None:
        """What there is to do at the end, before the slot is freed."""
