"""When the entries of Celery's own `beat_schedule` were last sent, by whichever beat."""

from __future__ import annotations

from datetime import datetime

from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.storage.client import Document


class StaticEntryStore:
    """One document an entry, by its name."""

    def __init__(self, database: Database[Document]) -> None:
        self._entries = database["static_entries"]

    def last_sent(self) -> dict[str, datetime]:
        """Of all entries that were ever sent."""
        return {document["_id"]: document["sent_at"] for document in self._entries.find()}

    @state_change("static_entries.claim")
    def claim(self, name: str, last_sent: datetime | None, now: datetime) -> bool:
        """Whether it is the caller who sends the entry: nobody has since `last_sent`. Said before it is sent, so that
        none goes twice.
        """
        if last_sent is None:
            try:
                self._entries.insert_one({"_id": name, "sent_at": now})
            except DuplicateKeyError:
                return False
            return True
        query = {"_id": name, "sent_at": last_sent}
        return self._entries.update_one(query, {"$set": {"sent_at": now}}).modified_count == 1
