"""What goes to MongoDB: everything, and the exit only once the rest is there."""

from __future__ import annotations

from gateway.domain.errors import JobNotFoundError, UnavailableError
from gateway.domain.node_files import AttemptId, Progress
from gateway.storage.client import is_passing
from gateway.storage.items import ItemStore
from gateway.storage.jobs import JobStore
from gateway.storage.logs import LogStore
from gateway.tailer.attempt import Attempt
from gateway.tailer.exit_shipper import Completion, ExitShipper
from gateway.tailer.item_shipper import ItemShipper
from gateway.tailer.log_shipper import LogShipper


class TruthSink:
    name = "MongoDB"

    def __init__(self, *, jobs: JobStore, items: ItemStore, logs: LogStore, completion: Completion) -> None:
        self._jobs = jobs
        self._removals = (items.delete, logs.delete)
        self._log = LogShipper(logs)
        self._items = ItemShipper(items)
        self._exit = ExitShipper(completion)

    def ship(self, attempt: Attempt) -> bool:
        """Ship some of what is new; whether there may be more. Raises PyMongo's errors and `UnavailableError`."""
        if attempt.checkpoint.acknowledged:
            return False
        self._exit.ship_start(attempt)
        log_end = attempt.log_end
        more_log = self._log.ship(attempt)
        more_items = self._items.ship(attempt, ended=log_end is not None)
        if log_end is None:
            self._ship_progress(attempt)
        elif not more_items and self._log.is_complete(attempt):
            self._end(attempt, log_end)
            return False
        return more_log or more_items

    def _end(self, attempt: Attempt, log_end: int) -> None:
        if not self._exit.ship_exit(attempt, log_end):
            self._remove_orphans(attempt.id.job_id)
        attempt.checkpoint.acknowledged = True

    def _remove_orphans(self, job_id: str) -> None:
        """A job may be removed while a node is away, with an attempt that was given up for lost: nobody would ever
        find what was shipped since.
        """
        try:
            self._jobs.get(job_id)
        except JobNotFoundError:
            for remove in self._removals:
                remove(job_id)

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, UnavailableError) or is_passing(error)

    def _ship_progress(self, attempt: Attempt) -> None:
        watch = attempt.progress_recorded
        if progress := watch.news():
            self._record(attempt.id, progress)
            watch.told()

    def _record(self, attempt_id: AttemptId, progress: Progress) -> None:
        self._jobs.record_progress(attempt_id.job_id, attempt_id.attempt, progress)
