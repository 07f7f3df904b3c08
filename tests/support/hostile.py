"""What a spider may put in the place of a file, so that whoever opens it waits, tells a secret or drowns."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def plant(path: Path, kind: str) -> None:
    """Put it there, whatever is there now."""
    with suppress(FileNotFoundError):
        path.unlink()
    KINDS[kind](path)


def fill_tree(folder: Path, *, depth: int, files: int) -> None:
    """Deeper than a path may be long, with a folder that nobody may open, and names that are no text."""
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
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def _without_end(path: Path) -> None:
    """Four tebibytes, of which the disk has none."""
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
