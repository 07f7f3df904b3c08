"""What a node writes down of an attempt: that it was started, that it is asked to stop, how it ended.

The `started` file is made once, and locked for as long as the spider lives. It is locked under a temporary name and
only then linked to its own, so nobody ever sees it unlocked while the attempt runs. The launcher holds the same lock
until the exit report is written: a process that finds the lock free and no report knows that none will be written.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import uuid
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from twisted.logger import Logger

from gateway.clock import to_iso, utc_now
from gateway.contract import outbox, records
from gateway.contract.outbox import AttemptId, Fault, HostileFileError
from gateway.contract.records import ExitReport, SpiderReport
from gateway.crash_points import state_change
from gateway.errors import DiscoveryBotError

#: Bytes that a mark has at least.
_SIZE = 80


class StartedMark:
    """A mark that this process has made. `fd` is inherited by the spider, and with it the lock."""

    def __init__(self, fd: int, started_at: datetime) -> None:
        self.fd = fd
        self.started_at = started_at

    @classmethod
    @state_change("node.mark_started")
    def make(cls, folder: Path, started_at: datetime) -> Self | None:
        """The attempt's mark, or `None` if there is one: it was launched before. Raises `OSError`."""
        temporary = folder / f".{outbox.STARTED}.{uuid.uuid4().hex}"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            mark = cls(fd, started_at)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mark._write(None)
            os.link(temporary, folder / outbox.STARTED)
        except FileExistsError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        finally:
            temporary.unlink()
        return mark

    @state_change("node.note_pid")
    def note_pid(self, pid: int) -> None:
        """Say who holds the lock, so that the spider can be reached after Scrapyd was killed."""
        self._write(pid)

    def release(self) -> None:
        """Let go, if that was not done. The lock is free once the spider's own copy is gone too."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _write(self, pid: int | None) -> None:
        _write_mark(self.fd, to_iso(self.started_at), pid)


@state_change("node.note_fork")
def note_own_pid(fd: int) -> None:
    """A forked spider says itself that there is a process: Scrapyd, which had it forked, may be gone by then."""
    _write_mark(fd, json.loads(os.pread(fd, _SIZE, 0))["started_at"], os.getpid())


def read_mark(folder: Path) -> tuple[int | None, datetime | None]:
    """Process id and start as the mark tells them; `None` where it does not."""
    try:
        content: dict[str, Any] = json.loads(outbox.read_file(folder / outbox.STARTED))
        return content.get("pid"), datetime.fromisoformat(content["started_at"])
    except (OSError, ValueError, KeyError, AttributeError):
        return None, None


def _write_mark(fd: int, started_at: str, pid: int | None) -> None:
    # the later text is never the shorter one, so there is nothing to cut off
    os.pwrite(fd, json.dumps({"started_at": started_at, "pid": pid}).encode().ljust(_SIZE), 0)


# --- the exit report, in whichever way the attempt ended

log = Logger()


def note_stopping(folder: Path, why: str) -> None:
    """Write it down unless there is a reason already. A disk that is full keeps nobody from stopping."""
    try:
        _write_reason(folder, why)
    except OSError:
        log.failure("cannot write down why {folder} is asked to stop", folder=folder.name)


@state_change("node.note_stopping")
def _write_reason(folder: Path, why: str) -> None:
    outbox.write_exclusively(folder / outbox.STOPPING, why.encode())


#: Bytes of the log that go into a report without the spider's own account: enough for a traceback's end.
LOG_TAIL = 2048


@state_change("node.write_exit")
def write_exit(folder: Path, report: ExitReport) -> bool:
    """Write the attempt's exit report unless there is one; whether it was written. Raises `OSError`."""
    return outbox.write_exclusively(folder / outbox.EXIT, report.model_dump_json(exclude_none=True).encode())


class NodeUnfitError(DiscoveryBotError):
    """This node cannot run any job now; another node may."""

    code = "node_unfit"


def fault_of(error: BaseException | None) -> Fault:
    """Whose fault it is that this did not work. What is in the way of an attempt's files its job has put there."""
    if isinstance(error, HostileFileError | FileExistsError):
        return "job"
    return "node" if isinstance(error, NodeUnfitError | OSError | MemoryError | sqlite3.Error) else "job"


def write_refusal(
    folder: Path, attempt: AttemptId, why: str, *, fault: Fault | None = None, stopped_by: str | None = None
) -> None:
    """The exit report of an attempt that was never started. Raises `OSError`."""
    number, ended_at = attempt.attempt, utc_now()
    write_exit(folder, ExitReport(attempt=number, ended_at=ended_at, refused=why, fault=fault, stopped_by=stopped_by))


def with_account(folder: Path, report: ExitReport) -> ExitReport:
    """`report` with the spider's own account, or else with the end of its log; and whether it left a frontier."""
    account = records.read_record(folder / outbox.REPORT, SpiderReport)
    log_tail = None if account else read_log_tail(folder / outbox.LOG)
    can_go_on = outbox.is_there(folder / outbox.FRONTIER)
    update = {"report": account, "log_tail": log_tail, "can_go_on": can_go_on}
    return report.model_copy(update=update)


def read_log_tail(path: Path) -> str | None:
    """The last whole lines of a log, as text; `None` where there is nothing."""
    with suppress(OSError):
        size = outbox.file_size(path)
        tail = outbox.read_part(path, max(0, size - LOG_TAIL), LOG_TAIL)
        if size > LOG_TAIL and b"\n" in tail[:-1]:
            tail = tail.partition(b"\n")[2]
        return tail.decode("utf-8", "replace") or None
    return None


def ended_report(
    attempt: AttemptId,
    started_at: datetime,
    *,
    exit_code: int | None,
    signal: int | None,
    stopped_by: str | None,
    lost: bool = False,
) -> ExitReport:
    return ExitReport(
        attempt=attempt.attempt,
        started_at=started_at,
        ended_at=utc_now(),
        exit_code=exit_code,
        signal=signal,
        stopped_by=stopped_by,
        lost=lost,
    )
