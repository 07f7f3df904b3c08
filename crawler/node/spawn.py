"""Starting a process in a session of its own, and learning how it ended and what it used.

Twisted's own `spawnProcess` can do neither `setsid` (so that a whole process group can be ended) nor `wait4` (so
that CPU time and peak memory are known). Only its look-out for SIGCHLD is used.
"""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from scrapyd.exceptions import RunnerError
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.process import ProcessReader, registerReapProcessHandler, unregisterReapProcessHandler
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.accounts import Account, KeptAccount
from crawler.node.reactor import reactor
from crawler.node.zygote import VARIABLES_FD
from gateway.contract.outbox import open_file
from gateway.contract.reasons import Reason

log = Logger()

#: `ru_maxrss` counts KiB on Linux and bytes on macOS.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: Wait status for an exit code that no spider uses.
_UNKNOWN_STATUS = 255 << 8
_OWN = Account()


class ProcessUsage(NamedTuple):
    #: Seconds of CPU, including those of children that have ended and were waited for.
    cpu_seconds: float
    #: Resident bytes at the peak. Linux includes the memory of the process that spawned it, so a tiny process seems
    #: as large as Scrapyd; spiders are larger anyway.
    peak_memory_bytes: int


class SpawnedProcess:
    """A running process: a `transport` for Twisted's `ProcessProtocol`, leader of a session and group of its own."""

    def __init__(self, pid: int, protocol: ProcessProtocol, account: Account, *, ends_group: bool = True) -> None:
        self.pid = pid
        #: Whether a minder ends everything that the process has started, once it has ended.
        self.is_minded = isinstance(account, KeptAccount)
        self._account = account
        self._ends_group = ends_group
        self.usage: ProcessUsage | None = None
        self._protocol = protocol
        self._alive = True

    def signalProcess(self, signal_id: str | int) -> None:  # noqa: N802 - Twisted's name
        """Signal the process alone. Raises `ProcessExitedAlready`."""
        if not self._alive:
            raise ProcessExitedAlready
        number = signal.Signals[f"SIG{signal_id}"] if isinstance(signal_id, str) else signal_id
        self._account.signal(self.pid, number)

    def kill_group(self) -> None:
        """SIGKILL to the process and everything that it has started in its group."""
        self._account.kill_group(self.pid)

    def reapProcess(self) -> None:  # noqa: N802 - Twisted calls it on SIGCHLD
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:  # something else has waited for it, so its exit code is lost
            pid, status, usage = self.pid, _UNKNOWN_STATUS, None
        if pid:
            unregisterReapProcessHandler(pid, self)
            if usage is not None:
                self.usage = ProcessUsage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _MAXRSS_UNIT)
            self._ended(status)

    def processEnded(self, status: int) -> None:  # noqa: N802 - Twisted calls it if it ended before registration
        self._ended(status)

    def ended(self, status: int, cpu_seconds: float, peak_memory_bytes: int) -> None:
        """Called when the keeper has waited for the process."""
        self.usage = ProcessUsage(cpu_seconds, peak_memory_bytes)
        self._ended(status)

    def _ended(self, status: int) -> None:
        self._alive = False
        # what the spider left behind (such as a browser) ends with it; no other process can have its id so soon
        if self._ends_group and not self.is_minded:
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
    variables: Mapping[str, str] | None = None,
) -> SpawnedProcess:
    """Start `args` with stdout and stderr appended to `output`. The process inherits `inherited_fd` under its number.
    The runner reads `variables` from its stdin, because other processes of the same user can read `env`.

    A short process may have ended before this returns. Raises `OSError` if it cannot be started.
    """
    with ExitStack() as ends:
        output_fd = open_file(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        ends.callback(os.close, output_fd)
        fds = {1: output_fd, 2: output_fd}
        if variables:
            fds[0] = readable(variables)
            ends.callback(os.close, fds[0])
            env = {**env, VARIABLES_FD: "0"}
        pid = account.start(args, env, fds, inherited_fd)
    return watch(pid, protocol, account)


def readable(variables: Mapping[str, str]) -> int:
    """A descriptor from which the variables can be read as JSON; the caller closes it. Raises `OSError`."""
    content = json.dumps(dict(variables), ensure_ascii=False).encode()
    read, write = os.pipe()
    with ExitStack() as failed:
        failed.callback(os.close, read)
        try:
            # the variables are limited to less than a pipe holds
            os.set_blocking(write, False)
            written = os.write(write, content)
        finally:
            os.close(write)
        if written < len(content):
            raise OSError(errno.EMSGSIZE, "its variables do not fit into a pipe")
        failed.pop_all()
    return read


def watch(pid: int, protocol: ProcessProtocol, account: Account = _OWN, *, ends_group: bool = True) -> SpawnedProcess:
    """Report the start of our child, and later its end, to `protocol`. With `ends_group` its group is then killed."""
    process = SpawnedProcess(pid, protocol, account, ends_group=ends_group)
    try:
        protocol.makeConnection(process)
    except Exception:  # noqa: BLE001 - the process runs, so its end must be handled
        log.failure("{pid} has started, but its protocol could not be informed", pid=pid)
    if isinstance(account, KeptAccount):
        account.keeper.watch(process)
    else:
        registerReapProcessHandler(pid, process)
    return process


def ended_reason(status: int) -> ProcessDone | ProcessTerminated:
    """Twisted's reason for this wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ProcessDone(status)
    return ProcessTerminated(code, None, status) if code > 0 else ProcessTerminated(None, -code, status)


# --- a short-lived command whose output is wanted; Scrapyd's only thread does not wait for it

#: Seconds after which a command that imports a project counts as hanging.
COMMAND_TIMEOUT = 60.0
#: Maximum number of bytes that are kept of stdout (enough to list ten thousand spiders) and of stderr (the end of a
#: traceback).
MAX_OUTPUT = 8 << 20
MAX_COMPLAINT = 64 << 10


class CommandError(RunnerError):
    """The command has failed; `reason` says why, as a code."""

    def __init__(self, message: str, reason: Reason = Reason.PROCESS_CRASHED) -> None:
        super().__init__(message)
        self.reason = reason


class Command(ProcessProtocol):
    """A running `python -m <args>`. `result` is its stdout, or `CommandError` with what it wrote to stderr."""

    def __init__(self, account: Account, seconds: float = COMMAND_TIMEOUT) -> None:
        self.account = account
        self._seconds = seconds
        self.result: Deferred[bytes] = Deferred()
        #: Its process id, once it has one.
        self.started: Deferred[int] = Deferred()
        self._out = bytearray()
        self._err = bytearray()
        self._killed: CommandError | None = None

    @classmethod
    def start(
        cls,
        args: list[str],
        env: Mapping[str, str],
        account: Account = _OWN,
        folder: Path | None = None,
        *,
        python: str = sys.executable,
        seconds: float = COMMAND_TIMEOUT,
    ) -> Command:
        """Start the command in `folder`, by default where Scrapyd was started. Raises `OSError`."""
        command = cls(account, seconds)
        line = [python, "-m", *args]
        if isinstance(account, KeptAccount):
            _Kept(command, account, line, env, folder)
        else:
            reactor.spawnProcess(command, line[0], line, env=env, path=str(folder) if folder else None)
        return command

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        late = f"it took longer than {self._seconds:g} seconds"
        self._timer = reactor.callLater(self._seconds, self.kill, late, Reason.TIME_LIMIT)
        self.started.callback(self.transport.pid)  # type: ignore[union-attr]  # a process's transport

    @property
    def said(self) -> str:
        """The end of what it has written to stderr."""
        return self._err.decode("utf-8", "replace")

    def outReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._out += data
        if len(self._out) > MAX_OUTPUT:
            self.kill("its output is too long")

    def errReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._err += data
        del self._err[:-MAX_COMPLAINT]

    def kill(self, why: str = "stopped", reason: Reason = Reason.PROCESS_CRASHED) -> None:
        """Kill the process, and its group if it leads one."""
        self._killed = self._killed or CommandError(why, reason)
        pid: int | None = self.transport.pid  # type: ignore[union-attr]  # a process's transport, and there is one
        if pid is not None:
            self.account.kill_group(pid)
            with suppress(ProcessLookupError):
                self.account.signal(pid, signal.SIGKILL)

    def processExited(self, _reason: Failure) -> None:  # noqa: N802 - Twisted's name
        """Read what was written so far, and stop: processes that it has started could keep the pipes open."""
        transport: Any = self.transport
        for number, pipe in list(transport.pipes.items()):
            with suppress(OSError):  # the pipe is empty
                for _ in range(MAX_OUTPUT >> 16):
                    if not (data := os.read(pipe.fd, 1 << 16)):
                        break
                    self.childDataReceived(number, data)
        transport.loseConnection()

    def processEnded(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        if self._timer.active():
            self._timer.cancel()
        if reason.check(ProcessDone) and self._killed is None:
            self.result.callback(bytes(self._out))
        else:
            said: Any = self._err.decode("utf-8", "replace").strip() or reason.getErrorMessage()
            self.result.errback(self._killed or CommandError(said))


class _Kept:
    """The transport of a command under a user of its own."""

    def __init__(
        self, command: Command, account: KeptAccount, line: list[str], env: Mapping[str, str], folder: Path | None
    ) -> None:
        self._command = command
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
        #: As in Twisted's own transport.
        self.pipes = {number: ProcessReader(reactor, self, number, read) for number, (read, _) in ends.items()}
        account.keeper.watch(self)
        command.makeConnection(self)

    def childDataReceived(self, number: int, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._command.childDataReceived(number, data)

    def childConnectionLost(self, number: int, _reason: Failure) -> None:  # noqa: N802 - Twisted's name
        self.pipes.pop(number, None)

    def loseConnection(self) -> None:  # noqa: N802 - Twisted's name
        for pipe in list(self.pipes.values()):
            pipe.loseConnection()

    def ended(self, status: int, _cpu_seconds: float, _peak_memory_bytes: int) -> None:
        reason = Failure(ended_reason(status))
        self._command.processExited(reason)
        self._command.processEnded(reason)


# --- few processes that take a processor at the same time

Result = TypeVar("Result")


class LimitedTurns(Generic[Result]):
    """Lets a few begin at a time. One that takes long no longer counts among them: it may hang, and others should not
    wait for it.
    """

    def __init__(self, at_once: int, longest: float, clock: Any = reactor) -> None:
        """`longest`: seconds after which one no longer counts."""
        self._free = DeferredSemaphore(at_once)
        self._longest = longest
        self._clock = clock

    async def take(self, start: Callable[[], Deferred[Result]]) -> Result:
        """Call `start` once it is its turn, and return the result."""
        await self._free.acquire()
        over = self._clock.callLater(self._longest, self._free.release)
        try:
            return await start()
        finally:
            if over.active():
                over.cancel()
                self._free.release()
