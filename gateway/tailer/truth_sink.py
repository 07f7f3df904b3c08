"""What goes to MongoDB: everything, and the exit only once the rest is there."""

from __future__ import annotations

from collections.abc import Callable

from gateway.domain.errors import JobNotFoundError, UnavailableError
from gateway.domain.node_files import ITEMS, LOG, AttemptId, Progress
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
        """Ship some of it; whether there may be more. Raises `OSError`, `UnavailableError`, PyMongo's errors."""
        if attempt.checkpoint.acknowledged:
            return False
        is_told, ended = attempt.start_reported, attempt.has_ended
        self._exit.ship_start(attempt)
        if attempt.start_reported and not (is_told or ended):
            # of a short crawl all comes with its end, of any other soon
            return False
        more = self._ship_files(attempt, ended=ended)
        if not ended:
            self._ship_progress(attempt)
        elif not more and self._log.is_complete(attempt):
            self._end(attempt)
        return more

    def _ship_files(self, attempt: Attempt, *, ended: bool) -> bool:
        """Each for itself: the log arrives though the items cannot be read. Raises `OSError` for those."""
        more, failed = False, None
        ships: dict[str, Callable[[], bool]] = {
            LOG: lambda: self._log.ship(attempt),
            ITEMS: lambda: self._items.ship(attempt, ended=ended),
        }
        for name, ship in ships.items():
            try:
                more |= name not in attempt.checkpoint.lost and ship()
                attempt.was_read(name)
            except OSError as error:
                attempt.not_read(name, error)
                failed = error
        if failed is not None:
            raise failed
        return more

    def _end(self, attempt: Attempt) -> None:
        if not self._exit.ship_exit(attempt):
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
