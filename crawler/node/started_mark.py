"""The mark of an attempt that was started: making and reading it.

The `started` file is made once, and locked for as long as the spider lives. It is locked under a temporary name and
only then linked to its own, so nobody ever sees it unlocked while the attempt runs. The launcher holds the same lock
until the exit report is written: a process that finds the lock free and no report knows that none will be written.

The descriptor that the spider inherits is read-only, because the content of the mark decides the fate of the attempt
and of its node.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from gateway.clock import to_iso
from gateway.contract import outbox
from gateway.crash_points import state_change

#: Least size of a mark in bytes.
_SIZE = 80
#: All process ids are smaller than this.
_PIDS = 1 << 31


class StartedMark:
    """A mark that this process has made. `fd` is inherited by the spider, and with it the lock; `writer` is not."""

    def __init__(self, fd: int, writer: int, started_at: datetime) -> None:
        self.fd = fd
        self.writer = writer
        self.started_at = started_at

    @classmethod
    @state_change("node.mark_started")
    def make(cls, folder: Path, started_at: datetime) -> Self | None:
        """The attempt's mark, or `None` if there is one: it was launched before. Raises `OSError`."""
        temporary = folder / f".{outbox.STARTED}.{uuid.uuid4().hex}"
        writer = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        mark = cls(-1, writer, started_at)
        try:
            mark.fd = _locked(temporary, writer)
            mark._write(None)
            os.link(temporary, folder / outbox.STARTED)
        except FileExistsError:
            mark.release()
            return None
        except BaseException:
            mark.release()
            raise
        finally:
            temporary.unlink()
        return mark

    @state_change("node.note_pid")
    def note_pid(self, pid: int) -> None:
        """Note which process holds the lock, so that the spider can be found after Scrapyd was killed."""
        self._write(pid)

    def release(self) -> None:
        """Close the mark, if that was not done. The lock is free once the spider's own descriptor is closed, too."""
        for fd in {self.fd, self.writer} - {-1}:
            os.close(fd)
        self.fd = self.writer = -1

    def _write(self, pid: int | None) -> None:
        _write_mark(self.writer, to_iso(self.started_at), pid)


@state_change("node.note_fork")
def note_own_pid(fd: int) -> None:
    """Note this process in the mark. A forked spider does this itself, because Scrapyd may be gone by then."""
    _write_mark(fd, json.loads(os.pread(fd, _SIZE, 0))["started_at"], os.getpid())


def read_mark(folder: Path) -> tuple[int | None, datetime | None]:
    """Process id and start according to the mark; `None` where it has no valid value. A project that does not run as
    a Unix user of its own (`NODE_UIDS`) can write anything there.
    """
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        content: dict[str, Any] = json.loads(outbox.read_file(folder / outbox.STARTED))
        pid, moment = content.get("pid"), datetime.fromisoformat(content["started_at"])
        if moment.tzinfo is not None and (pid is None or (type(pid) is int and 1 < pid < _PIDS)):
            return pid, moment
    return None, None


def _locked(path: Path, writer: int) -> int:
    """A descriptor that holds the file's lock: a read-only one, or `writer` if read-only ones cannot be locked.
    Raises `OSError`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EBADF:
            raise
        # NFS locks only descriptors that are open for writing
        fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return writer
    return fd


def _write_mark(fd: int, started_at: str, pid: int | None) -> None:
    # texts are padded and never get shorter, so nothing of an earlier text remains
    os.pwrite(fd, json.dumps({"started_at": started_at, "pid": pid}).encode().ljust(_SIZE), 0)
