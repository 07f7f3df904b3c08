"""Keeps a zygote warm: starts it, replaces it, and does without it for a while if it keeps dying."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.base import DelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger

from crawler.node.accounts import Account
from crawler.node.forked_process import ForkedProcess, Start
from crawler.node.loop import reactor
from crawler.node.zygote_process import ZygoteProcess

log = Logger()

#: Seconds before a zygote is started that follows one which died without having forked; doubled each time.
BACKOFF_BASE = 1.0
BACKOFF_MAX = 60.0
#: Zygotes in a row that did not fork: one may be killed by accident.
_TOO_MANY = 2


class ForkServer:
    def __init__(self, runner: str, env: Mapping[str, str], renew_after: int, account: Account) -> None:
        self._account = account
        self._runner = runner
        self._env = env
        self._renew_after = renew_after
        #: The one that is asked; `None` while there is none.
        self._current: ZygoteProcess | None = None
        #: The one that will be, once it is warm.
        self._next: ZygoteProcess | None = None
        self._failures = 0
        self._restart: DelayedCall | None = None
        self._renewal_due = False
        self._renew_not_before = 0.0
        self._running = False

    def start(self) -> None:
        self._running = True
        self._launch()

    def stop(self) -> None:
        """Start no more. What there is goes on until Scrapyd ends."""
        self._running = False
        if self._restart is not None and self._restart.active():
            self._restart.cancel()

    def fork(self, protocol: ProcessProtocol, start: Start) -> bool:
        """Have the crawl forked; false if there is no zygote now. Raises `OSError` if its log cannot be opened.

        Whatever becomes of the zygote, the crawl is started once, or its end is reported.
        """
        if self._current is None:
            return False
        self._current.fork(ForkedProcess(protocol, start))
        if self._current.forks >= self._renew_after:
            self.renew()
        return True

    def renew(self) -> None:
        """Replace the zygote by one that has read the code anew. The old one forks until the new one is warm."""
        self._renewal_due = True
        self._renew()

    def zygote_ready(self, zygote: ZygoteProcess) -> None:
        log.info("zygote {pid} is warm", pid=zygote.pid)
        if zygote is self._next:
            old, self._current, self._next = self._current, zygote, None
            if old is not None:
                old.retire()
        self._renew()

    def zygote_forked(self, _: ZygoteProcess) -> None:
        self._failures = 0

    def zygote_ended(self, zygote: ZygoteProcess) -> None:
        if zygote is self._next:
            log.error("the next zygote did not get warm")
            self._next = None
            self._renewal_due = True
            self._renew_not_before = reactor.seconds() + BACKOFF_MAX
            reactor.callLater(BACKOFF_MAX, self._renew)
        elif zygote is self._current:
            self._current, self._next = self._next, None
            if self._current is None and self._running:
                self._start_again()

    def _renew(self) -> None:
        may = self._running and self._next is None and reactor.seconds() >= self._renew_not_before
        if self._renewal_due and may and self._current is not None and self._current.ready:
            self._renewal_due = False
            self._next = self._started()

    def _start_again(self) -> None:
        """At once if the zygote had forked; else it is to be feared that the next one will not, either."""
        self._failures += 1
        if self._failures == 1:
            log.info("the zygote has died; another one is started")
            self._launch()
            return
        if self._failures == _TOO_MANY:
            log.error("zygotes keep dying: crawls are started, not forked, until one can")
        delay = min(BACKOFF_MAX, BACKOFF_BASE * 2.0 ** (self._failures - _TOO_MANY))
        self._restart = reactor.callLater(delay, self._launch)

    def _launch(self) -> None:
        self._current = self._started()
        if self._current is None:
            self._start_again()

    def _started(self) -> ZygoteProcess | None:
        try:
            return ZygoteProcess.launch(self, self._runner, self._env, self._account)
        except Exception:  # noqa: BLE001 - whatever it is, the crawl that has just been asked for must not suffer
            log.failure("cannot start a zygote")
            return None
