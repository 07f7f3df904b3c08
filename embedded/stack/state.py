"""`<home>/stack.json`: the addresses of the stack, for the CLI and `doctor`. The next start reads it, too: it uses
the same ports again, and ends processes that a killed supervisor has left behind.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil
from pydantic import BaseModel, Field, ValidationError

FILE = "stack.json"
LOCK = "stack.lock"
#: The bits of a mode for all users but the owner.
_OTHERS = 0o077


class AlreadyRunningError(Exception):
    """Another stack uses this data folder."""


class StackState(BaseModel):
    """The state of the stack. It contains a password, so only the owner may read the file."""

    gateway_url: str
    scrapyd_url: str
    scrapyd_username: str
    scrapyd_password: str
    redis_url: str
    mongo_uri: str
    broker_url: str = ""
    supervisor_pid: int = 0
    #: By name: the ids of the processes that were alive at the last write; empty after an orderly stop.
    pids: dict[str, int] = Field(default_factory=dict)
    #: By name: start times in seconds since the epoch, because ids are used again by later processes.
    started: dict[str, float] = Field(default_factory=dict)
    #: The ports that were picked, to be used again.
    ports: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def read(cls, home: Path) -> Self | None:
        """The state of the stack; `None` if no stack ever ran, or if its file cannot be read."""
        try:
            return cls.model_validate_json((home / FILE).read_bytes())
        except (OSError, ValidationError):
            return None

    def with_pids(self, pids: dict[str, int]) -> Self:
        started = {name: when for name, pid in pids.items() if (when := _start_time(pid)) is not None}
        return self.model_copy(update={"pids": pids, "started": started})

    def write(self, path: Path) -> None:
        """Write the file atomically: a reader sees the old content or the new one."""
        write_private(path, self.model_dump_json(indent=2) + "\n")

    def leftovers(self) -> list[psutil.Process]:
        """The processes of `pids` that still run."""
        found = []
        for name, pid in self.pids.items():
            if self.started.get(name) is not None and _start_time(pid) == self.started[name]:
                with suppress(psutil.Error):
                    found.append(psutil.Process(pid))
        return found


def _start_time(pid: int) -> float | None:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return process.create_time()
    return None


def write_private(path: Path, text: str) -> None:
    """Replace `path` in one step, mode 0600."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(name).replace(path)


def make_private(home: Path) -> None:
    """Remove all rights of other users from the data folder and its content. Raises `OSError`."""
    if not home.stat().st_mode & _OTHERS:
        return
    # the folder itself last, so that the next start continues if this one is interrupted
    for folder, _, files in os.walk(home.resolve(), topdown=False):
        for path in (*(Path(folder, name) for name in files), Path(folder)):
            with suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                if not stat.S_ISLNK(mode):
                    path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


@contextmanager
def only_stack(home: Path) -> Iterator[None]:
    """Lock the data folder; the OS releases the lock if we die. Raises `AlreadyRunningError` if
    another stack has it.
    """
    import fcntl  # noqa: PLC0415 - absent on Windows, where the rest of the CLI works

    with (home / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AlreadyRunningError(
                f"a stack with the data folder {home} runs already (pid {lock.read().strip() or 'unknown'}); "
                "stop it with Ctrl-C there, or give this one a folder of its own with DISCOVERYBOT_HOME"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
