"""What cannot be read: noted by whoever comes upon it, and looked at again until it can be read or is gone."""

from __future__ import annotations

from typing import Any

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.audit import AuditEntry
from gateway.domain.clock import utc_now
from gateway.domain.job import Job
from gateway.domain.schedule import LedgerEntry, Schedule
from gateway.domain.site import Site, Target
from gateway.storage.client import Document
from gateway.storage.documents import UNREADABLE, Documents, Reader, Unreadable, reader
from gateway.storage.egg_copies import EggCopy
from gateway.storage.eggs import read_described, read_egg
from gateway.storage.heartbeats import read_heartbeat
from gateway.storage.items import read_item
from gateway.storage.job_documents import SET_ASIDE
from gateway.storage.keys import read_key
from gateway.storage.nodes import Node
from gateway.storage.spiders import read_spider
from gateway.storage.static_entries import read_static_entry

#: How the documents of each collection are read. One of a collection that is not named is looked at no more.
READERS: dict[str, Reader[Any]] = {
    "jobs": reader(Job),
    "schedules": reader(Schedule),
    "schedule_ledger": reader(LedgerEntry),
    "sites": reader(Site),
    "targets": reader(Target),
    "nodes": reader(Node),
    "spiders": read_spider,
    "eggs": lambda document: (read_egg(document), read_described(document)),
    "egg_copies": reader(EggCopy),
    "keys": read_key,
    "audit": reader(AuditEntry),
    "items": read_item,
    "heartbeats": read_heartbeat,
    "static_entries": read_static_entry,
}
#: Looked at again in one go.
_BATCH = 1000


class UnreadableStore:
    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._noted = database[UNREADABLE]

    def all(self, limit: int) -> list[Unreadable]:
        found = self._noted.find().sort("_id", ASCENDING).limit(limit)
        return [Unreadable(one["collection"], one["document"], one["problem"]) for one in found]

    def look_again(self) -> None:
        """Whatever was mended since, here or by a newer version, counts as all others."""
        for found in self.all(_BATCH):
            documents = Documents(self._database[found.collection], READERS.get(found.collection, dict))
            document = documents.collection.find_one({"_id": found.id})
            if document is None or documents.optional(document) is not None:
                self._forget(found)

    @state_change("unreadable.forget")
    def _forget(self, found: Unreadable) -> None:
        # first what is lost if nobody comes back to it
        # a job that waits is ranked anew when it is attended to
        back = {"$unset": {SET_ASIDE: ""}, "$set": {"attend_at": utc_now()}}
        self._database[found.collection].update_one({"_id": found.id, SET_ASIDE: True}, back)
        self._noted.delete_one({"_id": f"{found.collection}/{found.id}"})
