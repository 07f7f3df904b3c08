"""When the entries of Celery's own `beat_schedule` were last sent, by whichever beat."""

from __future__ import annotations

from datetime import datetime

from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.storage.client import Document
from gateway.storage.documents import Documents, moment


class StaticEntryStore:
    """One document an entry, by its name."""

    def __init__(self, database: Database[Document]) -> None:
        self._entries = database["static_entries"]
        self._documents = Documents(self._entries, read_static_entry)

    def last_sent(self) -> dict[str, datetime]:
        """Of all entries that were ever sent."""
        return dict(self._documents.many(self._entries.find()))

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


def read_static_entry(document: Document) -> tuple[str, datetime]:
    return document["_id"], moment(document["sent_at"])
