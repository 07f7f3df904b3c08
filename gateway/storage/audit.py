"""The `audit` collection: written once, never changed, forgotten after a time."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.crash_points import state_change
from gateway.domain.audit import AuditEntry, AuditKind
from gateway.storage.client import DUPLICATE_KEY, Document, refusals
from gateway.storage.documents import Documents, reader
from gateway.storage.newest_first import page

_NAMESPACE = uuid.UUID("5a0c2a52-7a0e-4f5e-9d6b-0f2f6f1f7a11")


class AuditFilter(NamedTuple):
    """Which entries; what is `None` does not restrict."""

    user_id: str | None = None
    key_id: str | None = None
    route: str | None = None
    kind: AuditKind | None = None
    #: At or after,
    since: datetime | None = None
    #: and before.
    until: datetime | None = None


class AuditStore:
    def __init__(self, database: Database[Document]) -> None:
        self._audit = database["audit"]
        self._documents = Documents(self._audit, reader(AuditEntry))

    @state_change("audit.insert")
    def insert(self, entries: Sequence[AuditEntry]) -> None:
        """Those that are there already, because an answer was lost, stay."""
        try:
            self._audit.insert_many([_document(entry) for entry in entries], ordered=False)
        except BulkWriteError as error:
            refusals(error, {DUPLICATE_KEY})

    @state_change("audit.note_failures")
    def note_failures(self, at: datetime, failures: Mapping[str, int]) -> None:
        """So many failed logins, by address: one entry for each address and hour."""
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
        """Newest first; and the cursor of the page that follows, `None` after the last.

        Raises `InvalidRequestError` for a cursor that none of our pages gave out.
        """
        return page(self._documents, _conditions(wanted), limit, after, field="at")

    @state_change("audit.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Up to `limit` of what was before then; how many went."""
        old = [document["_id"] for document in self._audit.find({"at": {"$lt": before}}, {"_id": 1}, limit=limit)]
        return self._audit.delete_many({"_id": {"$in": old}}).deleted_count if old else 0


def _document(entry: AuditEntry) -> Document:
    return entry.model_dump(by_alias=True, exclude_none=True)


def _conditions(wanted: AuditFilter) -> list[Document]:
    equal = {"user_id": wanted.user_id, "key_id": wanted.key_id, "route": wanted.route, "kind": wanted.kind}
    conditions: list[Document] = [{path: value} for path, value in equal.items() if value is not None]
    if wanted.since is not None:
        conditions.append({"at": {"$gte": wanted.since}})
    if wanted.until is not None:
        conditions.append({"at": {"$lt": wanted.until}})
    return conditions
