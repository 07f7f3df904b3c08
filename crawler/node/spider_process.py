"""A spider's process as Scrapyd sees it: how it is stopped, kept within its limits, and reported.

The transport knows how the process was started (spawned or forked). It can be any object with `pid`, `usage`,
`signalProcess` and `kill_group`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil
from scrapyd.launcher import ScrapyProcessProtocol
from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.accounts import Account, Accounts, remove_temporary
from crawler.node.attempt_files import ended_report, note_stopping, with_account, without_folder, write_exit
from crawler.node.attempt_limits import AttemptLimits, LimitWatch, limits_of
from crawler.node.fork import WARM_UP, NotStartedError, ProcessLostError
from crawler.node.process_tree import is_running
from crawler.node.reactor import reactor
from crawler.node.started_mark import StartedMark, read_mark
from gateway.clock import utc_now
from gateway.contract import outbox, records
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, NodeSpec
from gateway.settings import NodeSettings

log = Logger()
#: The kernel's counters for the node's container.
_CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed because the container had no memory left; 0 outside of one."""
    with suppress(OSError, ValueError, KeyError):
        return int(dict(line.split() for line in _CGROUP_EVENTS.read_text().splitlines())["oom_kill"])
    return 0


class CrawlProcess(ScrapyProcessProtocol):
    """A crawl that is asked once to stop, and then killed. `deferred` fires when it has ended, even after errors."""

    deferred: Deferred[CrawlProcess]

    def __init__(self, project: str, spider: str, job: str, args: Sequence[str], grace: float) -> None:
        # without `env`, because Scrapyd logs `env` and `args` of its processes
        super().__init__(project, spider, job, env={}, args=list(args))
        self.stopped_by: str | None = None
        self._grace = grace
        self._killer: DelayedCall | None = None

    def stop(self, why: str, signal: str | int = "INT") -> None:
        """Ask the crawl to end, and kill it after the grace. Only the first reason counts. The signal is sent only
        once, because a second SIGINT makes Scrapy drop what it is working on.
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
        accounted = maybeDeferred(self.ended, status)
        # even after an error, for example a full disk, the slot must be freed
        accounted.addErrback(lambda why: log.failure("cannot account for the end of {job}", why, job=self.job))
        accounted.addBoth(lambda _: super(CrawlProcess, self).processEnded(status))

    def stopping(self, why: str) -> None:
        """Called before the process is asked to stop."""

    def ended(self, status: Failure) -> Deferred[None] | None:  # noqa: ARG002 - attempts need it
        """Called at the end of the process, before the slot is freed."""
        return None


# --- an attempt of one of our jobs while it runs: limits held, exit report written


class AttemptProcess(CrawlProcess):
    def __init__(
        self,
        *,
        project: str,
        spider: str,
        attempt: AttemptId,
        args: Sequence[str],
        grace: float,
        folder: Path,
        mark: StartedMark,
        limits: AttemptLimits,
        account: Account,
    ) -> None:
        super().__init__(project, spider, str(attempt), args, grace)
        self._attempt = attempt
        self._folder = folder
        self._mark = mark
        self._stall_seconds = limits.stall
        self._account = account
        self._kills_before = out_of_memory_kills()
        #: Whether the crawl has removed the folder of its attempt.
        self._is_removed = False
        self._limits = LimitWatch(limits, account, self.stop, self.kill, self._removed)

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        super().connectionMade()
        self._limits.start(self.pid, self._folder)
        with suppress(OSError):  # a full disk; then it can only be found by its environment
            self._mark.note_pid(self.pid)

    def stopping(self, why: str) -> None:
        note_stopping(self._folder, why)

    def kill(self) -> None:
        try:
            if self.pid is not None and not self.transport.is_minded:
                self._account.kill_rest(self.pid, self._folder)
        finally:
            super().kill()

    def _removed(self) -> None:
        """Kill a crawl that has removed its own folder: without its mark nobody can follow it, and its results are
        lost. The folder is made again, so that the tailer sees the attempt.
        """
        self._is_removed = True
        with suppress(OSError):
            self._folder.mkdir(mode=0o700)
        self.kill()

    def ended(self, status: Failure) -> Deferred[None]:
        cleared = maybeDeferred(self._clear, status.value)
        cleared.addErrback(lambda why: log.failure("cannot clear up behind {job}", why, job=self.job))
        return cleared.addCallback(lambda _: self._report_end(status.value))

    def _clear(self, reason: BaseException | None) -> Deferred[None]:
        self._limits.stop()
        self._kill_rest(reason)
        opened = self._account.open_up(self._folder)
        return opened.addCallback(lambda _: remove_temporary(self._folder))

    def _kill_rest(self, reason: BaseException | None) -> None:
        if self.transport.is_minded:
            return
        # long after the end another process can have the id (not while the group exists)
        if self.pid is not None and not (isinstance(reason, ProcessLostError) and is_running(self.pid)):
            self._account.kill_rest(self.pid, self._folder)

    def _report_end(self, reason: BaseException | None) -> None:
        try:
            write_exit(self._folder, self._report(reason))
        finally:
            # only after the report: a free lock without a report would mean that none will be written
            self._mark.release()

    def _report(self, reason: BaseException | None) -> ExitReport:
        if isinstance(reason, NotStartedError):
            why = f"spawn_failed: {reason.why}"
            return ExitReport(
                attempt=self._attempt.attempt,
                ended_at=utc_now(),
                refused=why,
                fault=reason.fault,
                stopped_by=self.stopped_by,
            )
        terminated = reason if isinstance(reason, ProcessTerminated) else None
        report = ended_report(
            self._attempt,
            self._mark.started_at,
            exit_code=terminated.exitCode if terminated else 0,
            signal=terminated.signal if terminated else None,
            stopped_by=self.stopped_by,
            lost=isinstance(reason, ProcessLostError) or self._was_in_the_way(terminated),
        )
        if self.stopped_by == "stall":
            report = report.model_copy(update={"stall_seconds": self._stall_seconds})
        if usage := self.transport.usage:
            report = report.model_copy(update=usage._asdict())
        report = with_account(self._folder, report)
        return without_folder(report) if self._is_removed else report

    def _was_in_the_way(self, terminated: ProcessTerminated | None) -> bool:
        """Whether the kernel has killed it because all processes on this node together used too much memory."""
        is_killed = terminated is not None and terminated.signal == signal.SIGKILL and self.stopped_by is None
        return is_killed and out_of_memory_kills() > self._kills_before


# --- orphans: spiders that go on although the Scrapyd that started them was killed
#
# They occupy no slot, and the tailer reports their end. But their limits are enforced, and they can be cancelled: the
# mark has the process id, and as long as its lock is held that process, or its group, still exists.

#: Seconds between two checks whether an orphan has ended.
WATCH_INTERVAL = 0.5
#: Maximum number of seconds between the making of a mark and the start of its process, with a margin: the process may
#: have waited in vain for a zygote to get warm, and clocks are sometimes corrected.
SPAWN_TIME = WARM_UP + 60.0


class Orphan:
    """A process that is not this Scrapyd's child. `deferred` fires once it is gone."""

    def __init__(
        self,
        folder: Path,
        pid: int,
        started_at: datetime | None,
        limits: AttemptLimits,
        *,
        grace: float,
        account: Account,
    ) -> None:
        self.job = folder.name
        self.stopped_by = outbox.stopping_reason(folder)
        self.deferred: Deferred[Orphan] = Deferred()
        self._folder = folder
        self._pid = pid
        self._grace = grace
        self._account = account
        self._latest_start = (started_at or utc_now()).timestamp() + SPAWN_TIME
        self._limits = LimitWatch(limits, account, self.stop, self.kill)
        self._watch = LoopingCall(self._look)

    def start(self) -> None:
        self._limits.start(self._pid, self._folder)
        self._watch.start(WATCH_INTERVAL, now=False)
        if self.stopped_by is not None:  # a second SIGINT would make Scrapy drop what it is working on
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
        """Whether the process, or at least its group, is still the attempt's. The lock could be held by a process
        that has left the group, while the id went to another process, which was started later.
        """
        if not outbox.is_locked(self._folder):
            return False
        try:
            return psutil.Process(self._pid).create_time() < self._latest_start
        except psutil.NoSuchProcess:
            return True  # the id is not given to another process as long as the group exists

    def _look(self) -> None:
        if not outbox.is_locked(self._folder):
            self._limits.stop()
            self._watch.stop()
            with suppress(OSError):  # processes that are left if the minder was killed
                self._account.kill_rest(None, self._folder)
            self.deferred.callback(self)


def find_orphans(settings: NodeSettings, accounts: Accounts) -> Iterator[Orphan]:
    """The attempts in the outbox that still run. Call this before this Scrapyd starts any."""
    for folder in sorted(settings.outbox.glob("*-*")):
        if (
            AttemptId.parse(folder.name) is None
            or outbox.is_there(folder / outbox.EXIT)
            or not outbox.is_locked(folder)
        ):
            continue
        pid, started_at = read_mark(folder)
        account = accounts.owner(folder)
        pid = pid or account.find_leader(folder)
        if pid is None:
            continue
        spec = records.read_record(folder / outbox.SPEC, NodeSpec)
        elapsed = (utc_now() - started_at).total_seconds() if started_at else 0.0
        timeout = (spec.timeout if spec else NodeSpec.model_fields["timeout"].default) - elapsed
        yield Orphan(
            folder, pid, started_at, limits_of(settings, timeout), grace=settings.crawl_stop_grace, account=account
        )
