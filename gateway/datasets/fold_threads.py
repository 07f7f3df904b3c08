"""Folds the runs that are due, in a few threads of a worker, so that a run of a million items delays neither dispatch
nor the runs of other users.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import structlog
from attrs import define, field
from pymongo.errors import ConnectionFailure

from gateway.clock import Clock, utc_now
from gateway.datasets.dataset import Dataset, DatasetRun, RunState, scope_of
from gateway.datasets.fold import Fold, LeaseLostError, why_incomplete
from gateway.datasets.fold_queue import LEASE_SECONDS, DueRun, FoldQueue
from gateway.datasets.store import ChangeStore, DatasetStore, RecordStore, RunStore
from gateway.errors import DiscoveryBotError, JobNotFoundError
from gateway.jobs.backoff import backoff
from gateway.jobs.job import Job, JobSignal, Turn
from gateway.jobs.messages import about
from gateway.jobs.store import JobStore
from gateway.repeated_work import Isolation

log = structlog.get_logger()

#: At most this many folds run at once in one worker, and at most this many of them for one user.
AT_ONCE, OF_ONE_USER = 4, 2
#: Seconds for which this worker skips a dataset: one that another worker folds into, and one that cannot be read.
ELSEWHERE_SECONDS, UNREADABLE_SECONDS = 0.5, 30.0
#: A fold is given up after this many failures. Failed connections to MongoDB do not count.
MOST_FAILURES = 6


@define(eq=False, repr=False, slots=False, kw_only=True)
class Folding:
    _jobs: JobStore
    _queue: FoldQueue
    _datasets: DatasetStore
    _records: RecordStore
    _changes: ChangeStore
    _runs: RunStore
    _fold: Fold
    _clock: Clock = utc_now
    #: Seconds.
    _lease: float = LEASE_SECONDS
    #: The datasets (user, name) that threads of this worker fold into now, and how many of them each user has.
    _busy: set[tuple[str, str]] = field(init=False, factory=set)
    _users: Counter[str] = field(init=False, factory=Counter)
    #: The datasets (user, name) that other workers fold into, and the monotonic time until which they are skipped.
    _elsewhere: dict[tuple[str, str], float] = field(init=False, factory=dict)
    _removing: Isolation = field(init=False, factory=lambda: Isolation("deleted_datasets"))
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _threads: ThreadPoolExecutor = field(
        init=False, factory=lambda: ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fold")
    )

    def look(self) -> None:
        """Start to fold the runs that are due, while threads are free. Returns at once. Raises PyMongo's errors."""
        tried: set[tuple[str, str]] = set()
        while (run := self._next(tried)) is not None:
            tried.add((run.user_id, run.dataset.name))
            self._threads.submit(self._work, run)
        self._remove_deleted()

    def close(self) -> None:
        """Start no more folds. Another worker repeats the folds that are under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _next(self, tried: set[tuple[str, str]]) -> DueRun | None:
        """Reserve a thread for a run that is due; `None` if no thread is free, or no run is due."""
        with self._lock:
            if len(self._busy) >= AT_ONCE:
                return None
            users = [user for user, folds in self._users.items() if folds >= OF_ONE_USER]
            now = time.monotonic()
            self._elsewhere = {name: until for name, until in self._elsewhere.items() if until > now}
            run = self._queue.next_due(self._busy | tried | self._elsewhere.keys(), users)
            if run is not None:
                self._busy.add((run.user_id, run.dataset.name))
                self._users[run.user_id] += 1
            return run

    def _work(self, run: DueRun) -> None:
        try:
            self.fold_next(run)
        except Exception as error:  # noqa: BLE001 - no run may end the thread; it is due again
            log.warning("fold_failed", job_id=run.job_id, error=str(error), kind=type(error).__name__)
        finally:
            with self._lock:
                self._busy.discard((run.user_id, run.dataset.name))
                self._users[run.user_id] -= 1

    def fold_next(self, due: DueRun) -> DatasetRun | None:
        """Fold the first run of this run's dataset. Returns `None` if another worker has the dataset, or if its first
        run is not due yet. In these cases, too, the dataset's runs wait before they are tried again.
        """
        if self._dropped(due):
            return None
        try:
            dataset = self._datasets.ensure(due.user_id, due.dataset.name, due.dataset.options)
        except DiscoveryBotError:
            self._queue.wait(due, self._clock() + timedelta(seconds=UNREADABLE_SECONDS))
            raise
        leased = self._datasets.claim(dataset.id, self._lease)
        if leased is None:
            self._elsewhere[due.user_id, due.dataset.name] = time.monotonic() + ELSEWHERE_SECONDS
            return None
        try:
            first = self._queue.first_of(due)
            if first is not None and first.due > self._clock():
                self._queue.wait(due, first.due)
                return None
            return None if first is None else self._fold_one(first, leased.id)
        finally:
            self._datasets.release(leased)

    def _fold_one(self, due: DueRun, dataset_id: str) -> DatasetRun | None:
        dataset = self._datasets.by_id(dataset_id)
        try:
            job = self._jobs.get(due.job_id)
        except JobNotFoundError:
            return None
        if dataset is None or dataset.lease is None or self._dropped(due):
            return None
        with about(job):
            self._datasets.note_project(dataset, job.spec.project)
            try:
                run = self._fold.fold(dataset, job)
            except LeaseLostError:
                return None
            except ConnectionFailure:
                raise
            except Exception as error:
                self._failed(due, job, dataset_id, error)
                raise
            self._queue.done(job.id, held=run.state is RunState.HELD, signal=signal_of(run, job))
            log.info("run_folded", job_id=job.id, state=run.state.value, **run.counts.model_dump())
            return run

    def _failed(self, due: DueRun, job: Job, dataset_id: str, error: Exception) -> None:
        failures = due.failures + 1
        if failures < MOST_FAILURES:
            self._queue.again(job.id, backoff(failures), failures=failures)
            return
        ended = job.finished_at or job.created_at
        failed = DatasetRun(
            job_id=job.id,
            dataset=dataset_id,
            state=RunState.FAILED,
            scope=scope_of(job.spec),
            started_at=job.started_at or ended,
            ended_at=ended,
            incomplete=why_incomplete(job),
            message=f"it could not be taken up: {type(error).__name__}: {error}"[:500],
            at=ended,
        )
        self._runs.save(failed)
        self._queue.done(job.id, held=True, signal=signal_of(failed, job))

    def _remove_deleted(self) -> None:
        found = self._datasets.deleted(AT_ONCE, but=self._removing.late)
        self._removing.each(((dataset.id, dataset) for dataset in found), self._remove_some)

    def _remove_some(self, dataset: Dataset) -> None:
        """Remove a batch of the deleted dataset's documents. The dataset itself goes last, because the other
        documents are found by its id.
        """
        if dataset.deleted_at is not None:
            self._queue.forget(dataset.user_id, dataset.name, dataset.deleted_at)
        jobs = self._runs.some_of(dataset.id)
        self._queue.release(jobs)
        self._runs.delete(jobs)
        if not any((jobs, self._records.delete(dataset.id), self._changes.delete(dataset.id))):
            self._datasets.remove(dataset)

    def _dropped(self, run: DueRun) -> bool:
        """Drop the run if its dataset was deleted after the run had ended: it does not belong to a later dataset of
        the same name. Returns whether it was dropped.
        """
        if not self._datasets.was_deleted(run.user_id, run.dataset.name, run.ended):
            return False
        self._queue.done(run.job_id)
        return True


def signal_of(run: DatasetRun, job: Job) -> JobSignal | None:
    """The signal that announces a run that is held, or that has changed its dataset; `None` for any other run. A
    repeated fold makes the same signal.
    """
    if run.state in {RunState.HELD, RunState.FAILED}:
        return JobSignal(turn=Turn.RUN_HELD, at=run.at, attempt=job.attempt, message=run.message)
    counts = run.counts.model_dump(include={"items", "new", "changed", "removed"})
    if run.state is not RunState.PUBLISHED or not any(counts[name] for name in ("new", "changed", "removed")):
        return None
    counts["last_seq"] = run.last_seq or 0
    return JobSignal(turn=Turn.DATASET_CHANGED, at=run.at, attempt=job.attempt, counts=counts)
