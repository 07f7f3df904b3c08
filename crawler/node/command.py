"""A short-lived command whose output is wanted, without anybody waiting for it in Scrapyd's one thread."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scrapyd.exceptions import RunnerError
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.process import ProcessReader
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from crawler.node.accounts import Account, KeptAccount
from crawler.node.loop import reactor
from crawler.node.spawn import ended_reason

#: Seconds after which a command that imports a project is taken for hanging.
COMMAND_TIMEOUT = 60.0
#: Bytes kept of what it writes: a listing of ten thousand spiders, or the end of a traceback.
_MAX_OUTPUT = 8 << 20
_MAX_COMPLAINT = 64 << 10
_OWN = Account()


class Command(ProcessProtocol):
    """`python -m <args>`; `result` is its stdout, or `RunnerError` with what it said instead."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.result: Deferred[bytes] = Deferred()
        self._out = bytearray()
        self._err = bytearray()
        self._killed: str | None = None

    @classmethod
    def start(
        cls, args: list[str], env: Mapping[str, str], account: Account = _OWN, folder: Path | None = None
    ) -> Command:
        """In `folder`; by default, where Scrapyd was started. Raises `OSError`."""
        command = cls(account)
        line = [sys.executable, "-m", *args]
        if isinstance(account, KeptAccount):
            _Kept(command, account, line, env, folder)
        else:
            reactor.spawnProcess(command, line[0], line, env=env, path=str(folder) if folder else None)
        return command

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        self._timer = reactor.callLater(
            COMMAND_TIMEOUT, self.kill, f"it took longer than {COMMAND_TIMEOUT:g} seconds"
        )

    def outReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._out += data
        if len(self._out) > _MAX_OUTPUT:
            self.kill("it says too much")

    def errReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._err += data
        del self._err[:-_MAX_COMPLAINT]

    def kill(self, why: str = "stopped") -> None:
        """End it, and what it has started if it leads a process group."""
        self._killed = self._killed or why
        pid: int | None = self.transport.pid  # type: ignore[union-attr]  # a process's transport, and there is one
        if pid is not None:
            self._account.kill_group(pid)
            with suppress(ProcessLookupError):
                self._account.signal(pid, signal.SIGKILL)

    def processEnded(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        if self._timer.active():
            self._timer.cancel()
        if reason.check(ProcessDone) and self._killed is None:
            self.result.callback(bytes(self._out))
        else:
            said: Any = self._killed or self._err.decode("utf-8", "replace").strip() or reason.getErrorMessage()
            self.result.errback(RunnerError(said))


class _Kept:
    """The transport of a command under a user of its own. It has ended once it, and whatever else could write for it,
    is gone.
    """

    def __init__(
        self, command: Command, account: KeptAccount, line: list[str], env: Mapping[str, str], folder: Path | None
    ) -> None:
        self._command = command
        self._status: int | None = None
        self._open = {1, 2}
        ends = {number: os.pipe2(os.O_CLOEXEC) for number in (1, 2)}
        try:
            fds = {number: write for number, (_, write) in ends.items()}
            self.pid = account.start(line, env, fds, folder=folder)
        except BaseException:
            for read, _ in ends.values():
                os.close(read)
            raise
        finally:
            for _, write in ends.values():
                os.close(write)
        for number, (read, _) in ends.items():
            ProcessReader(reactor, self, number, read)
        account.keeper.watch(self)
        command.makeConnection(self)

    def childDataReceived(self, number: int, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._command.childDataReceived(number, data)

    def childConnectionLost(self, number: int, _reason: Failure) -> None:  # noqa: N802 - Twisted's name
        self._open.discard(number)
        self._end()

    def ended(self, status: int, _cpu_seconds: float, _peak_memory_bytes: int) -> None:
        self._status = status
        self._end()

    def _end(self) -> None:
        if self._status is not None and not self._open:
            self._command.processEnded(Failure(ended_reason(self._status)))
