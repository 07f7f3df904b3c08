"""Ends that nobody else reports: processes that vanished with their launcher, and attempts that came too late."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import structlog

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, truncate
from gateway.domain.node_files import (
    EXIT,
    REPORT,
    SPEC,
    STARTED,
    ExitReport,
    HostileFileError,
    NodeSpec,
    SpiderReport,
    is_locked,
    is_there,
    read_part,
    read_record,
    stopping_reason,
    write_exclusively,
)
from gateway.tailer.attempt import Attempt
from gateway.tailer.outbox import is_mark, is_withdrawn, started_at, withdraw

log = structlog.get_logger()

#: Seconds that a launcher has for its own report once the lock is free.
LAUNCHER_GRACE = 3.0
#: How long after its `not_after` an attempt that was never launched is given up.
STALE_AFTER = timedelta(seconds=60)
#: How old a folder without a readable spec may get.
SPEC_AFTER = timedelta(hours=1)
#: Bytes of log that go into a report.
TAIL = 2000


class Endings:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def look(self, attempt: Attempt) -> None:
        """Write the exit report of an attempt that nobody else will write one for. Raises `OSError`."""
        if is_there(attempt.folder / EXIT):
            return
        if is_withdrawn(attempt.folder):
            self._refuse(attempt)
        elif is_there(attempt.folder / STARTED):
            self._look_at_lock(attempt)
        elif self._clock() > self._deadline(attempt) and withdraw(attempt.folder):
            self._refuse(attempt)

    def _look_at_lock(self, attempt: Attempt) -> None:
        if is_locked(attempt.folder):
            attempt.free_since = None
        elif attempt.free_since is None:
            attempt.free_since = time.monotonic()
        elif time.monotonic() - attempt.free_since >= LAUNCHER_GRACE:
            self._report_lost(attempt)

    def _deadline(self, attempt: Attempt) -> datetime:
        spec = read_record(attempt.folder / SPEC, NodeSpec)
        if spec is not None:
            return spec.not_after + STALE_AFTER
        made = datetime.fromtimestamp(attempt.folder.lstat().st_mtime).astimezone()
        return truncate(made) + SPEC_AFTER

    def _report_lost(self, attempt: Attempt) -> None:
        report = read_record(attempt.folder / REPORT, SpiderReport)
        # a mark that is no file was put there by the spider: that is not a node's losing it
        told = is_mark(attempt.folder)
        facts = ExitReport(
            attempt=attempt.id.attempt,
            started_at=started_at(attempt.folder),
            ended_at=self._clock(),
            lost=told,
            exit_code=None if told else 1,
            stopped_by=stopping_reason(attempt.folder),
            report=report,
            log_tail=None if report else _tail(attempt),
        )
        if _write_exit(attempt, facts):
            log.warning("attempt_lost", attempt=str(attempt.id))

    def _refuse(self, attempt: Attempt) -> None:
        facts = ExitReport(attempt=attempt.id.attempt, ended_at=self._clock(), refused="stale", fault="node")
        if _write_exit(attempt, facts):
            log.warning("attempt_stale", attempt=str(attempt.id))


def _tail(attempt: Attempt) -> str | None:
    try:
        tail = read_part(attempt.log_path, max(0, attempt.log_size - TAIL), TAIL)
    except HostileFileError as error:
        return str(error)
    return tail.decode("utf-8", "replace") or None


@state_change("tailer.write_exit")
def _write_exit(attempt: Attempt, facts: ExitReport) -> bool:
    return write_exclusively(attempt.folder / EXIT, facts.model_dump_json(exclude_none=True).encode())
