"""Writes the exports of runs: once a run is published, each export of its dataset is a file of its own.

The queue is in the runs: `exports_due` says when a run's exports are to be written, and is absent once nothing is
left to do. A worker that dies in between leaves it, and the next one writes the same files.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, utc_now
from gateway.datasets.dataset import SHOWN, Dataset, DatasetRun, RunExport
from gateway.datasets.feed import DatasetFeed
from gateway.datasets.fold_plan import BATCH
from gateway.datasets.rows import ChangeRows, RecordRows
from gateway.datasets.store import DatasetStore, RunStore
from gateway.errors import DiscoveryBotError, FileNotStoredError, FileStoreAwayError
from gateway.exports.export import ExportOrder, ExportWhat
from gateway.exports.export_writer import ExportedRun, ExportWriter
from gateway.items.formats import Row
from gateway.jobs.backoff import backoff

log = structlog.get_logger()

#: At most this many runs' exports are written at once by one worker, and at most this many of them for one user.
AT_ONCE, OF_ONE_USER = 4, 2
#: Seconds for which a worker claims a run's exports; it renews the claim while it writes.
LEASE_SECONDS = 60.0
#: A run's exports are given up after this many failures, which takes some hours.
MOST_FAILURES = 100
#: Errors after which another try may succeed. `FileNotStoredError` is one of them: another worker that writes the
#: same export may have moved the temporary file to its place already.
_PASSING = (FileStoreAwayError, FileNotStoredError, PyMongoError, OSError)
#: The delay before the exports of a run whose changes are still being applied are tried again.
_SOON = timedelta(seconds=2)


@define(eq=False, repr=False, slots=False)
class RunRows:
    """A published run as it is exported: the dataset's items right after it, or its changes."""

    _feed: DatasetFeed
    _dataset: Dataset
    _run: DatasetRun

    @property
    def run(self) -> ExportedRun:
        run = self._run
        counts = run.counts.model_dump(include={"items", "new", "changed", "removed"})
        return ExportedRun(run.job_id, run.started_at, self._last, counts)

    @property
    def _last(self) -> int:
        return self._run.last_seq or 0

    def rows(self, what: ExportWhat) -> Iterator[Row]:
        pages: RecordRows | ChangeRows
        if what is ExportWhat.SNAPSHOT:
            pages = RecordRows(self._feed, self._dataset, self._last)
        else:
            until = self._dataset.model_copy(update={"head_seq": self._last})
            pages = ChangeRows(self._feed, until, (self._run.first_seq or 1) - 1, SHOWN)
        while (rows := pages.next(BATCH)) is not None:
            yield from rows


@define(eq=False, repr=False, slots=False, kw_only=True)
class Exporting:
    _runs: RunStore
    _datasets: DatasetStore
    _feed: DatasetFeed
    _writer: ExportWriter
    _clock: Clock = utc_now
    #: Seconds.
    _lease: float = LEASE_SECONDS
    #: How many runs' exports are being written for each user.
    _users: Counter[str] = field(init=False, factory=Counter)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _threads: ThreadPoolExecutor = field(
        init=False, factory=lambda: ThreadPoolExecutor(AT_ONCE, thread_name_prefix="export")
    )

    def look(self) -> None:
        """Begin the exports that are due, as many as there is room for. Returns at once. Raises PyMongo's errors."""
        while (found := self._next()) is not None:
            self._threads.submit(self._work, *found)

    def close(self) -> None:
        """Begin no more exports. Another worker repeats those that are under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> tuple[DatasetRun, str] | None:
        """Claim a run for a free thread; returns it with its user. `None` if no thread is free, or no run is due."""
        with self._lock:
            if self._users.total() >= AT_ONCE:
                return None
            full = [user for user, runs in self._users.items() if runs >= OF_ONE_USER]
        # the place of one user may hang, and a dataset of a million items take minutes
        run = self._runs.claim_exports(self._lease, [one for user in full for one in self._datasets.ids_of(user)])
        if run is None:
            return None
        user = next((one.user_id for one in self._datasets.many([run.dataset], None)), "")
        with self._lock:
            self._users[user] += 1
        return run, user

    def _work(self, run: DatasetRun, user: str) -> None:
        try:
            self.export(run)
        except Exception as error:  # noqa: BLE001 - no run may end the thread; it is due again
            log.warning("export_failed", job_id=run.job_id, error=str(error), kind=type(error).__name__)
        finally:
            with self._lock:
                self._users[user] -= 1

    def export(self, run: DatasetRun) -> list[RunExport]:
        """Write all exports of this run, which the caller has claimed, and store the outcome of each. Raises
        PyMongo's errors.
        """
        dataset = self._datasets.by_id(run.dataset)
        if dataset is None or dataset.deleted_at is not None or run.exports_failures > MOST_FAILURES:
            self._runs.note_exports(run.job_id, run.exports, None)
            return []
        if dataset.applied_seq < (run.last_seq or 0):
            self._runs.note_exports(run.job_id, [], self._clock() + _SOON, run.exports_failures - 1)
            return []
        source = RunRows(self._feed, dataset, run)
        with self._kept(run):
            written = [self._write(dataset, order, source) for order in dataset.exports]
        again = any(may_pass for _, may_pass in written) and run.exports_failures < MOST_FAILURES
        due = self._clock() + backoff(run.exports_failures) if again else None
        exports = [one for one, _ in written]
        self._runs.note_exports(run.job_id, exports, due, run.exports_failures)
        return exports

    def _write(self, dataset: Dataset, order: ExportOrder, source: RunRows) -> tuple[RunExport, bool]:
        """The outcome, and whether another try may succeed where this one failed."""
        told = RunExport(to=order.to, what=order.what, format=order.format)
        try:
            done = self._writer.write(dataset.user_id, order, source)
        except (DiscoveryBotError, PyMongoError, OSError) as error:
            log.warning("export_not_written", dataset=dataset.id, to=order.to, error=str(error))
            return told.model_copy(update={"problem": str(error)[:500]}), isinstance(error, _PASSING)
        log.info("export_written", dataset=dataset.id, to=order.to, what=order.what.value, rows=done.rows)
        return told.model_copy(update={"rows": done.rows, "written_at": done.written_at}), False

    @contextmanager
    def _kept(self, run: DatasetRun) -> Iterator[None]:
        """Renew the claim while the block runs: it may take longer than the claim lasts."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(self._lease / 4):
                # the store may answer again at the next renewal
                with suppress(PyMongoError):
                    self._runs.renew_exports(run.job_id, timedelta(seconds=self._lease))

        keeper = threading.Thread(target=renew, name="export-claim", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
