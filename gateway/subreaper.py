"""A minder is the parent of a process, and becomes the parent of all processes that this process leaves behind. It
kills these, and ends last.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NoReturn

from gateway.process import close_all_but, own_children, prctl, redirect

#: `PR_SET_CHILD_SUBREAPER` and `PR_SET_NAME` of Linux's prctl(2).
_SET_CHILD_SUBREAPER, _SET_NAME = 36, 15
#: The process name of a minder.
MINDER = b"crawl-minder"
#: Whether processes can have a minder.
CAN_MIND = sys.platform == "linux"
_PID = struct.Struct("!q")
_ALL_SIGNALS = signal.valid_signals()


def adopt_descendants() -> None:
    """Make this process the new parent of all processes that its descendants leave behind, even of processes in a
    session of their own, after any number of forks, or with another environment. Linux only.
    """
    prctl(_SET_CHILD_SUBREAPER, 1)


def fork_minded(
    run: Callable[[], NoReturn], rights: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[int, int]:
    """Fork a process that runs `run`, as the child of a minder. Returns the ids of the minder, which is our child,
    and of the process.

    When the process has ended, the minder kills everything that it has left behind; `rights` gives it the rights to
    do so. Then the minder ends with the process's status, and its CPU time includes all these processes. On systems
    without minders, both ids are the process's. Raises `OSError`.
    """
    if not CAN_MIND:
        pid = os.fork()
        if pid == 0:
            run()
        return pid, pid
    read, write = os.pipe()
    try:
        minder = os.fork()
        if minder == 0:
            _mind(run, write, rights)
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as answer:
        content = answer.read(_PID.size)
    if len(content) < _PID.size:
        raise OSError(errno.EAGAIN, "the process could not be forked")
    return minder, _PID.unpack(content)[0]


def _mind(run: Callable[[], NoReturn], told: int, rights: Callable[[], AbstractContextManager[None]]) -> NoReturn:
    status = 255 << 8
    try:
        adopt_descendants()
        ready, begin = os.pipe()
        pid = os.fork()
        if pid == 0:
            _wait_for_minder(ready, begin)
            run()
        # close the parent's descriptors only now, when the process has inherited them
        os.write(told, _PID.pack(pid))
        _withdraw(begin)
        with suppress(BrokenPipeError):  # it was killed meanwhile
            os.write(begin, b"!")
        os.close(begin)
        status = _wait_for_all(pid, rights)
    finally:
        _end_as(status)


def _wait_for_minder(ready: int, begin: int) -> None:
    """Wait until our minder has told our process id and closed the parent's descriptors; end if it has died before
    that. A process that stops its minder earlier would keep the parent waiting for the id, and its own lock locked.
    """
    os.close(begin)
    if not os.read(ready, 1):
        os._exit(255)
    os.close(ready)


def _withdraw(kept: int) -> None:
    """Detach this process: block its signals, leave the terminal, and close all descriptors except `kept` and those
    to `/dev/null`.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
    os.setsid()
    prctl(_SET_NAME, MINDER)
    redirect(os.open(os.devnull, os.O_WRONLY))
    close_all_but(kept)


def _wait_for_all(pid: int, rights: Callable[[], AbstractContextManager[None]]) -> int:
    """Wait for the process, and meanwhile reap other processes that have become our children. Then kill all that are
    left. Returns the wait status of the process.
    """
    while (ended := _ended_child()) != pid:
        os.waitpid(ended, 0)
    with rights(), suppress(ProcessLookupError, PermissionError):
        # the whole group at once, before it forks more; nobody else can get its id before `waitpid`
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    while left := own_children():
        for child in left:
            with rights(), suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        # their children are ours now
        for child in left:
            os.waitpid(child, 0)
    return status


def _ended_child() -> int:
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # noqa: S101 - it is None only with WNOHANG
    return ended.si_pid


def _end_as(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource  # noqa: PLC0415 - rarely needed

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL needs no preparation
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code)
