"""The audit log: who did what. It has an entry for each call, and for each command on the server, that may have
changed something.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import structlog
from pydantic import BaseModel, Field
from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, PyMongoError

from gateway.access.keys import Scope
from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.errors import UnavailableError
from gateway.stores.documents import Documents, page, reader
from gateway.stores.mongo import DUPLICATE_KEY, Document, Repeating, mongo_errors, refusals


class AuditKind(StrEnum):
    """The kinds of entries of the audit log."""

    CALL = "call"
    #: Failed logins, with a wrong key, token or session: one entry per address and hour.
    LOGIN_FAILED = "login_failed"
    #: A command on the server, by an operator who can reach the database.
    COMMAND = "command"


class AuditEntry(BaseModel, extra="forbid", populate_by_name=True):
    """One entry. It contains no request bodies and no secrets. `id` is `_id` in MongoDB."""

    id: str = Field(alias="_id", default_factory=partial(secrets.token_hex, 16))
    at: datetime
    kind: AuditKind = AuditKind.CALL
    #: The key's user; `None` while there are no keys.
    user_id: str | None = None
    key_id: str | None = None
    #: The highest scope of the key.
    scope: Scope | None = None
    method: str | None = None
    #: The route as in the API's description, with `{job_id}` in place of an id; for a command, its name.
    route: str | None = None
    #: Ids in the request's path, ids that the answer names as created, and the codes of a refusal.
    resources: dict[str, str] = {}
    #: For a call that changed a record: each changed field with its values before and after, as JSON, shortened.
    changes: dict[str, list[str]] = {}
    status: int | None = None
    request_id: str | None = None
    #: The connection's address; for a command, the user and the machine.
    address: str | None = None
    #: How many logins failed.
    count: int | None = None
    #: When the last login failed.
    last_at: datetime | None = None


# --- the `audit` collection: entries are never changed, except counts of failed logins, and removed when they are old

_NAMESPACE = uuid.UUID("5a0c2a52-7a0e-4f5e-9d6b-0f2f6f1f7a11")


class AuditFilter(NamedTuple):
    """Which entries are wanted. A field that is `None` does not restrict them."""

    user_id: str | None = None
    key_id: str | None = None
    route: str | None = None
    kind: AuditKind | None = None
    #: Entries at or after this time.
    since: datetime | None = None
    #: Entries before this time.
    until: datetime | None = None


class AuditStore:
    """The collection `audit`."""

    def __init__(self, database: Database[Document]) -> None:
        self._audit = database["audit"]
        self._documents = Documents(self._audit, reader(AuditEntry))

    def insert(self, entries: Sequence[AuditEntry]) -> None:
        self.insert_documents([entry.model_dump(by_alias=True, exclude_none=True) for entry in entries])

    @state_change("audit.insert")
    def insert_documents(self, documents: Sequence[Document]) -> None:
        """Insert the entries. Entries that exist already, because an earlier answer was lost, are not changed."""
        try:
            self._audit.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            refusals(error, {DUPLICATE_KEY})

    @state_change("audit.note_failures")
    def note_failures(self, at: datetime, failures: Mapping[str, int]) -> None:
        """Add the numbers of failed logins, by address, to the entry of each address and hour."""
        hour = at.replace(minute=0, second=0, microsecond=0)
        first = {"at": at, "kind": AuditKind.LOGIN_FAILED, "resources": {}}
        self._audit.bulk_write(
            [
                UpdateOne(
                    {"_id": uuid.uuid5(_NAMESPACE, f"{hour.isoformat()} {address}").hex},
                    {
                        "$setOnInsert": {**first, "address": address},
                        "$inc": {"count": count},
                        "$max": {"last_at": at},
                    },
                    upsert=True,
                )
                for address, count in failures.items()
            ],
            ordered=False,
        )

    def page(self, wanted: AuditFilter, limit: int, after: str | None = None) -> tuple[list[AuditEntry], str | None]:
        """One page of entries, as `documents.page` returns it."""
        return page(self._documents, _conditions(wanted), limit, after, field="at")

    @state_change("audit.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Remove up to `limit` entries from before this time. Returns how many were removed."""
        old = [document["_id"] for document in self._audit.find({"at": {"$lt": before}}, {"_id": 1}, limit=limit)]
        return Repeating(self._audit).delete_many({"_id": {"$in": old}}).deleted_count if old else 0


def _conditions(wanted: AuditFilter) -> list[Document]:
    times = {"since": "$gte", "until": "$lt"}
    given = {name: value for name, value in wanted._asdict().items() if value is not None}
    return [{"at": {times[name]: value}} if name in times else {name: value} for name, value in given.items()]


# --- records who did what, without making any request wait.
#
# A thread writes the entries twice a second, many at once. So requests neither wait nor fail if MongoDB is slow or
# cannot be reached; up to `MOST` entries wait in memory. A process that is killed loses the entries of its last half
# second. A process that is stopped loses nothing if MongoDB can be reached. The log has the same calls.

log = structlog.get_logger()

#: Seconds between two writes.
INTERVAL = 0.5
#: Maximum number of entries that wait in memory. If there are more, the oldest are dropped, and the log says how
#: many.
MOST = 20_000
#: How many entries are written at once.
_BATCH = 500
#: For how many addresses failed logins are counted separately between two writes. All others are counted together.
_ADDRESSES = 500
_OTHERS = "others"
#: Seconds that a process waits at its end for the last write.
_STOP_PATIENCE = 4.0


class AuditTrail:
    """Records entries, and writes them in a thread of its own. Any thread may use it."""

    def __init__(self, store: AuditStore, clock: Clock = utc_now) -> None:
        self._store = store
        self._clock = clock
        self._waiting: deque[Document] = deque()
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._lost = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the waiting entries, if possible, and stop."""
        self._stopping.set()
        self._thread.join(_STOP_PATIENCE)
        if self._waiting:
            log.warning("audit_entries_lost", count=len(self._waiting))

    def note(self, at: datetime, **fields: Any) -> None:
        """Record a call, with the fields of an `AuditEntry`. To make the model itself would take twice the time."""
        known = {name: value for name, value in fields.items() if value is not None}
        entry = {"_id": secrets.token_hex(16), "at": at, "kind": AuditKind.CALL, **known}
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
                with mongo_errors():
                    self._store.insert_documents(batch)
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
            with mongo_errors():
                self._store.note_failures(self._clock(), failures)
        except UnavailableError:
            with self._lock:
                self._failures.update(failures)
            raise
