"""Starting a process in a session of its own, and learning how it ended and what it used.

Twisted's own `spawnProcess` can do neither `setsid` (so that a whole process group can be ended) nor `wait4` (so
that CPU time and peak memory are known). Only its look-out for SIGCHLD is used.
"""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.process import registerReapProcessHandler, unregisterReapProcessHandler
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.accounts import Account, KeptAccount
from gateway.contract.outbox import open_file

log = Logger()

#: `ru_maxrss` counts KiB on Linux and bytes on macOS.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: Wait status of an exit code that no spider uses.
_UNKNOWN_STATUS = 255 << 8
_OWN = Account()


class Usage(NamedTuple):
    #: Seconds of CPU, its ended and waited-for children's included.
    cpu_seconds: float
    #: Resident bytes at the peak. Linux counts what the process was spawned from, so a tiny process seems as
    #: large as Scrapyd; spiders are larger.
    peak_memory_bytes: int


class SpawnedProcess:
    """A running process: a `transport` for Twisted's `ProcessProtocol`, leader of a session and group of its own."""

    def __init__(self, pid: int, protocol: ProcessProtocol, account: Account, *, ends_group: bool = True) -> None:
        self.pid = pid
        self._account = account
        self._ends_group = ends_group
        self.usage: Usage | None = None
        self._protocol = protocol
        self._alive = True

    def signalProcess(self, signal_id: str | int) -> None:  # noqa: N802 - Twisted's name
        """Signal the process alone. Raises `ProcessExitedAlready`."""
        if not self._alive:
            raise ProcessExitedAlready
        number = signal.Signals[f"SIG{signal_id}"] if isinstance(signal_id, str) else signal_id
        self._account.signal(self.pid, number)

    def kill_group(self) -> None:
        """SIGKILL to the process and everything it has started in its group."""
        self._account.kill_group(self.pid)

    def reapProcess(self) -> None:  # noqa: N802 - Twisted calls it on SIGCHLD
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for it: how it ended will never be known
            pid, status, usage = self.pid, _UNKNOWN_STATUS, None
        if pid:
            unregisterReapProcessHandler(pid, self)
            if usage is not None:
                self.usage = Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _MAXRSS_UNIT)
            self._ended(status)

    def processEnded(self, status: int) -> None:  # noqa: N802 - Twisted calls it if it ended before registration
        self._ended(status)

    def ended(self, status: int, cpu_seconds: float, peak_memory_bytes: int) -> None:
        """The keeper has waited for it."""
        self.usage = Usage(cpu_seconds, peak_memory_bytes)
        self._ended(status)

    def _ended(self, status: int) -> None:
        self._alive = False
        # what the spider left behind (a browser, say) ends with it; the number is too fresh to be anybody else's
        if self._ends_group:
            self.kill_group()
        self._protocol.processEnded(Failure(ended_reason(status)))


def spawn(
    protocol: ProcessProtocol,
    args: list[str],
    env: Mapping[str, str],
    output: Path,
    *,
    inherited_fd: int | None = None,
    account: Account = _OWN,
) -> SpawnedProcess:
    """Start `args` with stdout and stderr appended to `output`. `inherited_fd` is handed down under its own number.

    Raises `OSError` if it cannot be started. One that ends at once may have ended before this returns.
    """
    output_fd = open_file(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        pid = account.start(args, env, {1: output_fd, 2: output_fd}, inherited_fd)
    finally:
        os.close(output_fd)
    return watch(pid, protocol, account)


def watch(pid: int, protocol: ProcessProtocol, account: Account = _OWN, *, ends_group: bool = True) -> SpawnedProcess:
    """Tell `protocol` of the start and, once it is there, of the end of our child, with whom its group may end."""
    process = SpawnedProcess(pid, protocol, account, ends_group=ends_group)
    try:
        protocol.makeConnection(process)
    except Exception:  # noqa: BLE001 - it runs: from here on it is its end that must be heard of
        log.failure("{pid} is not told of its start", pid=pid)
    if isinstance(account, KeptAccount):
        account.keeper.watch(process)
    else:
        registerReapProcessHandler(pid, process)
    return process


def ended_reason(status: int) -> ProcessDone | ProcessTerminated:
    """A wait status as Twisted tells it."""
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ProcessDone(status)
    return ProcessTerminated(code, None, status) if code > 0 else ProcessTerminated(None, -code, status)
