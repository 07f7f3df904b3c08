"""The files that a crawl has written: images, downloads, feeds, screenshots, and everything else below `files/`.

A spider chooses the names, the kinds and the sizes, so they are not trusted. Each folder on the path to a file is
opened relative to its parent, and no link is followed. Only regular files are opened, and no call blocks. The number
of entries and the depth are limited.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gateway.contract.outbox import FILES, HostileFileError, with_reason

#: A file that the platform writes, so that the folder is a Scrapy project.
SCRAPY_CFG = "scrapy.cfg"
#: The deepest nesting of folders. Scrapy's own pipelines make two levels.
MAX_DEPTH = 32
#: The longest name with its folders, in bytes: the limit of S3.
MAX_NAME = 1000
#: At most this many entries are read for each file that may be stored, so that an endless folder does not block a
#: node.
_LOOKED_AT = 4
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

#: Types of scripts, as HTML names them, and of style sheets.
_ACTIVE = re.compile(r"(java|ecma|j|live)script|text/css", re.IGNORECASE)


def passive_type(kind: str) -> str:
    """The media type with which a file of this type is sent. Scripts and style sheets become plain bytes, because a
    browser could run them in our pages: their policy allows files from this origin.
    """
    return "application/octet-stream" if _ACTIVE.search(kind) else kind


class FoundFile(NamedTuple):
    """A file, or an entry that cannot be stored as a file."""

    #: Its path below `files/`, as text that can be stored.
    name: str
    size: int
    #: Why it cannot be stored.
    problem: str | None = None


def find_files(attempt_folder: Path, most: int) -> Iterator[FoundFile]:
    """The files, in no order. Names that begin with a dot are left out: they are caches and unfinished files.

    If there are far more than `most`, the last one is a `FoundFile` that says so; its empty name sorts it before all
    others. Raises `OSError`, and `FileNotFoundError` if the crawl has written none.
    """
    room = _LOOKED_AT * most
    with ExitStack() as opened:
        top = _open_folder(attempt_folder, "", opened)
        search = _Search(os.fstat(top).st_uid, room)
        yield from search.look_into(top, "")
    if search.room < 0:
        yield FoundFile("", 0, f"there are more than {room} entries; the rest was not looked at")


class _Search:
    """Reads folders by open descriptors. So an entry takes the same time at any depth, which matters because other
    crawls wait meanwhile.
    """

    def __init__(self, owner: int, room: int) -> None:
        self._owner = owner
        #: How many more entries may be read; negative if there were too many.
        self.room = room

    def look_into(self, fd: int, folder: str) -> Iterator[FoundFile]:
        """What is in `folder`, open as `fd`, and below it. Raises `OSError` if it cannot be read."""
        inner: list[str] = []
        with os.scandir(fd) as entries:
            for entry in islice(entries, self.room + 1):
                self.room -= 1
                name = f"{folder}/{entry.name}" if folder else entry.name
                if not _may_be_kept(name):
                    continue
                if (found := _look_at(entry, name, self._owner)) is not None:
                    yield found
                else:
                    inner.append(entry.name)
        for name in inner:
            if self.room >= 0:
                yield from self._look_below(fd, name, f"{folder}/{name}" if folder else name)

    def _look_below(self, fd: int, part: str, folder: str) -> Iterator[FoundFile]:
        try:
            with _opened(part, fd) as below:
                yield from self.look_into(below, folder)
        except OSError as error:
            yield FoundFile(folder, 0, f"the folder cannot be opened: {error.strerror}")


def open_written(attempt_folder: Path, name: str) -> int:
    """A descriptor of this file. Raises `FileNotFoundError`; `HostileFileError` if it is not a readable regular file;
    `OSError`.
    """
    with ExitStack() as opened:
        *folders, last = name.split("/")
        folder = _open_folder(attempt_folder, "/".join(folders), opened)
        try:
            fd = os.open(last, _FILE, dir_fd=folder)
        except OSError as error:
            raise with_reason(error, Path(name)) from error
        try:
            _require_own_file(os.fstat(fd), _owner(attempt_folder), name)
            os.set_blocking(fd, True)
        except BaseException:
            os.close(fd)
            raise
    return fd


def _open_folder(attempt_folder: Path, name: str, opened: ExitStack) -> int:
    """A descriptor, closed with `opened`, of a folder below `files/`. No part of the path to it may be a link."""
    fd: int | None = None
    for part in (str(attempt_folder), FILES, *filter(None, name.split("/"))):
        fd = opened.enter_context(_opened(part, fd))
    assert fd is not None  # noqa: S101 - there are two parts at least
    return fd


@contextmanager
def _opened(folder: str, above: int | None) -> Iterator[int]:
    """A descriptor of the folder, whose path is relative to `above`. Raises `OSError` with the reason."""
    try:
        fd = os.open(folder, _FOLDER, dir_fd=above)
    except OSError as error:
        raise with_reason(error, Path(folder)) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _may_be_kept(name: str) -> bool:
    return name != SCRAPY_CFG and not name.rpartition("/")[2].startswith(".")


def _look_at(entry: os.DirEntry[str], name: str, owner: int) -> FoundFile | None:
    """The entry of this name; `None` for a folder, whose entries are read next."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return FoundFile(name.encode(errors="surrogateescape").decode(errors="replace"), 0, "its name is no UTF-8")
    if size > MAX_NAME:
        return FoundFile(f"{name[:100]}…", 0, f"its name has more than {MAX_NAME} bytes")
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as error:
        return FoundFile(name, 0, str(error.strerror))
    if stat.S_ISDIR(status.st_mode):
        return None if name.count("/") < MAX_DEPTH else FoundFile(name, 0, "it is too deep in folders")
    with suppress(HostileFileError):
        _require_own_file(status, owner, name)
        return FoundFile(name, status.st_size)
    return FoundFile(name, 0, _KINDS.get(stat.S_IFMT(status.st_mode), "it is a hard link to a file of another user"))


_KINDS = {
    stat.S_IFLNK: "it is a link",
    stat.S_IFIFO: "it is a FIFO",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}


def _owner(attempt_folder: Path) -> int:
    """The user who owns the attempt's files. The attempt's folder itself may belong to Scrapyd."""
    return (attempt_folder / FILES).lstat().st_uid


def _require_own_file(status: os.stat_result, owner: int, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise HostileFileError(errno.EINVAL, f"{name} is no file")
    if status.st_nlink > 1 and status.st_uid != owner:
        raise HostileFileError(errno.EINVAL, f"{name} is a hard link to a file of another user")
