"""Tools for the start and end of processes: short turns of threads, forks that behave like newly started processes,
and hidden secrets.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

logger = logging.getLogger(__name__)

#: Exit code of a process that does not understand the format of the stored documents. To start it again does not
#: help.
NEWER_STORES = 78
#: The signal handlers that Python starts with.
_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
}


#: Seconds for which a thread may run before another thread gets its turn. A thread waits for its turn after each call
#: to a store: with Python's default of 5 ms, ten calls take half a second if four other threads are busy.
_TURN = 0.0005


def take_short_turns() -> None:
    """Shorten the turns of threads, so that no thread of this process waits long for others that compute."""
    sys.setswitchinterval(_TURN)


class NotForkableError(RuntimeError):
    """The process has something, such as a second thread, that a fork would break."""


@contextmanager
def quick_imports() -> Iterator[None]:
    """A context for the imports of a process, whose memory all forks of this process will share."""
    # imports leave no garbage, and looking for it would take a fifth of the time
    gc.disable()
    try:
        yield
    finally:
        # the garbage collector never visits frozen objects, so their pages stay shared
        gc.freeze()
        gc.enable()


def check_one_thread() -> None:
    """Raises `NotForkableError` if another thread runs, because locks that it holds would never be released in a
    fork.
    """
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
    """Run `main` as the interpreter runs a program, and end this process, a fork. No exception reaches the code that
    forked it.
    """
    code = 1
    try:
        code = _exit_code(main)
        # end as multiprocessing does: tell executors to stop, then wait for threads
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
    """End the process at once: to shut down the interpreter would take longer than many a crawl."""
    # flushing may fail, because the disk is full, or a project has closed or replaced the stream
    with suppress(Exception):
        logging.shutdown()
    for name in ("stdout", "stderr"):
        with suppress(Exception):
            getattr(sys, name).flush()
    os._exit(code)


def leave_in_order(code: int, seconds: float) -> NoReturn:
    """End the process as the interpreter does: wait for threads that are not daemons, and call the exit functions.
    After `seconds`, end it in any case, and log what had not ended.
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


# --- hides secrets of a node's processes (Scrapyd's password, and the tailer's passwords for the stores) from
# spiders, which run as the same user

#: `PR_SET_DUMPABLE` of Linux's prctl(2).
_SET_DUMPABLE = 4


def hide_process() -> None:
    """Keep other processes of this user from reading `/proc/<this process>/environ` and its memory. Linux only.

    The process also makes no core dumps. Programs that it executes are not protected, and root can still read
    everything.
    """
    _set_dumpable(0)


def show_process() -> None:
    """Undo `hide_process` in a fork of a hidden process."""
    _set_dumpable(1)


def _set_dumpable(value: int) -> None:
    prctl(_SET_DUMPABLE, value)


def prctl(option: int, value: int | bytes) -> None:
    """Control this process by the system call of this name on Linux. It does nothing on other systems."""
    if sys.platform == "linux":
        _libc().prctl(option, value, 0, 0, 0)


@cache
def _libc() -> ctypes.CDLL:
    """The C library. It is loaded once and shared by forks: loading is slow, and each crawl would do it
    three times.
    """
    return ctypes.CDLL(None)


# --- all processes, in one pass over /proc


class Seen(NamedTuple):
    """A process as `/proc` showed it at one moment."""

    pid: int
    name: bytes
    parent: int
    group: int
    #: Resident memory in bytes, including memory that it shares with other processes.
    resident: int
    is_zombie: bool


def look_around() -> dict[int, Seen]:
    """All processes of the machine, by id. Linux only."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are enough, and there may be a thousand
        if entry.isdigit():
            with suppress(OSError):  # the process has ended meanwhile
                found[int(entry)] = _seen(int(entry))
    return found


_PAGE = os.sysconf("SC_PAGE_SIZE")


def _seen(pid: int) -> Seen:
    """The process with this id. Raises `OSError`."""
    with open(f"/proc/{pid}/stat", "rb", 0) as file:  # noqa: PTH123 - making a Path would double the time
        content = file.read()
    # a name can contain any character
    end = content.rindex(b")")
    rest = content[end + 2 :].split()
    name = content[content.index(b"(") + 1 : end]
    return Seen(pid, name, int(rest[1]), int(rest[2]), int(rest[21]) * _PAGE, rest[0] in {b"Z", b"X"})


def own_children() -> set[int]:
    """The children of this process, which must have a single thread, including ended ones that were not waited for.
    Linux only.
    """
    pid = os.getpid()
    try:
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()}
    except FileNotFoundError:  # this kernel does not have the file
        return {seen.pid for seen in look_around().values() if seen.parent == pid}
