"""What processes do at their start and end: short turns of threads, forks of a warm process that are like newly
started processes, hidden secrets, and minders.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import logging
import os
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

logger = logging.getLogger(__name__)

#: Exit code of a process that does not understand the format of a newer version's documents. Starting it again does
#: not help.
NEWER_STORES = 78
#: The signal handlers that Python starts with.
_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
}


#: Seconds for which a thread may run before another one has its turn. A thread that makes many short calls to a store
#: waits for a turn after each; with Python's own 5 ms, ten calls take half a second beside four busy threads.
_TURN = 0.0005


def take_short_turns() -> None:
    """Let no thread of this process wait long for another one that computes."""
    sys.setswitchinterval(_TURN)


class NotForkableError(RuntimeError):
    """The process has something, such as a second thread, that a fork would break."""


@contextmanager
def importing_for_forks() -> Iterator[None]:
    """A context whose imports all forks of this process share."""
    # imports leave no garbage, and the search for it takes a fifth of the time
    gc.disable()
    yield
    # the garbage collector never visits frozen objects, so their pages stay shared
    gc.freeze()
    gc.enable()


def check_one_thread() -> None:
    """Raises `NotForkableError` if another thread runs, because its locks would never be released in a fork."""
    tasks = Path("/proc/self/task")
    threads = len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()
    if threads > 1:
        raise NotForkableError(f"{threads} threads run")


def restore_signals() -> None:
    """Restore the handlers that Python starts with, and unblock all signals, so that no setting of the parent
    remains.
    """
    signal.set_wakeup_fd(-1)
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all_but(*kept: int) -> None:
    """Close every inherited descriptor except the standard ones and those in `kept`."""
    highest = max(int(name) for name in os.listdir("/dev/fd"))  # noqa: PTH208 - Path.iterdir would open another one
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, highest + 1)


def redirect(output: int) -> None:
    """Give the process an empty input, and send all its output to the descriptor `output`."""
    for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(source, target)


def run_and_end(main: Callable[[], object]) -> NoReturn:
    """Run `main` as the interpreter runs a program, and end the process. No exception reaches the parent's code."""
    code = 1
    try:
        code = _exit_code(main)
        # as multiprocessing ends its processes: first tell executors to stop, then wait for threads
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way to tell executors
    except BaseException:  # noqa: BLE001 - see above
        traceback.print_exc()
    finally:
        leave(code)


def _exit_code(main: Callable[[], object]) -> int:
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """End at once, because tearing down the interpreter takes longer than many crawls."""
    # flushing may fail: the disk is full, or a project has closed or replaced the stream
    with suppress(Exception):
        logging.shutdown()
    for name in ("stdout", "stderr"):
        with suppress(Exception):
            getattr(sys, name).flush()
    os._exit(code)


def leave_in_order(code: int, seconds: float) -> NoReturn:
    """End as the interpreter does: wait for the threads that are no daemons, call the exit functions, and leave. What
    has not ended after `seconds` is left behind, and the log says so.
    """

    def give_up() -> None:
        left = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
        what = f"threads that have not ended: {', '.join(left)}" if left else "an exit function that has not ended"
        logger.warning("After %g seconds the process leaves behind %s", seconds, what)
        leave(code)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    with suppress(BaseException):  # no exit function may change how the process ends
        timer.start()
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as in `run_and_end`
        atexit._run_exitfuncs()  # noqa: SLF001 - os._exit() calls none, and a fork must not unwind into its parent
    leave(code)


# --- hides the secrets of a crawl node's processes from its spiders, which run as the same user: the password of
# Scrapyd, and the tailer's passwords of the stores

#: `PR_SET_DUMPABLE` of Linux's prctl(2).
_SET_DUMPABLE = 4


def hide_process() -> None:
    """Let no other process of this user read `/proc/<this process>/environ` or its memory. This works on Linux only.

    The price is that there are no core dumps. Programs that this process executes are not protected, and root can
    read everything in any case.
    """
    _set_dumpable(0)


def show_process() -> None:
    """Undo `hide_process`, in a fork of a process that has hidden itself."""
    _set_dumpable(1)


def _set_dumpable(value: int) -> None:
    _prctl(_SET_DUMPABLE, value)


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        _libc().prctl(option, value, 0, 0, 0)


@cache
def _libc() -> ctypes.CDLL:
    """Made once, and shared by forks: each one is a class of its own, and each crawl would make three of them."""
    return ctypes.CDLL(None)


# --- all processes, in one pass over /proc


class Seen(NamedTuple):
    """A process, as it stood in `/proc` at one moment."""

    pid: int
    name: bytes
    parent: int
    group: int
    #: In bytes; memory that it shares with others is counted in full.
    resident: int
    is_zombie: bool


def look_around() -> dict[int, Seen]:
    """All processes of the machine, by id. Linux only."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a name is enough, a thousand times
        if entry.isdigit():
            with suppress(OSError):  # it has ended since
                found[int(entry)] = _seen(int(entry))
    return found


_PAGE = os.sysconf("SC_PAGE_SIZE")


def _seen(pid: int) -> Seen:
    """The process with this id. Raises `OSError`."""
    with open(f"/proc/{pid}/stat", "rb", 0) as file:  # noqa: PTH123 - a Path takes as long as all the rest
        content = file.read()
    # a name can contain any character
    end = content.rindex(b")")
    rest = content[end + 2 :].split()
    name = content[content.index(b"(") + 1 : end]
    return Seen(pid, name, int(rest[1]), int(rest[2]), int(rest[21]) * _PAGE, rest[0] in {b"Z", b"X"})


def own_children() -> set[int]:
    """The children of this process, which has one thread, including those that have ended and were not waited for.
    Linux only.
    """
    pid = os.getpid()
    try:
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()}
    except FileNotFoundError:  # a kernel without it
        return {seen.pid for seen in look_around().values() if seen.parent == pid}


# --- a minder: the parent of a process, and of all processes that this one leaves behind. It ends after all of them

#: `PR_SET_CHILD_SUBREAPER` and `PR_SET_NAME` of Linux's prctl(2).
_SET_CHILD_SUBREAPER, _SET_NAME = 36, 15
#: The process name of a minder.
MINDER = b"crawl-minder"
#: Whether processes can have a minder.
CAN_MIND = sys.platform == "linux"
_PID = struct.Struct("!q")
_ALL_SIGNALS = signal.valid_signals()


def adopt_descendants() -> None:
    """Make this process the new parent of every process that a descendant leaves behind, even one in a session of its
    own, after any number of forks, or with another environment. Linux only.
    """
    _prctl(_SET_CHILD_SUBREAPER, 1)


def fork_minded(
    run: Callable[[], NoReturn], rights: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[int, int]:
    """Fork a process that does `run`, as the child of a minder. Returns the ids of the minder, which is our child,
    and of the process.

    When the process has ended, the minder kills all that it has left behind, with the `rights` of those processes.
    Then the minder ends with the status of the process, and with the CPU time of all that it has started. Where there
    can be no minder, both ids are the process's. Raises `OSError`.
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
        raise OSError(errno.EAGAIN, "it could not be forked")
    return minder, _PID.unpack(content)[0]


def _mind(run: Callable[[], NoReturn], told: int, rights: Callable[[], AbstractContextManager[None]]) -> NoReturn:
    status = 255 << 8
    try:
        adopt_descendants()
        pid = os.fork()
        if pid == 0:
            run()
        # the minder closes its parent's descriptors only now, when the process already has them
        os.write(told, _PID.pack(pid))
        _withdraw()
        status = _wait_for_all(pid, rights)
    finally:
        _end_as(status)


def _withdraw() -> None:
    """Give up this process's signals, terminal and descriptors, except one to `/dev/null`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
    os.setsid()
    _prctl(_SET_NAME, MINDER)
    redirect(os.open(os.devnull, os.O_WRONLY))
    close_all_but()


def _wait_for_all(pid: int, rights: Callable[[], AbstractContextManager[None]]) -> int:
    """Wait for the process, and reap all others that have become our children; then kill all that are left. Returns
    the wait status of the process.
    """
    while (ended := _ended_child()) != pid:
        os.waitpid(ended, 0)
    with rights(), suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # the whole group at once, before it forks on; its id is ours until `waitpid`
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
    assert ended is not None  # noqa: S101 - only with WNOHANG it can be
    return ended.si_pid


def _end_as(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource  # noqa: PLC0415 - only here

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL needs no preparation
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code)
