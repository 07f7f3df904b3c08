"""`python -m crawler.node.unpacking <egg> <folder> <bytes to keep free>` unpacks an egg into the folder of all
contents.

Each content has a folder of its own, `<SHA-256>-<Python>/<Name>-<version>.egg`. In an unpacked egg, namespace
packages, data beside the modules, and C extensions work as if they were installed, and Python finds the egg's
metadata by the folder's name. Scrapyd's user owns everything, and nobody else can write there. Other users can pass
through the folder of all contents but not list it, so they reach only contents whose hash they know.

An egg may be hostile: names in it can lead out of the folder, and a small file can unpack to a large one. Nothing of
the egg is executed here.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import stat
import sys
import time
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from compileall import compile_file
from contextlib import contextmanager, suppress
from email.parser import HeaderParser
from itertools import chain
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import BinaryIO
from uuid import uuid4

from crawler.node.projects import EggError, ProjectCode
from gateway.contract.outbox import CODE, FULL, HostileFileError, is_locked, read_file, remove_tree, write_atomically
from gateway.contract.reasons import Reason
from gateway.crash_points import state_change

#: Name of the folder of all contents, beside the folder of the eggs.
UNPACKED = "unpacked"
#: Prefixes of folders that are not complete yet, and of those that are being removed.
_INCOMING, _REMOVED = ".incoming-", ".removed-"
#: Maximum number of bytes of the file in an attempt's folder that names the code it runs.
_MOST_NOTED = 64 << 10


def prepare(folder: Path, *, shared: bool = False) -> None:
    """Make the folder of all contents, and remove what a killed process has left there. If it is `shared`, other
    users can reach contents whose path they know. Raises `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711 if shared else 0o700)
    for left in (*folder.glob(f"{_INCOMING}*"), *folder.glob(f"{_REMOVED}*")):
        remove_tree(left)


# --- removing what is not used any more


class Holds:
    """The unpacked eggs and virtual environments that crawls use, even if they belong to no version any more.

    They are not locked, because a project that can run an egg can open its folder, and could hold the lock for ever.
    Only Scrapyd removes them. It knows what it has started, and notes that in each attempt's folder for its
    successor.
    """

    def __init__(self) -> None:
        self._held: Counter[Path] = Counter()
        #: What is used by attempts that a former Scrapyd has left running, by the attempt's folder.
        self._left: dict[Path, list[Path]] = {}

    def find_left(self, outbox: Path) -> None:
        """Find what is used by attempts that a former Scrapyd has left running."""
        for record in outbox.glob(f"*/{CODE}"):
            if is_locked(record.parent):
                self._left[record.parent] = _paths_in(record)

    @contextmanager
    def hold(self, code: ProjectCode, folder: Path | None = None) -> Iterator[None]:
        """Keep `code` from being removed during this block, and while the attempt in `folder` runs. Raises
        `FileNotFoundError` if it is already gone, and `OSError`.
        """
        paths = [path for path in (code.egg, code.venv) if path is not None]
        for path in paths:
            path.lstat()
        if folder is not None and paths:
            _note(folder, paths)
        self._held.update(paths)
        try:
            yield
        finally:
            self._held.subtract(paths)

    def paths(self) -> list[Path]:
        self._left = {folder: paths for folder, paths in self._left.items() if is_locked(folder)}
        return [*(+self._held), *chain.from_iterable(self._left.values())]


@state_change("node.note_code")
def _note(folder: Path, paths: list[Path]) -> None:
    write_atomically(folder / CODE, json.dumps([str(path) for path in paths]).encode(), mode=0o600)


def _paths_in(record: Path) -> list[Path]:
    try:
        return [Path(path) for path in json.loads(read_file(record, _MOST_NOTED))]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def take_away(folder: Path, used: Iterable[Path]) -> Iterator[Path]:
    """Rename all contents in `folder` except those that are `used`; yields the folders that are to be removed."""
    kept = {egg.parent.name for egg in used}
    for content in sorted(folder.iterdir()):
        if content.name not in kept and not content.name.startswith("."):
            with suppress(OSError):
                yield _take_away(content)


@state_change("node.take_away")
def _take_away(content: Path) -> Path:
    return content.rename(content.with_name(f"{_REMOVED}{content.name}-{uuid4().hex}"))


# --- unpacking: complete, or absent

#: Limits of an egg: files and folders; bytes when unpacked; levels of folders; characters of a name.
MOST_ENTRIES, MOST_BYTES, _DEEPEST, _LONGEST_NAME = 100_000, 1 << 30, 32, 200
_PIECE = 1 << 18
#: Allowed compression methods: those that Python unpacks with a bounded amount of memory.
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_METADATA, _MOST_METADATA = "EGG-INFO/PKG-INFO", 1 << 20
#: Seconds after which compiling stops. Python compiles the rest when it is imported.
_COMPILE = 30.0


def place(egg: Path, folder: Path, *, keep_free: int = 0) -> Path:
    """The unpacked egg, in the folder of all contents. Raises `EggError` if it cannot be unpacked, and `OSError`,
    also if less than `keep_free` bytes of the disk would remain.
    """
    with egg.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        # its byte code is for this Python
        content = folder / f"{digest}-{sys.implementation.cache_tag}"
        if not content.exists():
            _place(file, content, keep_free)
    return next(content.iterdir())


@state_change("node.unpack")
def _place(file: BinaryIO, content: Path, keep_free: int) -> None:
    new = content.with_name(f"{_INCOMING}{uuid4().hex}")
    try:
        (new / "egg").mkdir(parents=True)
        unpack(file, new / "egg", keep_free)
        _compile(new / "egg")
        (new / "egg").rename(new / _name_of(new / "egg"))
        with suppress(FileExistsError):  # another process was faster
            _rename(new, content)
    finally:
        remove_tree(new)


def _rename(new: Path, content: Path) -> None:
    try:
        new.rename(content)
    except OSError:
        if not content.exists():
            raise
        raise FileExistsError from None


def unpack(file: BinaryIO, folder: Path, keep_free: int = 0) -> None:
    """Unpack an egg into an empty folder. Raises as `place` does."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [(member, _parts(member)) for member in archive.infolist()]
            _check_number(parts for _, parts in members)
            room, free = MOST_BYTES, shutil.disk_usage(folder).free - keep_free
            for member, parts in members:
                size = _extract(archive, member, folder.joinpath(*parts), room, free)
                room, free = room - size, free - size
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise EggError(
            Reason.EGG_UNREADABLE, f"it has two files in one place: {_relative(error.filename, folder)}"
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError) as error:
        raise EggError(Reason.EGG_UNREADABLE, f"the egg cannot be read: {error}") from None


def _parts(member: zipfile.ZipInfo) -> tuple[str, ...]:
    """The member's path in the folder. Raises `EggError` if that leads outside, or if it is not a file or folder."""
    name = member.filename
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise EggError(
            Reason.EGG_UNREADABLE,
            f"{name[:_LONGEST_NAME]!r} in it is a link or a device: put the file itself into the egg",
        )
    parts = tuple(name.removesuffix("/").split("/"))
    if {"", ".", ".."}.intersection(parts) or "\\" in name:
        raise EggError(Reason.EGG_UNREADABLE, f"the name {name[:_LONGEST_NAME]!r} in it leads out of its folder")
    if len(parts) > _DEEPEST or max(map(len, map(os.fsencode, parts))) > _LONGEST_NAME:
        raise EggError(
            Reason.EGG_UNREADABLE, f"the name {name[:_LONGEST_NAME]!r} in it is too long, or lies too deep"
        )
    return parts


def _check_number(every: Iterable[tuple[str, ...]]) -> None:
    entries: set[tuple[str, ...]] = set()
    for parts in every:
        entries.update(parts[:depth] for depth in range(1, len(parts) + 1))
        if len(entries) > MOST_ENTRIES:
            raise EggError(
                Reason.EGG_TOO_LARGE, f"it has more than {MOST_ENTRIES} files and folders: leave data out of the egg"
            )


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, room: int, free: int) -> int:
    """Unpack one member, and return its size, which is counted because the egg's own numbers can be wrong. Allows
    `room` bytes for the egg and `free` bytes on the disk.
    """
    if member.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return 0
    if member.compress_type not in _METHODS:
        raise EggError(
            Reason.EGG_UNREADABLE,
            f"{member.filename!r} in it is compressed in a way that eggs do not use: deflate it",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    written = 0
    with os.fdopen(fd, "wb") as file, archive.open(member) as source:
        while piece := source.read(_PIECE):
            written += len(piece)
            if written > room:
                raise EggError(
                    Reason.EGG_TOO_LARGE,
                    f"it is larger than {MOST_BYTES >> 20} MiB when unpacked: leave data out of the egg",
                )
            if written > free:
                raise OSError(errno.ENOSPC, "the disk of this node is nearly full")
            file.write(piece)
    return written


def _relative(name: str | None, folder: Path) -> str:
    return str(name or "").removeprefix(f"{folder}/")[:_LONGEST_NAME]


def _compile(folder: Path) -> None:
    """Write byte code, because those who run the egg cannot write it. Modules that cannot be compiled are reported
    when they are imported.
    """
    end = time.monotonic() + _COMPILE
    for module in folder.rglob("*.py"):
        if time.monotonic() > end:
            return
        # the sources never change, so Python need not check them
        compile_file(module, quiet=2, force=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)


def _name_of(folder: Path) -> str:
    """The name that the egg's folder must have for Python to find its metadata."""
    try:
        metadata = HeaderParser().parsestr(read_file(folder / _METADATA, _MOST_METADATA).decode("utf-8", "replace"))
    except (OSError, HostileFileError):
        return "project.egg"
    words = (re.sub(r"[^A-Za-z0-9.]+", "_", metadata.get(field, "")) for field in ("Name", "Version"))
    return f"{'-'.join(word[:80].strip('._') or '0' for word in words)}.egg"


# --- the process

#: Limits of unpacking: bytes of memory, seconds of CPU, seconds in all.
_MEMORY, _CPU, _LONGEST = 2 << 30, 55, 90


def main() -> None:
    os.umask(0o022)
    warnings.simplefilter("ignore")  # the compiler warns about other people's code
    signal.alarm(_LONGEST)
    for limit, most in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _CPU), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # the limit is lower already, or unknown to this system
            resource.setrlimit(limit, (most, most))
    try:
        egg, folder, keep_free = sys.argv[1:]
        answer = {"folder": str(place(Path(egg), Path(folder), keep_free=int(keep_free)))}
    except MemoryError:
        answer = {"problem": "it takes too much memory to unpack", "reason": Reason.EGG_TOO_LARGE}
    except EggError as error:
        answer = {"problem": str(error), "reason": error.reason}
    except OSError as error:
        full = {"reason": Reason.DISK_FULL} if error.errno in FULL else {}
        answer = {"unfit": error.strerror or str(error), **full}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
