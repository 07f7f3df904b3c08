"""Keeps who did what, without keeping anybody waiting.

Entries are written together, twice a second, by a thread of their own: a store that is slow or away delays no answer
and fails no request. They wait for it in memory, up to `MOST`. So a process that is killed loses what was noted in
its last half second, and one that is stopped loses nothing while the store is there; the log has the same calls.
"""

from __future__ import annotations

import threading
from collections import Counter, deque

import structlog
from pymongo.errors import PyMongoError

from gateway.domain.audit import AuditEntry
from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import UnavailableError
from gateway.storage.audit import AuditStore
from gateway.storage.client import truth_store_errors

log = structlog.get_logger()

#: Seconds between two writes.
INTERVAL = 0.5
#: Entries that wait for a store that is away; the oldest make room, and the log says how many.
MOST = 20_000
#: Entries of one write.
_BATCH = 500
#: Addresses that failed logins are told apart by, between two writes.
_ADDRESSES = 500
_OTHERS = "others"
#: Seconds that a process waits at its end.
_STOP_PATIENCE = 4.0


class AuditTrail:
    """Any thread may note."""

    def __init__(self, store: AuditStore, clock: Clock = utc_now) -> None:
        self._store = store
        self._clock = clock
        self._waiting: deque[AuditEntry] = deque()
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._lost = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Once what is noted is written, if it can be."""
        self._stopping.set()
        self._thread.join(_STOP_PATIENCE)
        if self._waiting:
            log.warning("audit_entries_lost", count=len(self._waiting))

    def note(self, entry: AuditEntry) -> None:
        with self._lock:
            if len(self._waiting) >= MOST:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(entry)

    def note_failed_login(self, address: str) -> None:
        with self._lock:
            known = address in self._failures or len(self._failures) < _ADDRESSES
            self._failures[address if known else _OTHERS] += 1

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL):
            self._write()
        self._write()

    def _write(self) -> None:
        try:
            with truth_store_errors():
                self._write_entries()
                self._write_failures()
        except UnavailableError as error:
            log.warning("audit_waits", reason=error.message, waiting=len(self._waiting))
        except PyMongoError:
            log.exception("audit_entries_refused")

    def _write_entries(self) -> None:
        if self._lost:
            log.warning("audit_entries_lost", count=self._lost)
            self._lost = 0
        while self._waiting:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            try:
                with truth_store_errors():
                    self._store.insert(batch)
            except UnavailableError:
                with self._lock:
                    self._waiting.extendleft(reversed(batch))
                raise

    def _write_failures(self) -> None:
        with self._lock:
            failures, self._failures = self._failures, Counter()
        if not failures:
            return
        try:
            with truth_store_errors():
                self._store.note_failures(self._clock(), failures)
        except UnavailableError:
            with self._lock:
                self._failures.update(failures)
            raise
