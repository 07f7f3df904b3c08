"""The warm process from which the platform's own processes are forked.

The zygote has already imported their modules, so each process starts at once, also after it was killed, and all
processes share the modules in memory. The forks become children of the supervisor, which is possible only on Linux.
On other systems, all processes are started instead.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from setproctitle import setproctitle

from embedded.stack.parent_death import CAN_ADOPT, die_with_parent
from embedded.stack.process import Process, User
from gateway.process import (
    check_one_thread,
    close_all_but,
    quick_imports,
    redirect,
    restore_signals,
    run_and_end,
)

# --- the warm process itself: it imports modules, then forks a process for each request on its socket

#: Sent once, when all modules are imported.
WARM = b"warm"
#: Sent to a fork once the supervisor knows its id.
GO = b"g"
#: The longest message, in bytes.
MAX_MESSAGE = 1 << 16
_FDS = 2


def serve(connection: socket.socket, supervisor: int, modules: Iterable[str]) -> None:
    """Import the modules, and fork on request. Returns when the supervisor has ended or closed the connection."""
    setproctitle("discoverybot: zygote")
    with quick_imports():
        for module in modules:
            importlib.import_module(module)
    check_one_thread()
    connection.send(WARM)
    while True:
        message, fds, _, _ = socket.recv_fds(connection, MAX_MESSAGE, _FDS)
        if not message:
            return
        output, waits = fds
        connection.send(str(_fork_adopted(json.loads(message), supervisor, output, waits)).encode())
        for fd in fds:
            os.close(fd)


def _fork_adopted(request: dict[str, Any], supervisor: int, output: int, waits: int) -> int:
    """Fork a process by way of an intermediate one, and return its id. The intermediate process has ended then, so
    the new process is a child of the supervisor. Raises `OSError` or `ValueError`, which end the zygote.
    """
    reader, writer = os.pipe()
    if (between := os.fork()) == 0:
        try:
            if os.fork() == 0:
                # before the supervisor gets the id, because from then on it may signal the whole group
                os.setsid()
                os.write(writer, str(os.getpid()).encode())
                run_and_end(lambda: _become(request, supervisor, output, waits))
        finally:
            os._exit(0)
    os.close(writer)
    pid = int(os.read(reader, MAX_MESSAGE))
    os.close(reader)
    os.waitpid(between, 0)
    return pid


def _become(request: dict[str, Any], supervisor: int, output: int, waits: int) -> None:
    # the intermediate process has ended by then
    if os.read(waits, len(GO)) != GO:
        return
    redirect(output)
    close_all_but()
    restore_signals()
    if user := request["user"]:
        User(*user).become()
    # last, because a change of the user cancels the signal for the death of the parent
    die_with_parent(supervisor, signal.Signals(request["death_signal"]))
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    for stream in (sys.stdout, sys.stderr):
        # like PYTHONUNBUFFERED
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # as the interpreter has made them
    setproctitle(f"discoverybot: {request['name']}")
    sys.argv = request["argv"]
    sys.path.insert(0, request["cwd"])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


# --- the supervisor's end

#: A fork may take this many seconds. A slower fork does not get `GO`, and ends.
_PATIENCE = 2.0


class StackZygote:
    def __init__(self, pid: int, connection: socket.socket) -> None:
        self._pid = pid
        self._connection = connection
        self._warm = False
        self._warming = asyncio.Lock()
        connection.setblocking(False)  # noqa: FBT003 - takes no keyword

    async def warm_up(self) -> None:
        """Wait for the zygote's imports. Returns at once if they are done, or if the zygote has ended."""
        async with self._warming:
            if self._warm or self._connection.fileno() < 0:
                return
            with suppress(ConnectionError):
                self._warm = await asyncio.get_running_loop().sock_recv(self._connection, len(WARM)) == WARM
            if not self._warm:
                self.close()

    def fork(self, process: Process, cwd: Path, output: int) -> int | None:
        """Fork a child that runs `process.command`, with its output to this descriptor.

        Returns its process id, or `None` if the process has to be started instead.
        """
        if not process.forkable or self._connection.fileno() < 0:
            return None
        request = {
            "name": process.name,
            "argv": process.command[2:],
            "env": dict(process.env),
            "cwd": str(cwd),
            "death_signal": process.death_signal,
            "user": process.user,
        }
        waits, go = os.pipe()
        try:
            pid = self._ask(json.dumps(request).encode(), (output, waits))
            os.write(go, GO)
        except (OSError, ValueError):
            self.close()
            return None
        finally:
            os.close(waits)
            os.close(go)
        return pid

    def _ask(self, message: bytes, fds: tuple[int, ...]) -> int:
        """Ask for a fork. Returns its id. Raises `OSError` or `ValueError` if the zygote does not answer, or cannot
        fork.
        """
        self._connection.settimeout(_PATIENCE)
        socket.send_fds(self._connection, [message], fds)
        return int(self._connection.recv(MAX_MESSAGE))

    def close(self) -> None:
        """End the zygote. The processes that it has forked continue to run."""
        with suppress(ChildProcessError):  # it was reaped already
            if os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
        self._connection.close()


@contextmanager
def warm_zygote(modules: Iterable[str]) -> Iterator[StackZygote | None]:
    """A zygote that imports these modules, until the block ends; `None` if its forks could not become our children.
    This process must have one thread, and no event loop yet.
    """
    if not CAN_ADOPT:
        yield None
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor = os.getpid()
    if (pid := os.fork()) == 0:
        run_and_end(lambda: _become_zygote(theirs, supervisor, modules))
    theirs.close()
    zygote = StackZygote(pid, ours)
    try:
        yield zygote
    finally:
        zygote.close()


def _become_zygote(connection: socket.socket, supervisor: int, modules: Iterable[str]) -> None:
    # a session of its own, so that a Ctrl-C does not reach it
    os.setsid()
    die_with_parent(supervisor, signal.SIGKILL)
    close_all_but(connection.fileno())
    with suppress(ConnectionError):  # the supervisor is gone
        serve(connection, supervisor, modules)
