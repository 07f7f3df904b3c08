"""Processes for tests that start many. They are forked, as crawls on a node, from a process that has done the
imports.

A new `python -m` takes a second of processor time before it does anything.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import hosts
import pytest

from embedded.stack.parent_death import die_with_parent

ROOT = Path(__file__).parents[2]
#: Most seconds for a process that should end by itself.
_PATIENCE = 120


class Told(NamedTuple):
    """Instructions for a fork."""

    module: str
    arguments: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    stdin: Path
    stdout: Path
    stderr: Path
    #: The network namespace of the thread that starts the process.
    network: Path


class WarmProcess:
    """A forked process with the part of `subprocess.Popen` that tests need."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, signum: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    module: str,
    *arguments: str,
    env: Mapping[str, str],
    cwd: Path,
    stdout: Path,
    stderr: Path | None = None,
    stdin: Path = Path(os.devnull),
) -> WarmProcess:
    """Start the equivalent of `python -m <module> <arguments>` by calling its `main()`. Output is appended to the
    files; if there is only one, both streams go there.
    """
    variables = {name: str(value) for name, value in env.items()}
    network = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")
    told = Told(module, tuple(map(str, arguments)), variables, cwd, stdin, stdout, stderr or stdout, network)
    return WarmProcess(_fork_server().Process(target=_become, args=(told,), name=module, daemon=True))


def run(
    module: str, *arguments: str, env: Mapping[str, str], cwd: Path = ROOT, patience: float = _PATIENCE
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with captured output, for a process that `start` starts."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "stdout", Path(folder) / "stderr"
        code = start(module, *arguments, env=env, cwd=cwd, stdout=out, stderr=err).wait(patience)
        return subprocess.CompletedProcess(arguments, code, out.read_text("utf-8"), err.read_text("utf-8"))


#: A script in place of a command of the shell. It sends its arguments, variables, folder and standard files to us,
#: and exits with the exit code of the process that is forked for it.
_STAND_IN = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
socket.send_fds(connection, [b"+"], [0, 1, 2])
connection.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode())
connection.shutdown(socket.SHUT_WR)
sys.exit(int(connection.recv(16)))
"""


@contextmanager
def command(name: str, module: str) -> Iterator[Path]:
    """A folder for a script's PATH, in which `name <arguments>` does the same as `python -m <module>`."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        address = f"{folder}/socket"
        listener.bind(address)
        listener.listen()
        (path := Path(folder, "bin", name)).parent.mkdir()
        path.write_text(_STAND_IN.format(python=sys.executable, address=address))
        path.chmod(0o755)
        answering = threading.Thread(target=_answer, args=(listener, module))
        answering.start()
        try:
            yield path.parent
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            answering.join()


def _answer(listener: socket.socket, module: str) -> None:
    """Answer until the listener is shut down. Commands that are joined by a pipe run at the same time."""
    with ExitStack() as running:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            one = threading.Thread(target=_run_for, args=(connection, module))
            one.start()
            running.callback(one.join)


def _run_for(connection: socket.socket, module: str) -> None:
    with connection, suppress(BrokenPipeError):  # the command was killed meanwhile
        _, fds, _, _ = socket.recv_fds(connection, 1, 3, socket.MSG_CMSG_CLOEXEC)
        try:
            arguments, env, cwd = json.loads(connection.makefile("rb").read())
            stdin, stdout, stderr = (Path(f"/proc/{os.getpid()}/fd/{fd}") for fd in fds)
            process = start(module, *arguments, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
            connection.sendall(str(process.wait(_PATIENCE)).encode())
        finally:
            for fd in fds:
                os.close(fd)


def ready() -> None:
    """Start the fork server now. A thread that enters a network namespace later would start it there."""
    _fork_server()


@cache
def _fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warm_imports"])
    # before Python 3.12.5 the fork server has another import path than we have (CPython issue 117378)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    return context


def _become(told: Told) -> None:
    # if a run of tests is killed, no platform may stay behind: the warm process ends once nobody has this descriptor
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    die_with_parent(os.getppid(), signal.SIGTERM)
    os.setsid()
    if told.network.exists():  # on Linux
        hosts.enter(told.network)
    sys.stdin = told.stdin.open(encoding="utf-8")
    os.dup2(sys.stdin.fileno(), 0)
    for path, fd in ((told.stdout, 1), (told.stderr, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), fd)
    os.chdir(told.cwd)
    os.environ.clear()
    os.environ.update(told.env)
    time.tzset()
    sys.argv = [told.module, *told.arguments]
    sys.path[:0] = [str(told.cwd), *filter(None, told.env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.exit(importlib.import_module(told.module).main())
