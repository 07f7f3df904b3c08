"""Removes what has been kept for long enough, a little at a time. Any number may run at once, and die at any moment:
what one has left the next finds again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from redis import RedisError

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import ConflictError, JobNotFoundError, UnreadableError
from gateway.redis.dedupe import DedupeRelease
from gateway.services.deletion import Deletion
from gateway.storage.audit import AuditStore
from gateway.storage.expiry import Ended, ExpiryStore, Part
from gateway.storage.heartbeats import HeartbeatStore
from gateway.storage.items import ItemStore
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import CLAIM_KEPT, IdempotencyKeys
from gateway.storage.ledger import LedgerStore
from gateway.storage.logs import LogStore
from gateway.storage.nodes import NodeStore
from gateway.storage.spiders import SpiderStore
from gateway.storage.unreadable import UnreadableStore

log = structlog.get_logger()

#: Seconds that one run may take; the next is a minute away.
RUN_SECONDS = 20.0
#: Jobs removed between two looks at the clock.
BATCH = 100
#: Entries of the ledger, or of the audit trail, that go by one write.
LEDGER_BATCH = 1000
#: Without a sign of life for so long, and without a job, a node is none any more.
NODE_GONE_AFTER = timedelta(days=7)
#: The same of a process that serves nobody directly.
PROCESS_GONE_AFTER = timedelta(days=1)


class Keep(NamedTuple):
    """How long after a job's end; 0 is for ever."""

    jobs: timedelta
    items: timedelta
    logs: timedelta
    #: After it was noted.
    audit: timedelta = timedelta()


class Retention:
    def __init__(
        self,
        *,
        keep: Keep,
        expiry: ExpiryStore,
        deletion: Deletion,
        dedupe: DedupeRelease,
        items: ItemStore,
        logs: LogStore,
        nodes: NodeStore,
        spiders: SpiderStore,
        sweeps: JobSweeps,
        unreadable: UnreadableStore,
        keys: IdempotencyKeys,
        heartbeats: HeartbeatStore,
        ledger: LedgerStore,
        audit: AuditStore,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep = keep
        self._expiry = expiry
        self._deletion = deletion
        self._dedupe = dedupe
        self._items = items
        self._logs = logs
        self._nodes = nodes
        self._spiders = spiders
        self._sweeps = sweeps
        self._heartbeats = heartbeats
        self._ledger = ledger
        self._audit = audit
        self._clock = clock
        self._monotonic = monotonic
        self._running = threading.Lock()
        self._unreadable = unreadable
        self._keys = keys
        self._passed_over: set[str] = set()

    def run(self) -> None:
        """One round of at most about `RUN_SECONDS`. Nothing happens while another runs in this process."""
        if not self._running.acquire(blocking=False):
            return
        try:
            now, deadline = self._clock(), self._monotonic() + RUN_SECONDS
            self._unreadable.look_again()
            self._forget_nodes(now)
            self._heartbeats.forget(now - PROCESS_GONE_AFTER)
            self._keys.forget(now - CLAIM_KEPT)
            self._remove_part("logs", now, self._keep.logs, deadline)
            self._remove_part("items", now, self._keep.items, deadline)
            self._remove_jobs(now, deadline)
            self._forget_slots(now, deadline)
            self._forget_audit(now, deadline)
        finally:
            self._running.release()

    def _remove_part(self, part: Part, now: datetime, keep: timedelta, deadline: float) -> None:
        if not keep:
            return
        reached = None
        for ended in self._expiry.ended_with(part, now - keep):
            if not self._remove(part, ended, now):
                break
            reached = ended.finished_at
            if self._monotonic() > deadline:
                break
        if reached is not None:
            self._expiry.advance(part, reached)

    def _remove(self, part: Part, ended: Ended, now: datetime) -> bool:
        """Whether that part is gone."""
        if part == "logs":
            self._expiry.mark_removed(ended.job_id, part, now)
            self._logs.delete(ended.job_id)
            return True
        try:
            if ended.dedupe_key:
                self._dedupe.release(ended.dedupe_key, ended.job_id)
        except RedisError as error:
            # the key would answer repeated requests with a job that has no items any more
            log.warning("retention_stopped", job_id=ended.job_id, reason=str(error))
            return False
        self._expiry.mark_removed(ended.job_id, part, now)
        self._items.delete(ended.job_id)
        return True

    def _remove_jobs(self, now: datetime, deadline: float) -> None:
        if not self._keep.jobs:
            return
        for number, job_id in enumerate(self._expiry.settled(now - self._keep.jobs), start=1):
            if not self._remove_job(job_id):
                return
            if number % BATCH == 0 and self._monotonic() > deadline:
                return

    def _remove_job(self, job_id: str) -> bool:
        """Whether to go on with the next."""
        try:
            self._deletion.delete(job_id)
        except JobNotFoundError:
            return True
        except UnreadableError as error:
            self._pass_over(job_id, error)
        except ConflictError as error:
            log.warning("retention_stopped", job_id=job_id, reason=error.message)
            return False
        return True

    def _pass_over(self, job_id: str, error: UnreadableError) -> None:
        """What cannot be read stays for somebody to look at, and does not keep the others."""
        if job_id not in self._passed_over:
            self._passed_over.add(job_id)
            log.error("job_unreadable", job_id=job_id, reason=error.message)

    def _forget_slots(self, now: datetime, deadline: float) -> None:
        """What became of slots, for as long as their jobs are kept."""
        while self._keep.jobs and self._ledger.forget(now - self._keep.jobs, LEDGER_BATCH) == LEDGER_BATCH:
            if self._monotonic() > deadline:
                return

    def _forget_audit(self, now: datetime, deadline: float) -> None:
        while self._keep.audit and self._audit.forget(now - self._keep.audit, LEDGER_BATCH) == LEDGER_BATCH:
            if self._monotonic() > deadline:
                return

    def _forget_nodes(self, now: datetime) -> None:
        for node in self._nodes.all():
            if now - node.heartbeat_at < NODE_GONE_AFTER or node.used_slots or self._sweeps.running_on(node.id):
                continue
            log.info("node_forgotten", node=node.id, last_seen=node.heartbeat_at.isoformat())
            self._nodes.forget(node)
        # in this order: a node registers before it publishes, and publishes anew when it was not known
        published = self._spiders.nodes()
        for name in published - self._nodes.names():
            self._spiders.publish(name, ())
