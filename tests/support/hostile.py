"""What a spider may put in the place of a file, so that its reader hangs, reveals a secret, or runs out of memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def plant(path: Path, kind: str) -> None:
    """Put it at `path`, replacing what is there."""
    with suppress(FileNotFoundError):
        path.unlink()
    KINDS[kind](path)


def fill_tree(folder: Path, *, depth: int, files: int) -> None:
    """Make a tree deeper than the longest path, with a closed folder, and with names that are not valid text."""
    (folder / "shut").mkdir()
    (folder / "shut" / "file").touch()
    (folder / "shut").chmod(0)
    for number in range(files):
        os.close(os.open(os.fsencode(folder) + b"/\xff\xfe%d" % number, os.O_CREAT | os.O_WRONLY))
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def _without_end(path: Path) -> None:
    """Make a sparse file of four tebibytes."""
    path.touch()
    os.truncate(path, 1 << 42)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": os.mkfifo,
    "socket": _socket,
    "folder": lambda path: path.mkdir(),
    "link to an environment": lambda path: path.symlink_to(f"/proc/{os.getpid()}/environ"),
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "file without end": _without_end,
}
