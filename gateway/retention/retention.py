"""How long things are kept, and how they are removed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import structlog
from attrs import define, field
from pymongo import ASCENDING
from pymongo.database import Database
from redis import RedisError

from gateway.access.audit import AuditEntry, AuditStore
from gateway.access.key_store import read_key
from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.errors import ConflictError, FileStoreAwayError, JobNotFoundError, UnreadableError
from gateway.files.store import FileRecord, FileStore
from gateway.items.fields import read_counts
from gateway.items.items import ItemStore, read_item
from gateway.jobs.attempts import AttemptStore, read_attempt
from gateway.jobs.dedupe import DedupeRelease
from gateway.jobs.job import Job
from gateway.jobs.progress import ProgressSeries, ProgressStore
from gateway.jobs.queries import JobSweeps
from gateway.jobs.store import CLAIM_KEPT, IdempotencyKeys, JobStore
from gateway.logs.store import LogStore
from gateway.nodes.health import HeartbeatStore, read_heartbeat
from gateway.nodes.holds import read_held
from gateway.nodes.store import Node, NodeStore
from gateway.projects.eggs import EggCopy, SpiderStore, read_described, read_egg, read_spider
from gateway.projects.environment import ProjectConfig
from gateway.requests.store import RequestStore, read_chunk
from gateway.schedules.schedule import LedgerEntry, Schedule
from gateway.schedules.store import LedgerStore, read_static_entry
from gateway.sites.site import Site, Target
from gateway.stores.documents import SET_ASIDE, UNREADABLE, Documents, Reader, Unreadable, reader
from gateway.stores.mongo import Document, mongo_errors
from gateway.stores.redis import dedupe_key

#: The parts of a job that can be removed before the job itself.
Part = Literal["logs", "items"]
_OLDEST_FIRST = [("finished_at", ASCENDING)]
_ENDED = ("finished_at", "user_id", "spec.spider", "fingerprint")


class Ended(NamedTuple):
    job_id: str
    finished_at: datetime
    #: The dedupe key in Redis that may name this job as the answer; `None` if its document does not say.
    dedupe_key: str | None


class ExpiryStore:
    """`retention` keeps up to when each part was removed: one document a part, so that no run looks at all jobs."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._retention = database["retention"]

    def settled(self, before: datetime) -> Iterator[str]:
        """Jobs that ended before then, with nothing left to do about their end; the oldest first."""
        query = {"settled": True, "finished_at": {"$lt": before}}
        with self._jobs.find(query, {"_id": 1}).sort(_OLDEST_FIRST).batch_size(100) as found:
            for document in found:
                yield document["_id"]

    def ended_with(self, part: Part, before: datetime) -> Iterator[Ended]:
        """Jobs that ended before then and may still have that part, the oldest first."""
        record = self._retention.find_one({"_id": part})
        since = {"$gte": record["until"]} if record and isinstance(record.get("until"), datetime) else {}
        query = {"finished_at": {"$lt": before, **since}}
        with self._jobs.find(query, _ENDED).sort(_OLDEST_FIRST).batch_size(200) as found:
            for document in found:
                yield Ended(document["_id"], document["finished_at"], _dedupe_key(document))

    @state_change("expiry.mark_removed")
    def mark_removed(self, job_id: str, part: Part, at: datetime) -> None:
        """Set the mark before the part is removed: a job that is read in between must not claim to have the part."""
        mark = f"{part}_removed_at"
        self._jobs.update_one({"_id": job_id, mark: {"$exists": False}}, {"$set": {mark: at}})

    @state_change("expiry.advance")
    def advance(self, part: Part, until: datetime) -> None:
        """Note that the part of every job that ended before `until` is gone."""
        self._retention.update_one({"_id": part}, {"$max": {"until": until}}, upsert=True)


def _dedupe_key(document: Document) -> str | None:
    """Read from the raw fields: a document that is no job must not keep the others from being looked at."""
    try:
        return dedupe_key(document["user_id"], document["spec"]["spider"], document["fingerprint"])
    except (KeyError, TypeError):
        return None


# --- documents that cannot be read: the process that meets one notes it, to look again until it is readable or gone

#: How the documents of each collection are read. A collection that is not named here is not looked at again.
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
    "progress": reader(ProgressSeries),
    "items": read_item,
    "item_fields": read_counts,
    "requests": read_chunk,
    "files": reader(FileRecord),
    "heartbeats": read_heartbeat,
    "static_entries": read_static_entry,
}
#: Notes that one look goes through.
_BATCH = 1000


class UnreadableStore:
    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._noted = database[UNREADABLE]

    def all(self, limit: int) -> list[Unreadable]:
        found = self._noted.find().sort("_id", ASCENDING).limit(limit)
        return [Unreadable(one["collection"], one["document"], one["problem"]) for one in found]

    def look_again(self) -> None:
        """Look at all notes again. A document that was mended, here or by a newer version, counts like all others."""
        for found in self.all(_BATCH):
            documents = Documents(self._database[found.collection], READERS.get(found.collection, dict))
            document = documents.collection.find_one({"_id": found.id})
            if document is None or documents.optional(document) is not None:
                self._forget(found)

    @state_change("unreadable.forget")
    def _forget(self, found: Unreadable) -> None:
        # the document first: without its note, nothing would come back to it
        back: Document = {"$unset": {SET_ASIDE: ""}}
        if found.collection == "jobs":
            # a job that waits is ranked anew when it is attended to
            back["$set"] = {"attend_at": utc_now()}
        self._database[found.collection].update_one({"_id": found.id, SET_ASIDE: True}, back)
        self._noted.delete_one({"_id": f"{found.collection}/{found.id}"})


# Removes an ended job with all that it has stored; its document goes last, so that a half-done deletion shows
@define(eq=False, repr=False, slots=False, kw_only=True)
class Deletion:
    _jobs: JobStore
    _items: ItemStore
    _requests: RequestStore
    _files: FileStore
    _logs: LogStore
    _progress: ProgressStore
    _attempts: AttemptStore
    _dedupe: DedupeRelease

    def delete(self, job_id: str) -> None:
        """Raises `JobNotFoundError`, `ConflictError` for a job that has not ended, `FileStoreAwayError`."""
        with mongo_errors():
            job = self._jobs.get(job_id)
            if not job.is_final or not job.settled:
                raise ConflictError(f"only ended jobs can be deleted (it is {job.status})")
            key = dedupe_key(job.user_id, job.spec.spider, job.fingerprint)
            try:
                self._dedupe.release(key, job.id)
            except RedisError as error:
                # the key would answer repeated requests with a job that is gone
                raise ConflictError("the job cannot be deleted while Redis is away; ask again") from error
            self._files.delete(job_id)
            self._items.delete(job_id)
            self._requests.delete(job_id)
            self._logs.delete(job_id)
            self._progress.delete(job_id)
            self._attempts.delete(job_id)
            self._jobs.delete(job_id)


# --- removes what has been kept for long enough, a little at a time. Any number of runs may overlap, and may die at
# any moment: the next run finds what one has left.

log = structlog.get_logger()

#: Seconds that one run may take; the next is a minute away.
RUN_SECONDS = 20.0
#: Jobs removed between two looks at the clock.
BATCH = 100
#: Entries of the ledger, or of the audit trail, that one write removes.
LEDGER_BATCH = 1000
#: A node without a job and without a sign of life for this long is forgotten.
NODE_GONE_AFTER = timedelta(days=7)
#: So is the heartbeat of a worker or a beat without a sign of life for this long.
PROCESS_GONE_AFTER = timedelta(days=1)


class Keep(NamedTuple):
    """How long things are kept after a job's end; 0 is for ever."""

    jobs: timedelta
    items: timedelta
    logs: timedelta
    #: After the entry was noted.
    audit: timedelta = timedelta()


@define(eq=False, repr=False, slots=False, kw_only=True)
class Retention:
    _keep: Keep
    _expiry: ExpiryStore
    _deletion: Deletion
    _dedupe: DedupeRelease
    _items: ItemStore
    _requests: RequestStore
    _files: FileStore
    _logs: LogStore
    _nodes: NodeStore
    _spiders: SpiderStore
    _sweeps: JobSweeps
    _unreadable: UnreadableStore
    _keys: IdempotencyKeys
    _heartbeats: HeartbeatStore
    _ledger: LedgerStore
    _audit: AuditStore
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _running: threading.Lock = field(init=False, factory=threading.Lock)
    _passed_over: set[str] = field(init=False, factory=set)
    #: Whether time was over before something of this round was done.
    _is_cut: bool = field(init=False, default=False)

    def run(self) -> bool:
        """One round of at most about `RUN_SECONDS`. It does nothing while another round runs in this process. Returns
        whether its time was over before all was removed: the next round should begin at once.
        """
        if not self._running.acquire(blocking=False):
            return False
        try:
            now, began, self._is_cut = self._clock(), self._monotonic(), False
            # of the parts, none may leave no time for the others
            logs, items, deadline = (began + RUN_SECONDS * share for share in (1 / 3, 2 / 3, 1))
            self._unreadable.look_again()
            self._forget_nodes(now)
            self._heartbeats.forget(now - PROCESS_GONE_AFTER)
            self._keys.forget(now - CLAIM_KEPT)
            self._remove_part("logs", now, self._keep.logs, logs)
            self._remove_part("items", now, self._keep.items, items)
            self._remove_jobs(now, deadline)
            # the decisions on occurrences are kept for as long as their jobs
            self._forget(self._ledger.forget, now, self._keep.jobs, deadline)
            self._forget(self._audit.forget, now, self._keep.audit, deadline)
            return self._is_cut
        finally:
            self._running.release()

    def _is_over(self, deadline: float) -> bool:
        self._is_cut |= (is_over := self._monotonic() > deadline)
        return is_over

    def _remove_part(self, part: Part, now: datetime, keep: timedelta, deadline: float) -> None:
        if not keep:
            return
        reached, all_gone = None, True
        for ended in self._expiry.ended_with(part, now - keep):
            if not self._may_remove(part, ended):
                break
            all_gone &= self._remove(part, ended, now)
            if all_gone:
                reached = ended.finished_at
            if self._monotonic() > deadline:
                # what cannot be removed now is not tried again at once
                self._is_cut |= all_gone
                break
        if reached is not None:
            self._expiry.advance(part, reached)

    def _may_remove(self, part: Part, ended: Ended) -> bool:
        try:
            if part == "items" and ended.dedupe_key:
                self._dedupe.release(ended.dedupe_key, ended.job_id)
        except RedisError as error:
            # the key would answer repeated requests with a job that has no items any more
            log.warning("retention_stopped", job_id=ended.job_id, reason=str(error))
            return False
        return True

    def _remove(self, part: Part, ended: Ended, now: datetime) -> bool:
        """Remove that part. Returns whether all of it is gone: files stay while their store is away."""
        self._expiry.mark_removed(ended.job_id, part, now)
        if part == "logs":
            self._logs.delete(ended.job_id)
            return True
        self._items.delete(ended.job_id)
        self._requests.delete(ended.job_id)
        try:
            self._files.delete(ended.job_id)
        except FileStoreAwayError as error:
            log.warning("files_not_removed", job_id=ended.job_id, reason=error.message)
            return False
        return True

    def _remove_jobs(self, now: datetime, deadline: float) -> None:
        if not self._keep.jobs:
            return
        for number, job_id in enumerate(self._expiry.settled(now - self._keep.jobs), start=1):
            if not self._remove_job(job_id):
                return
            if number % BATCH == 0 and self._is_over(deadline):
                return

    def _remove_job(self, job_id: str) -> bool:
        """Remove the job. Returns whether to go on with the next."""
        try:
            self._deletion.delete(job_id)
        except JobNotFoundError:
            return True
        except UnreadableError as error:
            # the job stays for an operator to look at, and does not hold up the others
            if job_id not in self._passed_over:
                self._passed_over.add(job_id)
                log.error("job_unreadable", job_id=job_id, reason=error.message)  # noqa: TRY400 - no traceback
        except (ConflictError, FileStoreAwayError) as error:
            log.warning("retention_stopped", job_id=job_id, reason=error.message)
            return False
        return True

    def _forget(
        self, forget: Callable[[datetime, int], int], now: datetime, keep: timedelta, deadline: float
    ) -> None:
        while keep and forget(now - keep, LEDGER_BATCH) == LEDGER_BATCH:
            if self._is_over(deadline):
                return

    def _forget_nodes(self, now: datetime) -> None:
        for node in self._nodes.all(attempts=False):
            if now - node.heartbeat_at < NODE_GONE_AFTER or node.used_slots or self._sweeps.running_on(node.id):
                continue
            if self._nodes.forget(node):
                log.info("node_forgotten", node=node.id, last_seen=node.heartbeat_at.isoformat())
        # in this order: a node registers before it publishes, and publishes anew when it was not known
        published = self._spiders.nodes()
        for name in published - self._nodes.names():
            self._spiders.publish(name, ())
