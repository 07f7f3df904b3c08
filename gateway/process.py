"""Forking from a warm process: what that process does first, and what makes a fork like a newly started process."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

#: Exit code of a process that does not understand what a newer version has stored. To start it again does not help.
NEWER_STORES = 78
#: The signal handlers that Python starts with.
_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
}


class NotForkableError(RuntimeError):
    """An import has left something behind that a fork would break."""


@contextmanager
def importing_for_forks() -> Iterator[None]:
    """All forks of this process share what the block imports."""
    # imports leave no garbage, and looking for some takes a fifth of the time
    gc.disable()
    yield
    # frozen objects are never looked at again, so their pages stay shared
    gc.freeze()
    gc.enable()


def check_one_thread() -> None:
    """Raises `NotForkableError` if another thread runs: its locks would never be released in a fork."""
    tasks = Path("/proc/self/task")
    threads = len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()
    if threads > 1:
        raise NotForkableError(f"{threads} threads run")


def restore_signals() -> None:
    """Restore the handlers that Python starts with, and unblock all signals: no setting of the parent's remains."""
    signal.set_wakeup_fd(-1)
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all_but(*kept: int) -> None:
    """Close every inherited descriptor but the standard ones and those in `kept`."""
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
        _flush()
        os._exit(code)


def _exit_code(main: Callable[[], object]) -> int:
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    return 0


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # a full disk, or closed
            continue


# --- hides the secrets of a crawl node's processes from the spiders beside them, which run as the same user: the
# password of Scrapyd, and those of the stores, which the tailer has

#: `PR_SET_DUMPABLE` of Linux's prctl(2).
_SET_DUMPABLE = 4


def hide_process() -> None:
    """Let no other process of this user read `/proc/<this process>/environ` or its memory, where Linux can.

    The price is that there are no core dumps. Programs that this process executes are not protected; root reads
    everything anyway.
    """
    _set_dumpable(0)


def show_process() -> None:
    """Undo `hide_process`, in a fork of a process that has hidden itself."""
    _set_dumpable(1)


def _set_dumpable(value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, value, 0, 0, 0)
