"""Measures how much disk an attempt takes, and makes all its files readable, with the rights of its own user.

A spider chooses the names, the modes and the depth of its folders. So each folder is opened relative to the one
above, no link is followed, and folders that their owner has closed are opened up. However deep they are, only one
descriptor is open at a time, and there is no recursion.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gateway.contract.outbox import ACTIVE, FRONTIER, ITEMS, LOG, PROGRESS, REPORT, REQUESTS, STATE, AttemptId

#: Bytes of a block in `st_blocks`, on every system.
_BLOCK = 512
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: The crawl's own records, which grow with the crawl. Among them, the log has a limit of its own.
_RECORDS = frozenset({LOG, ITEMS, REQUESTS})
_RECORDS_OF_STATE = frozenset({FRONTIER, PROGRESS, REPORT, ACTIVE})
#: Rights that `open_up` gives to a file, and to a folder.
_READABLE, _OPEN = 0o444, 0o777


class Space(NamedTuple):
    bytes: int
    #: Files, folders and everything else that has a name.
    entries: int
    #: Bytes of the crawl's own records, without its log.
    records: int = 0


class _EnoughError(Exception):
    """A limit is exceeded, so counting can stop."""


def measure(paths: Iterable[Path], most: Space, pids: Iterable[int] = (), elsewhere: int = 0) -> Space:
    """The space that an attempt takes: `paths`, such as the entries of its folder, without its log; files without a
    name that the processes `pids` have open; and `elsewhere` more bytes. Counting ends once a limit of `most` is
    exceeded; 0 is no limit. Raises `OSError` if folders are moved during the walk.
    """
    taken = Space(elsewhere + _unnamed(pids), 0)
    if exceeded(taken, most):
        return taken

    def count(name: str, status: os.stat_result, records: frozenset[str]) -> None:
        nonlocal taken
        size = 0 if name == LOG and name in records else _BLOCK * status.st_blocks
        # a reader reads a record to its end, so its length counts: a sparse file takes less disk than that
        size, recorded = (0, max(size, status.st_size)) if name in records - {LOG} else (size, 0)
        taken = Space(taken.bytes + size, taken.entries + 1, taken.records + recorded)
        if exceeded(taken, most):
            raise _EnoughError

    with suppress(_EnoughError):
        for path in paths:
            with suppress(FileNotFoundError):
                # these names mean records only at the top of an attempt's folder
                is_attempts = AttemptId.parse(path.parent.name) is not None
                count(path.name, path.lstat(), _RECORDS if is_attempts else frozenset())
                records = _RECORDS_OF_STATE if is_attempts and path.name == STATE else frozenset[str]()
                _walk(path, lambda name, status, _: count(name, status, records))  # noqa: B023 - called here
    return taken


def _unnamed(pids: Iterable[int]) -> int:
    """Bytes of the files without a name that these processes have open, such as those of `tempfile.TemporaryFile`.
    They can be found on Linux only.
    """
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
            for descriptor in descriptors:
                with suppress(OSError):
                    status = descriptor.stat()
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                        found[status.st_dev, status.st_ino] = _BLOCK * status.st_blocks
    return sum(found.values())


#: System V's memory, queues and semaphores outlive their process. For each kind: the name of the id's column in
#: `/proc/sysvipc`, and the function that removes one.
_KINDS = {"shm": ("shmid", "shmctl"), "msg": ("msqid", "msgctl"), "sem": ("semid", "semctl")}
_REMOVE = 0


def shared_memory(uid: int) -> int:
    """Bytes of this user's System V shared memory, which is in no folder and need not be open in any process."""
    return sum(int(one["size"]) for one in _system_v("shm", uid))


def remove_system_v(uid: int, before: float) -> None:
    """Remove the System V objects that our own user, `uid`, has made before this time (epoch seconds)."""
    libc = ctypes.CDLL(None)
    for kind, (number, control) in _KINDS.items():
        for one in _system_v(kind, uid):
            if int(one["ctime"]) < before:
                arguments = (int(one[number]), 0) if kind == "sem" else (int(one[number]),)
                getattr(libc, control)(*arguments, _REMOVE, None)


def _system_v(kind: str, uid: int) -> list[dict[str, str]]:
    """The objects of one kind, by the names in the first line; empty if the kernel does not support them."""
    try:
        names, *lines = [line.split() for line in Path("/proc/sysvipc", kind).read_text().splitlines()]
    except OSError:
        return []
    return [one for one in (dict(zip(names, line, strict=False)) for line in lines) if one["uid"] == str(uid)]


def exceeded(taken: Space, most: Space) -> str | None:
    """The name (among `outbox.STOP_REASONS`) of the limit that `taken` exceeds, or `None`."""
    if 0 < most.entries < taken.entries:
        return "entries"
    if 0 < most.records < taken.records:
        return "records"
    return "files" if 0 < most.bytes < taken.bytes else None


def open_up(paths: Iterable[Path]) -> None:
    """Let everybody who can reach these folders read and remove all that is in them. Programs often make files that
    only their owner can read, and rename them later.
    """
    for path in paths:
        with suppress(OSError):
            if stat.S_ISDIR(path.lstat().st_mode):
                path.chmod(stat.S_IMODE(path.lstat().st_mode) | stat.S_IRWXU | stat.S_IRWXG)
                _walk(path, _let_in)


def _let_in(name: str, status: os.stat_result, folder: int) -> None:
    wanted = _OPEN if stat.S_ISDIR(status.st_mode) else _READABLE if stat.S_ISREG(status.st_mode) else 0
    if wanted & ~status.st_mode:
        with suppress(OSError):
            # if the entry is replaced by a link now, that can only change another file of the same user
            os.chmod(name, stat.S_IMODE(status.st_mode) | wanted, dir_fd=folder)


#: A function that is called for each entry, with its name, its status and the folder's descriptor.
_Visit = Callable[[str, os.stat_result, int], None]


def _walk(top: Path, visit: _Visit) -> None:
    """Visit everything below `top`, if that is a folder. Raises `OSError` if a folder was moved on the way back."""
    folder = _enter(str(top), None)
    if folder is None:
        return
    try:
        #: The identity of each folder on the way down, and which of its folders are still to be visited.
        above: list[tuple[tuple[int, int], list[str]]] = []
        left = _look(folder, visit)
        while left or above:
            if not left:
                expected, left = above.pop()
                folder = _replaced(folder, _parent(folder, expected))
            elif (inner := _enter(left.pop(), folder)) is not None:
                above.append((_identity(folder), left))
                folder = _replaced(folder, inner)
                left = _look(folder, visit)
    finally:
        os.close(folder)


def _look(folder: int, visit: _Visit) -> list[str]:
    """Visit all entries of one folder, and return those that are folders."""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                visit(entry.name, status, folder)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.name)
    return folders


def _enter(name: str, folder: int | None) -> int | None:
    """A descriptor of the folder `name`; `None` if it cannot be opened."""
    with suppress(OSError):
        try:
            return os.open(name, _FLAGS, dir_fd=folder)
        except PermissionError:
            os.chmod(name, stat.S_IRWXU, dir_fd=folder)
            return os.open(name, _FLAGS, dir_fd=folder)
    return None


def _parent(folder: int, expected: tuple[int, int]) -> int:
    parent = os.open("..", _FLAGS, dir_fd=folder)
    if _identity(parent) != expected:
        os.close(parent)
        raise OSError("a folder was moved")
    return parent


def _replaced(folder: int, by: int) -> int:
    os.close(folder)
    return by


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino
