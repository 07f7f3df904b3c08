"""Forking from a warm process: what that does first, and what a fork does to be as one that was started."""

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

#: As Python has them at its start.
_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
}


class NotForkableError(RuntimeError):
    """What was imported has left something that a fork would break."""


@contextmanager
def importing_for_forks() -> Iterator[None]:
    """What is imported inside is shared by all forks of this process."""
    # nothing that is imported is garbage, and looking for some is a fifth of the time
    gc.disable()
    yield
    # what is there now is never looked at again, so its pages stay shared
    gc.freeze()
    gc.enable()


def check_one_thread() -> None:
    """Raises `NotForkableError`: another thread's locks would never be let go in a fork."""
    tasks = Path("/proc/self/task")
    threads = len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()
    if threads > 1:
        raise NotForkableError(f"{threads} threads run")


def restore_signals() -> None:
    """The handlers that Python starts with, and none held back. Nothing of what the parent had asked for."""
    signal.set_wakeup_fd(-1)
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all_but(*kept: int) -> None:
    """Every descriptor that was inherited, but the standard ones and those named."""
    highest = max(int(name) for name in os.listdir("/dev/fd"))  # noqa: PTH208 - Path.iterdir would open another one
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, highest + 1)


def redirect(output: int) -> None:
    """Nothing comes in, and all that is said goes to that descriptor."""
    for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(source, target)


def run_and_end(main: Callable[[], object]) -> NoReturn:
    """Run `main` as the interpreter runs a program, and end the process. Nothing goes up into the parent's code."""
    code = 1
    try:
        code = _exit_code(main)
        # as the processes of multiprocessing do: executors are told first, then threads are waited for
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


# --- keeping what a process of a crawl node knows from the spiders beside it that run as the same user: the password
# of Scrapyd, and those of the stores, which the tailer has

#: `PR_SET_DUMPABLE` of Linux's prctl(2).
_SET_DUMPABLE = 4


def hide_process() -> None:
    """Let no other process of this user read `/proc/<this process>/environ` or its memory, where Linux can.

    It costs core dumps. What this process executes is as open as ever; root reads everything anyway.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
