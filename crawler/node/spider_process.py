"""One attempt of one of our jobs while it runs: limits held, exit report written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from twisted.internet.error import ProcessTerminated
from twisted.python.failure import Failure

from crawler.node.accounts import Account
from crawler.node.attempt_files import ended_report, note_stopping, with_account, write_exit
from crawler.node.crawl_process import CrawlProcess
from crawler.node.forked_process import NotStartedError, ProcessLostError
from crawler.node.limits import Limits, LimitWatch
from crawler.node.process_tree import is_running
from crawler.node.started_mark import StartedMark
from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId, ExitReport


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
        limits: Limits,
        account: Account,
    ) -> None:
        super().__init__(project, spider, str(attempt), args, grace)
        self._attempt = attempt
        self._folder = folder
        self._mark = mark
        self._stall_seconds = limits.stall
        self._account = account
        self._limits = LimitWatch(limits, self.stop, self.kill, account.uses_more_than)

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        super().connectionMade()
        self._limits.start(self.pid, self._folder)
        with suppress(OSError):  # a full disk; then it can only be found by its environment
            self._mark.note_pid(self.pid)

    def stopping(self, why: str) -> None:
        note_stopping(self._folder, why)

    def kill(self) -> None:
        try:
            if self.pid is not None:
                self._account.kill_rest(self.pid, self._folder)
        finally:
            super().kill()

    def ended(self, status: Failure) -> None:
        try:
            self._limits.stop()
            self._kill_rest(status.value)
        finally:
            self._report_end(status.value)

    def _kill_rest(self, reason: BaseException | None) -> None:
        # long after its end, its number may be that of another process (but not while its group is there)
        if self.pid is not None and not (isinstance(reason, ProcessLostError) and is_running(self.pid)):
            self._account.kill_rest(self.pid, self._folder)

    def _report_end(self, reason: BaseException | None) -> None:
        try:
            write_exit(self._folder, self._report(reason))
        finally:
            # not before: a free lock without a report means that nobody is going to write one
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
            lost=isinstance(reason, ProcessLostError),
        )
        if self.stopped_by == "stall":
            report = report.model_copy(update={"stall_seconds": self._stall_seconds})
        if usage := self.transport.usage:
            report = report.model_copy(update=usage._asdict())
        return with_account(self._folder, report)
