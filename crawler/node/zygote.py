"""The warm process that crawls are forked from: `python -m crawler.node.zygote [<runner module>]`.

It has imported the runner and, through the runner's `preload()`, all that a crawl needs. It must have no reactor and
only one thread, or it does not start. Its stdin is a socket to Scrapyd. For each request it forks a child, which runs
the runner's `main()`, and reports the child's process id and later how it ended. It ends when the socket is closed;
its children go on.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from crawler.node.projects import leave_working_directory
from crawler.node.started_mark import note_own_pid
from gateway.crash_points import state_change
from gateway.process import (
    NotForkableError,
    check_one_thread,
    close_all_but,
    hide_process,
    own_children,
    quick_imports,
    redirect,
    restore_signals,
    run_and_end,
    show_process,
)
from gateway.subreaper import CAN_MIND, adopt_descendants, fork_minded

#: `ru_maxrss` counts KiB on Linux and bytes on macOS.
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: Variable with the number of the descriptor from which a crawl reads its project's variables.
VARIABLES_FD = "DISCOVERYBOT_ENV_FD"
#: Signals that are blocked while forking, because a child has no handlers of its own at first.
_HELD_BACK = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


class SpiderZygote:
    def __init__(self, channel: ForkChannel, main: Callable[[], object]) -> None:
        self._channel = channel
        self._main = main
        #: Ids of requests, by the process id of the minder of the request's process (`gateway.subreaper`).
        self._children: dict[int, int] = {}
        self._woken, self._wake = os.pipe()

    def serve(self) -> None:
        """Fork on request until the socket is closed."""
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._channel.send(ready=os.getpid())
        while not self._channel.ended:
            readable, _, _ = select.select([self._channel.fileno(), self._woken], [], [])
            if self._woken in readable:
                os.read(self._woken, 4096)
                self._reap()
            if self._channel.fileno() in readable:
                for request in self._channel.receive():
                    self._fork(request)

    def _fork(self, request: ForkRequest) -> None:
        if self._channel.is_deserted():  # Scrapyd is gone: nobody would enforce the child's limits
            request.close()
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            child, pid = self._divide_for_listing(request) if request.lists else self._divide(request)
        except OSError as error:
            self._channel.send(id=request.id, error=str(error))
        else:
            self._children[child] = request.id
            self._channel.send(id=request.id, pid=pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
            request.close()

    @state_change("node.fork")
    def _divide(self, request: ForkRequest) -> tuple[int, int]:
        """Fork a crawl, and return what `fork_minded` does. Raises `OSError`."""
        return fork_minded(lambda: become(request, self._channel, self._main))

    def _divide_for_listing(self, request: ForkRequest) -> tuple[int, int]:
        """As `_divide`, for a listing, which changes no state."""
        return fork_minded(lambda: run_and_end(lambda: _list(request, self._channel, self._main)))

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    break
                if os.WIFSTOPPED(status):
                    # a project that runs as our user has stopped its minder, which must notice the spider's end
                    os.kill(pid, signal.SIGCONT)
                    continue
                self._end_strays()
                cpu = usage.ru_utime + usage.ru_stime
                memory = usage.ru_maxrss * MAXRSS_UNIT
                if (request := self._children.pop(pid, None)) is not None:
                    self._channel.send(id=request, status=status, cpu=cpu, memory=memory)

    def _end_strays(self) -> None:
        """Kill children that we have not forked: they became ours because their minder was killed."""
        for stray in (own_children() if CAN_MIND else set()) - self._children.keys():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(stray, signal.SIGKILL)


def check_forkable() -> None:
    """Raises `NotForkableError` if there is a reactor, because children would share its descriptors, or another
    thread, because children could never release its locks.
    """
    if "twisted.internet.reactor" in sys.modules:
        raise NotForkableError("a reactor was imported")
    check_one_thread()


def execute() -> None:
    """Become the command that this process was forked for."""
    if mark := os.environ.get("DISCOVERYBOT_MARK_FD"):
        os.set_inheritable(int(mark), True)  # noqa: FBT003 - takes no keyword
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the command would inherit that
    os.execve(sys.orig_argv[0], sys.orig_argv, os.environ)  # noqa: S606 - a command of the launcher's


def _imported(module: str) -> Callable[[], object]:
    with quick_imports():
        runner = importlib.import_module(module)
        getattr(runner, "preload", lambda: None)()
    main: Callable[[], object] = runner.main
    return main


def main() -> None:
    run = _imported(sys.argv[1]) if sys.argv[1:] else execute
    check_forkable()
    # otherwise other processes of this user could read a crawl's variables from this process's descriptors
    hide_process()
    adopt_descendants()
    with suppress(BrokenPipeError, ConnectionResetError):  # Scrapyd is gone
        SpiderZygote(ForkChannel(socket.socket(fileno=0)), run).serve()
    os._exit(0)  # skips the exit handlers that are registered here: they are for the forked processes


# --- what a forked process does to become a crawl, as if it had been started as one


def become(request: ForkRequest, channel: ForkChannel, main: Callable[[], object]) -> NoReturn:
    """Run `main` as the request says, and then end the process."""

    def run() -> None:
        # this must come first, before the zygote's socket is closed: when Scrapyd sees the socket's end, the mark
        # says whether there was a fork
        note_own_pid(request.mark_fd if request.writer_fd is None else request.writer_fd)
        _detach(request, channel)
        main()

    run_and_end(run)


def _list(request: ForkRequest, channel: ForkChannel, main: Callable[[], object]) -> None:
    """Run the command that lists spiders. Its stdout is the descriptor that for a crawl would be the mark."""
    _detach(request, channel)
    os.dup2(answer := int(os.environ.pop("DISCOVERYBOT_MARK_FD")), 1)
    os.close(answer)
    if request.folder is not None:
        leave_working_directory()
        os.chdir(request.folder)
    if main is execute:
        execute()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _detach(request: ForkRequest, channel: ForkChannel) -> None:
    """Give the process a session, descriptors, an environment and signals of its own."""
    os.setsid()
    channel.forget()
    redirect(request.output_fd)
    os.environ.clear()
    os.environ.update(request.env, DISCOVERYBOT_MARK_FD=str(request.mark_fd))
    if request.variables_fd is not None:
        os.dup2(request.variables_fd, 0)
        os.environ[VARIABLES_FD] = "0"
    close_all_but(request.mark_fd)
    if request.variables_fd is None:
        # only after the descriptors are closed: one of them could give access to another crawl's variables
        show_process()
    sys.orig_argv, sys.argv = request.command, request.command[2:]
    random.seed()
    restore_signals()


# --- the socket to Scrapyd: frames of a length (4 bytes, big-endian) and JSON, with descriptors

#: Maximum number of bytes of a frame. A request contains a crawl's command and environment.
MAX_FRAME = 1 << 20
#: How many descriptors come with each request: one for its output, and its mark. Some requests have more: one to
#: write the process id into the mark, which the crawl's own code must not have, and a pipe with the variables, which
#: only the crawl itself may read.
FDS = 2
_LENGTH = struct.Struct("!I")
_READ = 1 << 16
_MAX_FDS = 64


class ForkRequest(NamedTuple):
    id: int
    #: An interpreter, `-m`, a module and its arguments.
    command: list[str]
    env: dict[str, str]
    #: Whether the command lists a project's spiders instead of crawling, and in which folder (`None`: Scrapyd's).
    lists: bool
    folder: str | None
    output_fd: int
    mark_fd: int
    writer_fd: int | None = None
    variables_fd: int | None = None

    def close(self) -> None:
        for fd in (self.output_fd, self.mark_fd, self.writer_fd, self.variables_fd):
            with suppress(OSError):
                if fd is not None:
                    os.close(fd)


class ForkChannel:
    """Frames on a socket. Writing blocks; reading takes what has arrived, even if it is part of a frame."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self.ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, **message: Any) -> None:
        content = json.dumps(message).encode()
        self._connection.sendall(_LENGTH.pack(len(content)) + content)

    def receive(self) -> Iterator[ForkRequest]:
        """The requests that have arrived as a whole. Raises `ValueError` for one that is too large."""
        self._read()
        while (content := self._frame()) is not None:
            message = json.loads(content)
            if message.get("ping"):
                self.send(pong=True)
                continue
            fds: list[Any] = [self._fds.popleft() for _ in range(FDS)]
            fds += [self._fds.popleft() if message.get(name) else None for name in ("notes", "variables")]
            lists, folder = message.get("lists", False), message.get("folder")
            yield ForkRequest(message["id"], message["command"], message["env"], lists, folder, *fds)

    def is_deserted(self) -> bool:
        """Whether the other end is closed, though there may still be something to read."""
        poll = select.poll()
        poll.register(self._connection, 0)  # POLLHUP comes without being asked for
        return bool(poll.poll(0))

    def forget(self) -> None:
        """Detach the socket in a child. Otherwise a later descriptor with the same number could be closed by
        accident.
        """
        self._connection.detach()

    def _read(self) -> None:
        room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        data, ancillary, *_ = self._connection.recvmsg(_READ, room, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i", content)
                self._fds.extend(fds)
        self._buffer += data
        self.ended = not data

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_FRAME:
            raise ValueError(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        content = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return content


if __name__ == "__main__":
    main()
