"""Spiders that outlived the Scrapyd that had started them: it was killed, they ran on.

They hold no slot here, and the tailer reports their end. But their limits must be held, and they can be cancelled:
the mark says which process it is, and while its lock is held that process, or its group, is certainly still there.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from crawler.node.accounts import Account, Accounts
from crawler.node.attempt_files import note_stopping
from crawler.node.limits import Limits, LimitWatch, limits_of
from crawler.node.loop import reactor
from crawler.node.started_mark import read_mark
from crawler.node.zygote_process import WARM_UP
from gateway.clock import utc_now
from gateway.contract.outbox import EXIT, SPEC, AttemptId, NodeSpec, is_locked, is_there, read_record, stopping_reason
from gateway.settings import NodeSettings

#: Seconds between two looks at whether an orphan has ended.
WATCH_INTERVAL = 0.5
#: Seconds within which a process is there once its mark was made, and more: it may have waited in vain for a zygote
#: to get warm, and clocks are set right at times.
SPAWN_TIME = WARM_UP + 60.0


class Orphan:
    """A process that is somebody else's child. `deferred` fires once it is gone."""

    def __init__(
        self, folder: Path, pid: int, started_at: datetime | None, limits: Limits, *, grace: float, account: Account
    ) -> None:
        self.job = folder.name
        self.stopped_by = stopping_reason(folder)
        self.deferred: Deferred[Orphan] = Deferred()
        self._folder = folder
        self._pid = pid
        self._grace = grace
        self._account = account
        self._latest_start = (started_at or utc_now()).timestamp() + SPAWN_TIME
        self._limits = LimitWatch(limits, self.stop, self.kill, account.uses_more_than)
        self._watch = LoopingCall(self._look)

    def start(self) -> None:
        self._limits.start(self._pid, self._folder)
        self._watch.start(WATCH_INTERVAL, now=False)
        if self.stopped_by is not None:  # a second SIGINT would make Scrapy drop what it has in hand
            reactor.callLater(self._grace, self.kill)

    def stop(self, why: str, signal_id: str | int = "INT") -> None:
        """As `CrawlProcess.stop`."""
        if self.stopped_by is None and self._is_ours():
            self.stopped_by = why
            note_stopping(self._folder, why)
            reactor.callLater(self._grace, self.kill)
            number = signal.Signals[f"SIG{signal_id}"] if isinstance(signal_id, str) else signal_id
            with suppress(ProcessLookupError):
                self._account.signal(self._pid, number)

    def kill(self) -> None:
        if self._is_ours():
            self._account.kill_rest(self._pid, self._folder)

    def _is_ours(self) -> bool:
        """Whether the process, or at least its group, is still the attempt's. The lock could also be held by
        something that left the group, while the number went to somebody else, who was started later.
        """
        if not is_locked(self._folder):
            return False
        try:
            return psutil.Process(self._pid).create_time() < self._latest_start
        except psutil.NoSuchProcess:
            return True  # a group keeps its number from being given away

    def _look(self) -> None:
        if not is_locked(self._folder):
            self._limits.stop()
            self._watch.stop()
            self.deferred.callback(self)


def find_orphans(settings: NodeSettings, accounts: Accounts) -> Iterator[Orphan]:
    """The attempts in the outbox that still run, though this Scrapyd has started nothing yet."""
    for folder in sorted(settings.outbox.glob("*-*")):
        if AttemptId.parse(folder.name) is None or is_there(folder / EXIT) or not is_locked(folder):
            continue
        pid, started_at = read_mark(folder)
        account = accounts.owner(folder)
        pid = pid or account.find_leader(folder)
        if pid is None:
            continue
        spec = read_record(folder / SPEC, NodeSpec)
        elapsed = (utc_now() - started_at).total_seconds() if started_at else 0.0
        timeout = (spec.timeout if spec else NodeSpec.model_fields["timeout"].default) - elapsed
        yield Orphan(
            folder, pid, started_at, limits_of(settings, timeout), grace=settings.crawl_stop_grace, account=account
        )
