"""How long records are kept, and how they are removed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import structlog
from attrs import define, field
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, PyMongoError, ServerSelectionTimeoutError
from redis import RedisError

from gateway.access.audit import AuditEntry, AuditStore
from gateway.access.key_store import read_key
from gateway.access.saved_views import SavedView
from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.datasets.dataset import Dataset, DatasetRun, ItemChange, Record
from gateway.datasets.upkeep import DatasetUpkeep
from gateway.error_groups.attempt_errors import AttemptErrors, AttemptErrorStore
from gateway.error_groups.ended_runs import EndedRuns
from gateway.error_groups.error_group import ErrorGroup
from gateway.error_groups.store import GROUPS_KEPT, ErrorGroupStore
from gateway.errors import ConflictError, FileStoreAwayError
from gateway.files.store import FileRecord, FileStore
from gateway.items.fields import read_counts
from gateway.items.items import ItemStore, read_item
from gateway.jobs.attempts import AttemptStore, read_attempt
from gateway.jobs.budgets import BUDGETS_KEPT, BudgetDay, Budgets
from gateway.jobs.dedupe import DedupeRelease
from gateway.jobs.job import Job
from gateway.jobs.progress import ProgressSeries, ProgressStore
from gateway.jobs.queries import JobSweeps
from gateway.jobs.run_days import SUMS_KEPT, RunDay, RunDays
from gateway.jobs.store import CLAIM_KEPT, IdempotencyKeys, JobStore
from gateway.logs.store import LogStore
from gateway.nodes.health import HeartbeatStore, read_heartbeat
from gateway.nodes.holds import read_held
from gateway.nodes.store import Node, NodeStore
from gateway.projects.eggs import EggCopy, SpiderStore, read_described, read_egg, read_spider
from gateway.projects.environment import ProjectConfig
from gateway.requests.store import RequestStore, read_chunk
from gateway.retention.windows import Ended, Part, Window, Windows
from gateway.schedules.schedule import LedgerEntry, Schedule
from gateway.schedules.store import LedgerStore, read_static_entry
from gateway.signals.alert_rules import AlertRule
from gateway.signals.alerts import Alert, AlertStore
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.signals.endpoints import Endpoint
from gateway.signals.node_states import read_down
from gateway.signals.signatures import UserSecrets
from gateway.sites.site import Site, Target
from gateway.stores.documents import SET_ASIDE, UNREADABLE, Documents, Reader, Unreadable, reader
from gateway.stores.mongo import Document, mongo_errors
from gateway.stores.redis import dedupe_key

# --- documents that cannot be read are noted, and checked again until they can be read or are deleted

#: How the documents of each collection are read. Unreadable documents of other collections are not checked again.
READERS: dict[str, Reader[Any]] = {
    "jobs": reader(Job),
    "attempts": read_attempt,
    "schedules": reader(Schedule),
    "schedule_ledger": reader(LedgerEntry),
    "sites": reader(Site),
    "targets": reader(Target),
    "nodes": reader(Node),
    "holds": read_held,
    "spiders": read_spider,
    "eggs": lambda document: (read_egg(document), read_described(document)),
    "egg_copies": reader(EggCopy),
    "projects": reader(ProjectConfig),
    "keys": read_key,
    "audit": reader(AuditEntry),
    "saved_views": reader(SavedView),
    "endpoints": reader(Endpoint),
    "deliveries": reader(Delivery),
    "alert_rules": reader(AlertRule),
    "alerts": reader(Alert),
    "webhook_secrets": reader(UserSecrets),
    "node_states": read_down,
    "progress": reader(ProgressSeries),
    "items": read_item,
    "item_fields": read_counts,
    "requests": read_chunk,
    "files": reader(FileRecord),
    "heartbeats": read_heartbeat,
    "datasets": reader(Dataset),
    "dataset_records": reader(Record),
    "dataset_changes": reader(ItemChange),
    "dataset_runs": reader(DatasetRun),
    "run_days": reader(RunDay),
    "budget_days": reader(BudgetDay),
    "attempt_errors": reader(AttemptErrors),
    "error_groups": reader(ErrorGroup),
    "static_entries": read_static_entry,
}
#: One round checks at most this many noted documents.
_BATCH = 1000
#: A time in the past, so that a job that has become readable is due at once.
_LONG_DUE = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadableStore:
    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._noted = database[UNREADABLE]

        #: The note after which the next round continues.
        self._after = ""

    def all(self, limit: int, after: str = "") -> list[Unreadable]:
        found = self._noted.find({"_id": {"$gt": after}} if after else {}).sort("_id", ASCENDING).limit(limit)
        return [Unreadable(one["collection"], one["document"], one["problem"]) for one in found]

    def look_again(self) -> None:
        """Check the next of the noted documents again, and after the last one the first. A document that can be read
        now, because it was repaired or because this version is newer, is no longer set aside.
        """
        noted = self.all(_BATCH, self._after)
        self._after = f"{noted[-1].collection}/{noted[-1].id}" if len(noted) == _BATCH else ""
        for found in noted:
            documents = Documents(self._database[found.collection], READERS.get(found.collection, dict))
            document = documents.collection.find_one({"_id": found.id})
            if document is None or documents.optional(document) is not None:
                self._forget(found)

    @state_change("unreadable.forget")
    def _forget(self, found: Unreadable) -> None:
        # the document before its note: without the note, nothing would check the document again
        back: Document = {"$unset": {SET_ASIDE: ""}}
        if found.collection == "jobs":
            # a waiting job gets its place in the queue again when it is attended to
            back["$set"] = {"attend_at": _LONG_DUE}
        self._database[found.collection].update_one({"_id": found.id, SET_ASIDE: True}, back)
        self._noted.delete_one({"_id": f"{found.collection}/{found.id}"})


# Removes an ended job with all its data; its document goes last, so that a half-done deletion can be seen
@define(eq=False, repr=False, slots=False, kw_only=True)
class Deletion:
    _jobs: JobStore
    _items: ItemStore
    _requests: RequestStore
    _files: FileStore
    _logs: LogStore
    _progress: ProgressStore
    _attempts: AttemptStore
    _attempt_errors: AttemptErrorStore
    _deliveries: DeliveryStore
    _ended: EndedRuns
    _dedupe: DedupeRelease

    def delete(self, job_id: str) -> None:
        """Delete an ended job with all its data. Raises `JobNotFoundError`, `ConflictError` for a job that has not
        ended, `FileStoreAwayError`.
        """
        with mongo_errors():
            job = self._jobs.get(job_id)
            if not job.is_final or not job.settled:
                raise ConflictError(f"only ended jobs can be deleted (it is {job.status})")
            if job.dataset_due or job.dataset_held:
                raise ConflictError(_needed(job))
            if self._ended.add([job]).left:
                raise ConflictError("the job is not in the daily sums, or the groups of its errors, yet; ask again")
            key = dedupe_key(job.user_id, job.spec.spider, job.fingerprint)
            try:
                self._dedupe.release(key, job.id)
            except RedisError as error:
                # the key would answer repeated requests with a job that is gone
                raise ConflictError("the job cannot be deleted while Redis is away; ask again") from error
            self._files.delete(job_id)
            self.delete_all([job_id])

    def delete_all(self, job_ids: Sequence[str]) -> None:
        """Remove jobs that no dedupe key names any more and that have no files."""
        self._items.delete(*job_ids)
        self._requests.delete(*job_ids)
        self._logs.delete(*job_ids)
        self._progress.delete(*job_ids)
        self._attempts.delete(*job_ids)
        self._attempt_errors.delete(*job_ids)
        while self._deliveries.delete_of(job_ids=job_ids, limit=LEDGER_BATCH) == LEDGER_BATCH:
            pass
        self._jobs.delete(*job_ids)


def _needed(job: Job) -> str:
    name = job.spec.dataset.name if job.spec.dataset else ""
    if job.dataset_held:
        return f"its run is held for the dataset {name!r}: accept or reject it first"
    return f"the dataset {name!r} has not taken up its items yet; ask again"


# --- removes data whose retention is over, a little at a time. Any number of runs may overlap, and may die at any
# moment: the next run finds what they have left.

log = structlog.get_logger()

#: Seconds that one run may take; the next one comes a minute later.
RUN_SECONDS = 20.0
#: Seconds after which the removal of data that could not be removed is tried again.
AGAIN_SECONDS = 60.0
#: How many entries of the ledger, or of the audit trail, one write removes.
LEDGER_BATCH = 1000
#: A node without a job and without a heartbeat for this long is forgotten.
NODE_GONE_AFTER = timedelta(days=7)
#: The last heartbeat of a worker or a beat is forgotten after this time.
PROCESS_GONE_AFTER = timedelta(days=1)


class Keep(NamedTuple):
    """How long data is kept after a job's end; 0 means for ever."""

    jobs: timedelta
    items: timedelta
    logs: timedelta
    #: Counted from the time at which an entry was made.
    audit: timedelta = timedelta()
    #: The changes of datasets, counted from the end of their run.
    changes: timedelta = timedelta()
    #: Calls of webhooks and endpoints, counted from the time at which they were made.
    deliveries: timedelta = timedelta()


#: Whether the time for something is over.
IsOver = Callable[[], bool]


@define(eq=False, repr=False, slots=False, kw_only=True)
class Expiry:
    """Removes a part of all jobs that ended in a window, batch by batch."""

    _windows: Windows
    _deletion: Deletion
    _dedupe: DedupeRelease
    _items: ItemStore
    _requests: RequestStore
    _files: FileStore
    _logs: LogStore
    _ended: EndedRuns
    _passed_over: set[str] = field(init=False, factory=set)

    def remove(self, window: Window, is_over: IsOver, *, files: bool) -> bool:
        """Remove this window's data as far as possible. Files, and data that must not be removed before them, are
        removed only if `files` is set. Returns whether there was time for all of it.

        Raises PyMongo's errors, and `RedisError`.
        """
        is_whole = True
        for batch in self._windows.batches(window):
            is_whole &= self._remove(window.part, batch, is_over, files=files)
            if is_whole:
                # jobs that ended at the same moment may be in two batches
                window = window._replace(start=batch[-1].finished_at)
            if is_over():
                self._windows.leave(window)
                return False
        if is_whole:
            self._windows.finish(window)
        else:
            # the window's files come next, at once; data that could not be removed with them is tried again later
            self._windows.leave(window, seconds=AGAIN_SECONDS if files else 0)
        return True

    def _remove(self, part: Part, batch: Sequence[Ended], is_over: IsOver, *, files: bool) -> bool:
        """Remove the part of these jobs. Returns whether all of it is gone. If one job's part cannot be removed, the
        other jobs' parts are removed all the same.
        """
        try:
            return self._remove_together(part, batch, is_over, files=files)
        except PyMongoError as error:
            if isinstance(error, ConnectionFailure):
                raise
            if len(batch) == 1:
                log.warning("not_removed", part=part, job_id=batch[0].job_id, error=str(error))
                return False
        alone = [not is_over() and self._remove(part, [one], is_over, files=files) for one in batch]
        return all(alone)

    def _remove_together(self, part: Part, batch: Sequence[Ended], is_over: IsOver, *, files: bool) -> bool:
        ended = [one for one in batch if part != "jobs" or self._may_go(one)]
        if part != "logs":
            ended = [one for one in ended if not one.is_needed]
        job_ids = [one.job_id for one in ended]
        if part == "logs":
            self._windows.mark_removed(part, job_ids)
            self._logs.delete(*job_ids)
            return True
        # before the data: until then, the keys answer repeated requests with these jobs, which will have no items
        self._dedupe.release_all({one.job_id: one.dedupe_key for one in ended if one.dedupe_key})
        if part == "items":
            self._windows.mark_removed(part, job_ids)
            self._items.delete(*job_ids)
            self._requests.delete(*job_ids)
        with_files = set(self._files.of_any(job_ids))
        if files:
            with_files -= self._remove_files(sorted(with_files), is_over)
        if part == "jobs":
            with_files |= self._ended.add(one.job for one in ended if one.job).left
            self._deletion.delete_all([job_id for job_id in job_ids if job_id not in with_files])
        return not with_files and len(ended) == len(batch)

    def _may_go(self, ended: Ended) -> bool:
        """Whether the job may be removed. One that cannot be read stays, so that an operator can repair it."""
        if ended.job is None and ended.job_id not in self._passed_over:
            self._passed_over.add(ended.job_id)
            log.error("job_unreadable", job_id=ended.job_id)
        return ended.job is not None and ended.job.is_final and bool(ended.job.settled)

    def _remove_files(self, job_ids: Sequence[str], is_over: IsOver) -> set[str]:
        """Remove the jobs' files. Returns the jobs whose files are gone. Some are left if the store is slow or does
        not answer.
        """
        gone: set[str] = set()
        for job_id in job_ids:
            if is_over():
                break
            try:
                self._files.delete(job_id)
            except FileStoreAwayError as error:
                log.warning("files_not_removed", job_id=job_id, reason=error.message)
                break
            gone.add(job_id)
        return gone


@define(eq=False, repr=False, slots=False, kw_only=True)
class Retention:
    _keep: Keep
    _windows: Windows
    _expiry: Expiry
    _nodes: NodeStore
    _spiders: SpiderStore
    _sweeps: JobSweeps
    _unreadable: UnreadableStore
    _keys: IdempotencyKeys
    _heartbeats: HeartbeatStore
    _ledger: LedgerStore
    _audit: AuditStore
    _deliveries: DeliveryStore
    _alerts: AlertStore
    _days: RunDays
    _budgets: Budgets
    _error_groups: ErrorGroupStore
    _datasets: DatasetUpkeep
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _running: threading.Lock = field(init=False, factory=threading.Lock)
    #: Whether this round ran out of time before everything was removed.
    _is_cut: bool = field(init=False, default=False)

    def run(self) -> bool:
        """Run one round of about `RUN_SECONDS` at most. It does nothing while another round runs in this process.
        Returns whether it ran out of time: then the next round should begin at once.
        """
        if not self._running.acquire(blocking=False):
            return False
        try:
            self._is_cut = False
            self._each_step(self._clock(), self._monotonic())
            return self._is_cut
        finally:
            self._running.release()

    def _each_step(self, now: datetime, began: float) -> None:
        """Run all steps. An error of one step is raised after the other steps have run."""
        # each of the three parts gets a third of the time
        logs, items, deadline = (began + RUN_SECONDS * share for share in (1 / 3, 2 / 3, 1))
        failed: Exception | None = None
        for step in (
            self._unreadable.look_again,
            partial(self._forget_nodes, now),
            partial(self._heartbeats.forget, now - PROCESS_GONE_AFTER),
            partial(self._keys.forget, now - CLAIM_KEPT),
            partial(self._remove, "logs", now, self._keep.logs, logs),
            partial(self._remove, "items", now, self._keep.items, items),
            partial(self._remove, "jobs", now, self._keep.jobs, deadline),
            # the decisions on occurrences are kept for as long as their jobs
            partial(self._forget, self._ledger.forget, now, self._keep.jobs, deadline),
            partial(self._forget, self._audit.forget, now, self._keep.audit, deadline),
            partial(self._forget, self._deliveries.forget, now, self._keep.deliveries, deadline),
            partial(self._forget, self._alerts.forget, now, self._keep.deliveries, deadline),
            partial(self._forget, self._days.forget, now, SUMS_KEPT, deadline),
            partial(self._forget, self._budgets.forget, now, BUDGETS_KEPT, deadline),
            partial(self._forget, self._error_groups.forget, now, GROUPS_KEPT, deadline),
            partial(self._keep_up_datasets, now, deadline),
        ):
            try:
                step()
            except ServerSelectionTimeoutError:
                # MongoDB does not answer, so every other step would fail, too
                raise
            except Exception as error:  # noqa: BLE001 - a step that fails every time must not stop the others
                failed = failed or error
        if failed:
            raise failed

    def _is_over(self, deadline: float) -> bool:
        self._is_cut |= (is_over := self._monotonic() > deadline)
        return is_over

    def _remove(self, part: Part, now: datetime, keep: timedelta, deadline: float) -> None:
        """Remove this part of all jobs whose retention is over. Half of the time is for new windows, and half for
        windows that were begun and left. So a slow file store does not delay the removal of other data.
        """
        if not keep:
            return
        half = (self._monotonic() + deadline) / 2
        try:
            self._begin(part, now - keep, partial(self._is_over, half))
            self._take_up(part, partial(self._is_over, deadline))
        except RedisError as error:
            log.warning("retention_stopped", part=part, reason=str(error))

    def _begin(self, part: Part, before: datetime, is_over: IsOver) -> None:
        window = self._windows.begin(part, before)
        while window and self._expiry.remove(window, is_over, files=False):
            window = self._windows.begin(part, before, window.end)

    def _take_up(self, part: Part, is_over: IsOver) -> None:
        while (window := self._windows.take(part)) and self._expiry.remove(window, is_over, files=True):
            pass

    def _forget(
        self, forget: Callable[[datetime, int], int], now: datetime, keep: timedelta, deadline: float
    ) -> None:
        while keep and forget(now - keep, LEDGER_BATCH) == LEDGER_BATCH:
            if self._is_over(deadline):
                return

    def _keep_up_datasets(self, now: datetime, deadline: float) -> None:
        before = now - self._keep.changes if self._keep.changes else None
        self._datasets.run(before, partial(self._is_over, deadline))

    def _forget_nodes(self, now: datetime) -> None:
        for node in self._nodes.all(attempts=False):
            if now - node.heartbeat_at < NODE_GONE_AFTER or node.used_slots or self._sweeps.running_on(node.id):
                continue
            if self._nodes.forget(node):
                log.info("node_forgotten", node=node.id, last_seen=node.heartbeat_at.isoformat())
        # this order is safe: a node registers before it publishes, and publishes again if it was unknown
        published = self._spiders.nodes()
        for name in published - self._nodes.names():
            self._spiders.publish(name, ())
