"""A crawl that is forked from a zygote, as Scrapyd sees it, from the moment at which it was asked for."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.accounts import Account
from crawler.node.attempt_files import fault_of
from crawler.node.spawn import Usage, ended_reason, spawn
from crawler.node.started_mark import StartedMark, read_mark
from gateway.contract.outbox import Fault, is_locked

log = Logger()

#: Seconds between two looks at whether a process that lost its zygote has ended.
WATCH_INTERVAL = 0.5


class NotStartedError(ProcessTerminated):
    """There never was a process."""

    def __init__(self, why: str, fault: Fault | None = None) -> None:
        super().__init__()
        self.why = why
        self.fault = fault


class ProcessLostError(ProcessTerminated):
    """It has ended, and nobody was told how."""


class Start(NamedTuple):
    """What it takes to start a crawl, one way or the other."""

    #: The command; its first two are the interpreter and `-m`.
    args: list[str]
    env: Mapping[str, str]
    folder: Path
    output: Path
    mark: StartedMark
    account: Account


class ForkedProcess:
    """A transport for `ProcessProtocol`. Signals that come before there is a process are sent when there is one."""

    def __init__(self, protocol: ProcessProtocol, start: Start) -> None:
        self.pid: int | None = None
        self.usage: Usage | None = None
        self.start = start
        self._protocol = protocol
        self._alive = True
        self._early: int | None = None
        self._watch: LoopingCall | None = None
        protocol.transport = self  # type: ignore[assignment]  # all of it that is used

    def signalProcess(self, signal_id: str | int) -> None:  # noqa: N802 - Twisted's name
        """Signal the process alone. Raises `ProcessExitedAlready`."""
        number = signal.Signals[f"SIG{signal_id}"] if isinstance(signal_id, str) else signal_id
        if not self._is_there():
            raise ProcessExitedAlready
        if self.pid is None:
            self._early = number
        else:
            self.start.account.signal(self.pid, number)

    def kill_group(self) -> None:
        """SIGKILL to the process and everything it has started in its group."""
        if self.pid is None:
            self._early = signal.SIGKILL
        elif self._is_there():
            self.start.account.kill_group(self.pid)

    def forked(self, pid: int) -> None:
        self.pid = pid
        try:
            self._protocol.makeConnection(self)
        except Exception:  # noqa: BLE001 - it runs: from here on it is its end that must be heard of
            log.failure("{pid} is not told of its start", pid=pid)
        if self._early is not None:
            with suppress(ProcessLookupError):
                self.start.account.signal(pid, self._early)

    def exited(self, status: int, usage: Usage) -> None:
        self.usage = usage
        if self.pid is not None:
            self.start.account.kill_group(self.pid)  # what the spider left behind
        self._end(ended_reason(status))

    def lose_zygote(self) -> None:
        """Nobody will tell how it ends. Its lock tells that it has, unless the launcher's copy is in the way."""
        if self.pid is None:
            self._decide()
        elif self._alive:
            self.start.mark.release()
            self._watch = LoopingCall(self._look)
            self._watch.start(WATCH_INTERVAL)

    def start_plainly(self) -> None:
        """There is no process, and none will be forked."""
        if self._early is not None:
            self._end(NotStartedError("asked to stop before it was started"))
            return
        try:
            start = self.start
            spawn(
                self._protocol, start.args, start.env, start.output, inherited_fd=start.mark.fd, account=start.account
            )
        except Exception as error:  # noqa: BLE001 - every reason not to start it is the attempt's outcome
            log.failure("cannot start {args}", args=self.start.args)
            self._end(NotStartedError(f"{error}", fault_of(error)))

    def _decide(self) -> None:
        """Its zygote died before it answered. A forked child has written its number into the mark before it let go
        of the zygote's socket, so without a number there is none.
        """
        pid, _ = read_mark(self.start.folder)
        if pid is None:
            self.start_plainly()
        else:
            self.forked(pid)
            self.lose_zygote()

    def _is_there(self) -> bool:
        # the number of a process that lost its zygote may have been given to another
        return self._alive and (self._watch is None or is_locked(self.start.folder))

    def _look(self) -> None:
        if not is_locked(self.start.folder) and self._watch is not None:
            self._watch.stop()
            self._end(ProcessLostError())

    def _end(self, reason: ProcessDone | ProcessTerminated) -> None:
        self._alive = False
        self._protocol.processEnded(Failure(reason))
