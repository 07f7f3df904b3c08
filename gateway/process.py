"""What a process does at its start: the turns of its threads; and forks of a warm process, which are to be like newly
started ones.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

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


#: Seconds for which a thread may run before another has its turn. Whoever makes many short calls of a store waits for
#: a turn after each; at Python's own 5 ms a read of ten calls takes half a second beside four busy threads.
_TURN = 0.0005


def take_short_turns() -> None:
    """Have no thread of this process wait long for another one that computes."""
    sys.setswitchinterval(_TURN)


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
    """End at once: tearing down the interpreter takes longer than many a crawl."""
    # a full disk, a stream that is closed, or whatever a project has put in its place
    with suppress(Exception):
        logging.shutdown()
    for name in ("stdout", "stderr"):
        with suppress(Exception):
            getattr(sys, name).flush()
    os._exit(code)


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
    _prctl(_SET_DUMPABLE, value)


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# --- all processes, in one pass over /proc


class Seen(NamedTuple):
    """A process as one look has found it."""

    pid: int
    name: bytes
    parent: int
    group: int
    #: Bytes; those that it shares with others are counted in full.
    resident: int
    is_zombie: bool


def look_around() -> dict[int, Seen]:
    """Every process that there is, by its id. Linux only."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a name is enough, a thousand times
        if entry.isdigit():
            with suppress(OSError):  # it has ended since
                found[int(entry)] = _seen(int(entry))
    return found


_PAGE = os.sysconf("SC_PAGE_SIZE")


def _seen(pid: int) -> Seen:
    """Raises `OSError`."""
    with open(f"/proc/{pid}/stat", "rb", 0) as file:  # noqa: PTH123 - a Path takes as long as all the rest
        content = file.read()
    # a name may hold anything
    end = content.rindex(b")")
    rest = content[end + 2 :].split()
    name = content[content.index(b"(") + 1 : end]
    return Seen(pid, name, int(rest[1]), int(rest[2]), int(rest[21]) * _PAGE, rest[0] in {b"Z", b"X"})


def own_children() -> set[int]:
    """Of this process, which has one thread; also those that have ended, and were not waited for. Linux only."""
    pid = os.getpid()
    try:
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()}
    except FileNotFoundError:  # a kernel without it
        return {seen.pid for seen in look_around().values() if seen.parent == pid}


# --- a minder: the parent of a process, and of all that this leaves behind, however it hides. It ends last

#: `PR_SET_CHILD_SUBREAPER` and `PR_SET_NAME` of Linux's prctl(2).
_SET_CHILD_SUBREAPER, _SET_NAME = 36, 15
#: By which a minder is known among all processes.
MINDER = b"crawl-minder"
#: Processes can be minded.
CAN_MIND = sys.platform == "linux"
_PID = struct.Struct("!q")


def adopt_descendants() -> None:
    """From here on be the parent of whatever a descendant leaves behind: in a session of its own, after any number
    of forks, with any environment. Only Linux can.
    """
    _prctl(_SET_CHILD_SUBREAPER, 1)


def fork_minded(
    run: Callable[[], NoReturn], rights: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[int, int]:
    """Fork a process that does `run`, as the child of a minder: the ids of the minder, which is our child, and of
    that process.

    The minder ends as the process has ended, and with the CPU time of all that it has started, once nothing is left
    of it: what is, it kills, with the `rights` of those processes. Raises `OSError`. Where nothing can be minded,
    there is only the process.
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
        # what this one has of its parent's is let go only now: by then the other has it
        os.write(told, _PID.pack(pid))
        _withdraw()
        status = _wait_for_all(pid, rights)
    finally:
        _end_as(status)


def _withdraw() -> None:
    """No signal, terminal or descriptor is this process's business."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.setsid()
    _prctl(_SET_NAME, MINDER)
    redirect(os.open(os.devnull, os.O_WRONLY))
    close_all_but()


def _wait_for_all(pid: int, rights: Callable[[], AbstractContextManager[None]]) -> int:
    """Wait for the process, reaping what others have left to us; then kill what is left. Its wait status."""
    while (ended := _ended_child()) != pid:
        os.waitpid(ended, 0)
    with rights(), suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # all at once, before they fork on; until it is waited for, it has its number
    _, status = os.waitpid(pid, 0)
    while left := own_children():
        for child in left:
            with rights(), suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        # whatever these had for children is ours now
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
