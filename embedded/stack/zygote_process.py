"""The warm process itself: it imports modules, then forks a process for each request on its socket."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Iterable
from typing import Any

from setproctitle import setproctitle

from embedded.stack.parent_death import die_with_parent
from gateway.process import (
    check_one_thread,
    close_all_but,
    importing_for_forks,
    redirect,
    restore_signals,
    run_and_end,
)

#: Sent once, when all is imported.
WARM = b"warm"
#: Sent to a fork that the supervisor knows of.
GO = b"g"
#: Most bytes of a message.
MAX_MESSAGE = 1 << 16
_FDS = 2


def serve(connection: socket.socket, supervisor: int, modules: Iterable[str]) -> None:
    """Returns when the supervisor is gone, or closes the connection."""
    setproctitle("discoverybot: zygote")
    with importing_for_forks():
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


def _fork_adopted(told: dict[str, Any], supervisor: int, output: int, waits: int) -> int:
    """The id of a process whose parent, which we forked, has ended: it is the supervisor's child by now.

    Raises `OSError` or `ValueError`, which end this process.
    """
    reader, writer = os.pipe()
    if (between := os.fork()) == 0:
        try:
            if os.fork() == 0:
                # before the supervisor knows of it, which may signal the whole group from then on
                os.setsid()
                os.write(writer, str(os.getpid()).encode())
                run_and_end(lambda: _become(told, supervisor, output, waits))
        finally:
            os._exit(0)
    os.close(writer)
    pid = int(os.read(reader, MAX_MESSAGE))
    os.close(reader)
    os.waitpid(between, 0)
    return pid


def _become(told: dict[str, Any], supervisor: int, output: int, waits: int) -> None:
    # the process in between has ended by then
    if os.read(waits, len(GO)) != GO:
        return
    die_with_parent(supervisor, signal.Signals(told["death_signal"]))
    redirect(output)
    close_all_but()
    restore_signals()
    os.chdir(told["cwd"])
    os.environ.update(told["env"])
    for stream in (sys.stdout, sys.stderr):
        # as PYTHONUNBUFFERED would have it
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # as the interpreter has made them
    setproctitle(f"discoverybot: {told['name']}")
    sys.argv = told["argv"]
    sys.path.insert(0, told["cwd"])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
