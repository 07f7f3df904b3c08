"""How crawls are forked, on Scrapyd's side. A warm zygote (a process with all imports done) is asked for forks, and
each crawl is watched from that request on.
"""

# mypy: allow-untyped-calls, disable-error-code="misc"
# Twisted is typed in parts only, and its protocols not at all.
from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import Factory, ProcessProtocol, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.protocols.basic import Int32StringReceiver
from twisted.python.failure import Failure

from crawler.node.accounts import Account
from crawler.node.attempt_files import fault_of
from crawler.node.projects import ProjectCode
from crawler.node.reactor import reactor
from crawler.node.spawn import (
    COMMAND_TIMEOUT,
    MAX_COMPLAINT,
    MAX_OUTPUT,
    CommandError,
    ProcessUsage,
    SpawnedProcess,
    ended_reason,
    readable,
    spawn,
    watch,
)
from crawler.node.started_mark import StartedMark, read_mark
from crawler.node.zygote import MAX_FRAME
from gateway.contract.outbox import Fault, is_locked, open_file
from gateway.contract.reasons import Reason
from gateway.subreaper import CAN_MIND

log = Logger()

#: Seconds to wait before replacing a zygote that has died without having forked; doubled each time.
BACKOFF_BASE = 1.0
BACKOFF_MAX = 60.0
#: It is an error if so many zygotes in a row die without having forked. A single one may die by accident.
_TOO_MANY = 2
_ZYGOTE = "crawler.node.zygote"
_PLAIN = ProjectCode()
#: Bytes per read.
_PIECE = 1 << 16
NOTHING_TOLD = "it ended before it could tell its spiders"


class ForkServer:
    """Keeps a zygote that forks crawls with all of `runner` imported. If `runner` is `None`, it forks processes that
    execute their commands.
    """

    def __init__(
        self,
        runner: str | None,
        env: Mapping[str, str],
        renew_after: int,
        account: Account,
        code: ProjectCode = _PLAIN,
    ) -> None:
        self.account = account
        self._code = code
        self._runner = runner
        self._env = env
        self._renew_after = renew_after
        #: The zygote that is asked for forks; `None` while there is none.
        self._current: ZygoteProcess | None = None
        #: The zygote that will be asked next, once it is warm.
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
        """Start no more zygotes. Running ones end with Scrapyd."""
        self._running = False
        if self._restart is not None and self._restart.active():
            self._restart.cancel()

    def retire(self) -> None:
        """Start no more zygotes, and let the present ones end with the last of their crawls."""
        self.stop()
        for zygote in filter(None, (self._current, self._next)):
            zygote.retire()

    @property
    def is_warm(self) -> bool:
        """Whether the zygote has done its imports, so that it forks at once."""
        return self._current is not None and self._current.ready

    def fork(self, protocol: ProcessProtocol, start: Start) -> bool:
        """Have the crawl forked; false if there is no zygote now. Raises `OSError` if its log cannot be opened.

        Even if the zygote dies, the crawl is started once or its end is reported.
        """
        if self._current is None:
            return False
        self._current.fork(ForkedProcess(protocol, start))
        if self._current.forks >= self._renew_after:
            self.renew()
        return True

    def list_spiders(self, listing: ForkedListing) -> bool:
        """Fork the listing. Returns false if there is no zygote now."""
        if self._current is None:
            return False
        self._current.list_spiders(listing)
        return True

    def renew(self) -> None:
        """Replace the zygote by one that imports the code again. The old one serves until the new one is warm."""
        self._renewal_due = True
        self._renew()

    def zygote_ready(self, zygote: ZygoteProcess) -> None:
        """Called when a zygote has imported everything."""
        log.info("zygote {pid} is warm", pid=zygote.pid)
        if zygote is self._next:
            old, self._current, self._next = self._current, zygote, None
            if old is not None:
                old.retire()
        self._renew()

    def zygote_forked(self) -> None:
        self._failures = 0

    def zygote_ended(self, zygote: ZygoteProcess) -> None:
        """Called when a zygote is gone. The crawls that it has forked are watched by other means."""
        if zygote is self._next:
            log.error("the next zygote did not become ready")
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
        """Start a zygote after one has died: at once the first time, later with a growing delay."""
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
            runner = [self._code.module(self._runner)] if self._runner else []
            return ZygoteProcess.launch(self, self._code.command(_ZYGOTE, *runner), self._env)
        except Exception:  # noqa: BLE001 - errors must not harm the crawl that has just been requested
            log.failure("cannot start a zygote")
            return None


#: Bytes of a warm process, rounded up: its proportional set size is 72 MiB with five of them.
WARM_BYTES = 80 << 20
#: All warm processes together can take this share of the memory: 1/`_SHARE`.
_SHARE = 8
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def room_for_warm() -> int:
    """How many warm processes the memory has room for, at least one."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or "max"
        limit = min(limit, int(_CGROUP_LIMIT.read_text()))
    return max(1, limit // _SHARE // WARM_BYTES)


class WarmVenvs:
    """Fork servers of the virtual environments that were used last: each has its own Python and Scrapy."""

    def __init__(self, most: int, make: Callable[[ProjectCode], ForkServer]) -> None:
        self._most = most
        self._make = make
        #: In the order of their last use, the latest at the end.
        self._servers: dict[ProjectCode, ForkServer] = {}

    def get(self, code: ProjectCode) -> ForkServer | None:
        """The server for this environment, if it is warm. If there is none, one is started for later crawls."""
        if not self._most:
            return None
        server = self._servers.pop(code.base, None)
        if server is None:
            server = self._make(code.base)
            server.start()
        self._servers[code.base] = server
        self._retire_some()
        return server if server.is_warm else None

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()

    def _retire_some(self) -> None:
        """Retire surplus servers, and servers whose environment was removed."""
        removed = [code for code in self._servers if code.venv is not None and not code.venv.is_dir()]
        for code in dict.fromkeys([*removed, *list(self._servers)[: -self._most]]):
            self._servers.pop(code).retire()


# --- one zygote: its process, its socket, and the crawls that it was asked to fork

#: Seconds that a zygote has for its imports.
WARM_UP = 60.0
#: Seconds between two pings. Each has to be answered before the next.
PULSE = 10.0


class ZygoteProcess(Int32StringReceiver):
    transport: Any
    MAX_LENGTH = MAX_FRAME

    def __init__(self, owner: ForkServer, process: SpawnedProcess) -> None:
        self.forks = 0
        #: Counted downwards, so that the ids of listings differ from those of crawls.
        self._listings = 0
        self.ready = False
        self._owner = owner
        self._process = process
        self._retired = False
        #: Requests without an answer so far, with the descriptors to close after the answer.
        self._asked: dict[int, tuple[ForkedProcess | ForkedListing, ExitStack]] = {}
        self._running: dict[int, ForkedProcess | ForkedListing] = {}
        self._heard = True
        self._pulse: DelayedCall = reactor.callLater(WARM_UP, self.kill)

    @classmethod
    def launch(cls, owner: ForkServer, command: list[str], env: Mapping[str, str]) -> ZygoteProcess:
        """Start one. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # its output goes where Scrapyd's stderr goes
            pid = owner.account.start(command, env, {0: theirs.fileno(), 1: 2, 2: 2})
            # a child is in the zygote's group for a moment after its fork, so the group must not be killed
            zygote = cls(owner, watch(pid, ProcessProtocol(), owner.account, ends_group=False))
            _connect(ours, zygote)
        return zygote

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, process: ForkedProcess) -> None:
        """Ask for a fork. Raises `OSError` if its log cannot be opened."""
        start, ends = process.start, ExitStack()
        with ends:
            fds = [open_file(start.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)]
            ends.callback(os.close, fds[0])
            fds += start.mark.fd, start.mark.writer
            if start.variables:
                fds.append(readable(start.variables))
                ends.callback(os.close, fds[-1])
            self.forks += 1
            # the descriptors stay open because they are sent later
            self._asked[self.forks] = process, ends.pop_all()
        has_variables = bool(start.variables)
        self._send(fds, id=self.forks, command=start.args, env=dict(start.env), variables=has_variables, notes=True)

    def list_spiders(self, listing: ForkedListing) -> None:
        """Ask for a fork that lists spiders. It is not counted in `forks`."""
        ours, theirs = socket.socketpair()
        with ours, ExitStack() as ends:
            ends.enter_context(theirs)
            said, said_by = socket.socketpair()
            ends.enter_context(said_by)
            for end, protocol in ((ours, listing), (said, listing.complaint)):
                _connect(end, protocol)
            said.close()
            self._listings -= 1
            self._asked[self._listings] = listing, ends.pop_all()
        fds, folder = [said_by.fileno(), theirs.fileno()], listing.folder
        self._send(
            fds, id=self._listings, command=listing.command, env=dict(listing.env), lists=True,
            folder=str(folder) if folder else None,
        )  # fmt: skip

    def _send(self, fds: list[int], **request: Any) -> None:
        for fd in fds:
            self.transport.sendFileDescriptor(fd)
        self.sendString(json.dumps(request).encode())

    def retire(self) -> None:
        """Let the zygote end with the last of its crawls."""
        self._retired = True
        self._leave()

    def kill(self) -> None:
        """Kill the zygote, which also ends its socket. The socket must not be closed first: a living zygote could
        still fork.
        """
        log.error("zygote {pid} does not answer", pid=self.pid)
        with suppress(ProcessExitedAlready, ProcessLookupError):
            self._process.signalProcess(signal.SIGKILL)

    def lengthLimitExceeded(self, _length: int) -> None:  # noqa: N802 - Twisted's name
        self.kill()

    def stringReceived(self, string: bytes) -> None:  # noqa: N802 - Twisted's name
        try:
            self._received(json.loads(string))
        except Exception:  # noqa: BLE001 - a bad answer must not end the connection
            log.failure("zygote {pid} sent an answer that makes no sense", pid=self.pid)

    def connectionLost(self, _reason: Failure = connectionDone) -> None:  # noqa: N802 - Twisted's name
        if self._pulse.active():
            self._pulse.cancel()
        self._owner.zygote_ended(self)
        for process, fds in self._asked.values():
            fds.close()
            process.lose_zygote()
        for process in self._running.values():
            process.lose_zygote()

    def _received(self, message: dict[str, Any]) -> None:
        self._heard = True
        if message.get("pong"):
            return
        if message.get("ready"):
            self.ready = True
            self._pulse.cancel()
            self._ask()
            self._owner.zygote_ready(self)
        elif "pid" in message:
            process = self._running[message["id"]] = self._answered(message["id"])
            process.forked(message["pid"])
            self._owner.zygote_forked()
        elif "error" in message:
            self._answered(message["id"]).start_plainly()
        else:
            usage = ProcessUsage(message["cpu"], message["memory"])
            self._running.pop(message["id"]).exited(message["status"], usage)
        self._leave()

    def _answered(self, number: int) -> ForkedProcess | ForkedListing:
        process, fds = self._asked.pop(number)
        fds.close()
        return process

    def _ask(self) -> None:
        """Ping the zygote. One that has not answered is killed: it would not report the end of its crawls either."""
        if not self._heard:
            self.kill()
            return
        self._heard = False
        self.sendString(b'{"ping": true}')
        self._pulse = reactor.callLater(PULSE, self._ask)

    def _leave(self) -> None:
        if self._retired and not self._asked and not self._running:
            self.transport.loseConnection()


def _connect(ours: socket.socket, protocol: Protocol) -> None:
    """Pass what arrives at the socket to `protocol`. The caller can close `ours` afterwards."""
    ours.setblocking(False)  # noqa: FBT003 - takes no keyword
    factory = Factory.forProtocol(lambda: protocol)
    factory.noisy = False
    reactor.adoptStreamConnection(ours.fileno(), socket.AF_UNIX, factory)


class ForkedListing(Protocol):
    """A forked process that lists spiders by running `command`, in `folder` if that is not `None`.

    Once the process has ended, `result` is its output, or `CommandError` if it was killed. Processes that it has
    started can keep the output open; this does not wait for them, because the minder ends them.
    """

    transport: Any

    def __init__(self, command: list[str], env: Mapping[str, str], folder: Path | None, account: Account) -> None:
        self.command, self.env, self.folder = command, env, folder
        self.result: Deferred[bytes] = Deferred()
        #: Its process id, once it has one.
        self.started: Deferred[int] = Deferred()
        #: What it writes to stderr.
        self.complaint = Complaint()
        #: Why there is no answer, unless the process was killed.
        self.problem = NOTHING_TOLD
        self.account = account
        self._written = bytearray()
        self._pid: int | None = None
        self._killed: CommandError | None = None
        self._is_over = False
        late = f"it took longer than {COMMAND_TIMEOUT:g} seconds"
        self._timer: DelayedCall = reactor.callLater(COMMAND_TIMEOUT, self.kill, late, Reason.TIME_LIMIT)

    def kill(self, why: str = "stopped", reason: Reason = Reason.PROCESS_CRASHED) -> None:
        """Kill the process and its process group."""
        self._killed = self._killed or CommandError(why, reason)
        if self._pid is not None:
            with suppress(ProcessLookupError):
                self.account.kill_group(self._pid)
        self._end()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._written += data
        if len(self._written) > MAX_OUTPUT:
            self.kill("its output is too long")

    def _end(self) -> None:
        """Give the result. Call this only once the process has ended or was killed: the caller may then remove the
        egg.
        """
        if self._is_over:
            return
        self._is_over = True
        if self._timer.active():
            self._timer.cancel()
        for end in (self, self.complaint):
            read_rest(end)
        if self._killed is None:
            self.result.callback(bytes(self._written))
        else:
            self.result.errback(self._killed)

    def forked(self, pid: int) -> None:
        self._pid = pid
        self.started.callback(pid)
        if self._killed is not None:
            self.kill()

    def exited(self, status: int, _usage: ProcessUsage) -> None:
        self._pid = None
        if status:
            read_rest(self.complaint)
            self.problem = self.complaint.text or Failure(ended_reason(status)).getErrorMessage()
        self._end()

    def lose_zygote(self) -> None:
        """Called when the zygote is gone: kill the process, because nobody will report its end."""
        if self._pid is not None:
            self.kill("what it was forked from has died")
        self._end()

    def start_plainly(self) -> None:
        """Called when the fork has failed: there is no process, and the result is empty."""
        self._end()


class Complaint(Protocol):
    """Keeps the end of what a process writes to stderr."""

    transport: Any

    def __init__(self) -> None:
        self._said = bytearray()

    @property
    def text(self) -> str:
        return self._said.decode("utf-8", "replace").strip()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._said += data
        del self._said[:-MAX_COMPLAINT]


def read_rest(end: Protocol) -> None:
    """Read what was written so far, and stop. Other processes may keep the other end open for ever."""
    transport: Any = end.transport
    if transport is None or transport.disconnected:
        return
    with suppress(BlockingIOError, ConnectionResetError):
        for _ in range(MAX_OUTPUT // _PIECE):
            if not (data := transport.getHandle().recv(_PIECE)):
                break
            end.dataReceived(data)
    transport.abortConnection()


# --- one crawl that is forked from a zygote, from the request on

#: Seconds between two checks whether a process that lost its zygote has ended.
WATCH_INTERVAL = 0.5


class NotStartedError(ProcessTerminated):
    """The process was never started."""

    def __init__(self, why: str, fault: Fault | None = None) -> None:
        super().__init__()
        self.why = why
        self.fault = fault


class ProcessLostError(ProcessTerminated):
    """The process has ended, and its exit code is not known."""


class Start(NamedTuple):
    """All that is needed to start a crawl, forked or spawned."""

    #: The command: an interpreter, `-m`, a module and its arguments.
    args: list[str]
    env: Mapping[str, str]
    folder: Path
    output: Path
    mark: StartedMark
    account: Account
    #: The project's variables. They go through stdin, because others of the same user can read the environment.
    variables: Mapping[str, str] = {}

    def spawn(self, protocol: ProcessProtocol) -> None:
        """Start the crawl without forking a zygote. Raises `OSError`."""
        spawn(
            protocol,
            self.args,
            self.env,
            self.output,
            inherited_fd=self.mark.fd,
            account=self.account,
            variables=self.variables,
        )


class ForkedProcess:
    """A transport for `ProcessProtocol`. Signals that are sent too early are delivered once the process exists."""

    #: Whether a minder ends everything that the process has started, once it has ended.
    is_minded = CAN_MIND

    def __init__(self, protocol: ProcessProtocol, start: Start) -> None:
        self.pid: int | None = None
        self.usage: ProcessUsage | None = None
        self.start = start
        self._protocol = protocol
        self._alive = True
        self._early: int | None = None
        self._watch: LoopingCall | None = None
        protocol.transport = self  # type: ignore[assignment]  # it has all that is used here

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
        except Exception:  # noqa: BLE001 - the process runs, so its end must be handled
            log.failure("{pid} has started, but its protocol could not be informed", pid=pid)
        if self._early is not None:
            with suppress(ProcessLookupError):
                self.start.account.signal(pid, self._early)

    def exited(self, status: int, usage: ProcessUsage) -> None:
        self.usage = usage
        if self.pid is not None and not self.is_minded:
            self.start.account.kill_group(self.pid)  # what the spider left behind
        self._end(ended_reason(status))

    def lose_zygote(self) -> None:
        """Called when the zygote is gone, so nobody will report the end of the process. Its lock is watched instead,
        after the launcher's own copy of the lock is closed.
        """
        if self.pid is None:
            self._decide()
        elif self._alive:
            self.start.mark.release()
            self._watch = LoopingCall(self._look)
            self._watch.start(WATCH_INTERVAL)

    def start_plainly(self) -> None:
        """Called when the fork has failed: spawn the process instead."""
        if self._early is not None:
            self._end(NotStartedError("asked to stop before it was started"))
            return
        try:
            self.start.spawn(self._protocol)
        except Exception as error:  # noqa: BLE001 - every reason not to start it is the attempt's outcome
            log.failure("cannot start {args}", args=self.start.args)
            self._end(NotStartedError(f"{error}", fault_of(error)))

    def _decide(self) -> None:
        """Find out whether a zygote that died without an answer had forked. A forked child writes its process id into
        the mark before it closes the zygote's socket, so without an id there is no child.
        """
        pid, _ = read_mark(self.start.folder)
        if pid is None:
            self.start_plainly()
        else:
            self.forked(pid)
            self.lose_zygote()

    def _is_there(self) -> bool:
        # without the zygote, the id could belong to another process by now
        return self._alive and (self._watch is None or is_locked(self.start.folder))

    def _look(self) -> None:
        if not is_locked(self.start.folder) and self._watch is not None:
            self._watch.stop()
            self._end(ProcessLostError())

    def _end(self, reason: ProcessDone | ProcessTerminated) -> None:
        self._alive = False
        self._protocol.processEnded(Failure(reason))
