"""The ledger: what became of each slot of each schedule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pymongo import DESCENDING, UpdateOne
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.errors import UserQuotaError
from gateway.domain.schedule import LedgerEntry, LedgerKind
from gateway.storage.client import Document
from gateway.storage.documents import Documents, reader
from gateway.storage.newest_first import page


class LedgerStore:
    def __init__(self, database: Database[Document]) -> None:
        self._ledger = database["schedule_ledger"]
        self._documents = Documents(self._ledger, reader(LedgerEntry))

    @state_change("schedule_ledger.record")
    def record(self, entries: Sequence[LedgerEntry]) -> None:
        """One entry a slot, however often it is recorded. That it was fired is never replaced."""
        operations = []
        for entry in entries:
            document = entry.model_dump(by_alias=True, exclude_none=True)
            modifier = "$set" if entry.kind is LedgerKind.FIRED else "$setOnInsert"
            operations.append(UpdateOne({"_id": document.pop("_id")}, {modifier: document}, upsert=True))
        self._ledger.bulk_write(operations, ordered=False)

    def revisions(self, job_ids: Sequence[str]) -> dict[str, int]:
        """Of those of these slots, named by their jobs' ids, that have an entry: by which revision."""
        found = self._ledger.find({"_id": {"$in": list(job_ids)}}, {"rev": 1})
        return {document["_id"]: document["rev"] for document in found}

    def page(self, schedule_id: str, limit: int, after: str | None = None) -> tuple[list[LedgerEntry], str | None]:
        """The newest slot first; and the cursor of the page that follows, `None` after the last.

        Raises `InvalidRequestError` for a cursor that none of our pages gave out.
        """
        return page(self._documents, [{"schedule_id": schedule_id}], limit, after, field="due", identity="job_id")

    def latest(self, count: int) -> list[LedgerEntry]:
        """Of all schedules, what was recorded last."""
        return self._documents.find({}, count, [("recorded_at", DESCENDING)])

    def count_refused(self, since: datetime, limit: int) -> int:
        """Slots that were skipped since then because their user had all that one may have; up to `limit`."""
        query: Document = {"recorded_at": {"$gte": since}, "reason": {"$regex": f"^{UserQuotaError.code}"}}
        return self._ledger.count_documents(query, limit=limit)

    @state_change("schedule_ledger.delete")
    def delete(self, schedule_id: str) -> None:
        """All of a schedule that is gone."""
        self._ledger.delete_many({"schedule_id": schedule_id})

    @state_change("schedule_ledger.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Up to `limit` of what was recorded before then; how many went."""
        found = self._ledger.find({"recorded_at": {"$lt": before}}, {"_id": 1}, limit=limit)
        old = [document["_id"] for document in found]
        return self._ledger.delete_many({"_id": {"$in": old}}).deleted_count if old else 0
