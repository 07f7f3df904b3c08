"""The files that a node writes for an attempt besides its mark: why it is asked to stop, and how it ended."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from gateway.clock import utc_now
from gateway.contract import outbox, records
from gateway.contract.outbox import AttemptId, Fault, HostileFileError
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, SpiderReport
from gateway.crash_points import state_change
from gateway.errors import DiscoveryBotError, StillInstallingError

log = Logger()


def note_stopping(folder: Path, why: str) -> None:
    """Note why the attempt is asked to stop, unless a reason is noted already. Errors are only logged: even with a
    full disk the attempt must be stopped.
    """
    try:
        _write_reason(folder, why)
    except OSError:
        log.failure("cannot write down why {folder} is asked to stop", folder=folder.name)


@state_change("node.note_stopping")
def _write_reason(folder: Path, why: str) -> None:
    outbox.write_exclusively(folder / outbox.STOPPING, why.encode())


# --- the exit report, however the attempt has ended

#: Bytes of the log that go into a report if the spider has left none: enough for the end of a traceback.
LOG_TAIL = 2048


@state_change("node.write_exit")
def write_exit(folder: Path, report: ExitReport) -> bool:
    """Write the attempt's exit report unless there is one; return whether it was written. Raises `OSError`.

    If the attempt's folder is gone, the crawl itself has removed it: the report says so.
    """
    try:
        return records.write_exit(folder, report)
    except FileNotFoundError:
        folder.mkdir(mode=0o700, exist_ok=True)
        return records.write_exit(folder, without_folder(report))


def without_folder(report: ExitReport) -> ExitReport:
    """`report` for an attempt whose folder was removed, without an exit code: the process was killed for that."""
    lost = "the crawl has removed the folder of its attempt"
    return report.model_copy(update={"exit_code": None, "signal": None, "items_lost": lost})


class NodeUnfitError(DiscoveryBotError):
    """This node cannot run the job now; another node might."""

    code = "node_unfit"

    def __init__(self, message: str, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class InstallingError(NodeUnfitError):
    """This node is still installing what an egg depends on."""

    code = StillInstallingError.code


def fault_of(error: BaseException | None) -> Fault:
    """Whose fault the error is. If another file is in the place of one of an attempt's own files, its job put it
    there.
    """
    if isinstance(error, HostileFileError | FileExistsError):
        return "job"
    return "node" if isinstance(error, NodeUnfitError | OSError | MemoryError | sqlite3.Error) else "job"


def reason_behind(error: BaseException | None) -> Reason | None:
    """The error's reason as a code, if it has one."""
    reason = getattr(error, "reason", None)
    return reason if isinstance(reason, Reason) else None


def write_refusal(folder: Path, attempt: AttemptId, why: str, **facts: Any) -> None:
    """Write the exit report of an attempt that was never started; `facts` are further fields. Raises `OSError`."""
    write_exit(folder, ExitReport(attempt=attempt.attempt, ended_at=utc_now(), refused=why, **facts))


def with_account(folder: Path, report: ExitReport) -> ExitReport:
    """`report` with the spider's own report, or else with the end of its log, and with whether it left a frontier."""
    account = records.read_record(outbox.state_dir(folder) / outbox.REPORT, SpiderReport)
    log_tail = None if account else read_log_tail(folder / outbox.LOG)
    can_go_on = outbox.is_there(outbox.state_dir(folder) / outbox.FRONTIER)
    update = {"report": account, "log_tail": log_tail, "can_go_on": can_go_on}
    return report.model_copy(update=update)


def read_log_tail(path: Path) -> str | None:
    """The last complete lines of a log, as text; `None` if there is no log."""
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
