"""Jobs as their documents: read, changed, and told apart by what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.job import Job, JobStatus
from gateway.storage.client import Document
from gateway.storage.documents import Documents, Unreadable, reader

#: Not to be looked at by whoever looks for work: it cannot be read. Taken away once it can.
SET_ASIDE = "set_aside"
#: Waits for nothing but a slot. Equalities, so that an index leads past all those that wait for a lease.
FREE_TO_START: Document = {"status": JobStatus.PENDING, "blocked": None, SET_ASIDE: None}


class JobDocuments(Documents[Job]):
    """One that cannot be read is set aside, so that looking for work does not come upon it again and again."""

    def __init__(self, database: Database[Document]) -> None:
        super().__init__(database["jobs"], reader(Job))

    @state_change("jobs.set_aside")
    def _note(self, found: Unreadable) -> None:
        super()._note(found)
        self.collection.update_one({"_id": found.id}, {"$set": {SET_ASIDE: True}})


def change(now: datetime, changes: Document, *, unset: Sequence[str] = (), increment: str | None = None) -> Document:
    """The update that makes these changes, and tells when."""
    update: dict[str, Any] = {"$set": {**changes, "updated_at": now}}
    if unset:
        update["$unset"] = dict.fromkeys(unset, "")
    if increment:
        update["$inc"] = {increment: 1}
    return update


def eligible(now: datetime) -> Document:
    """Could be started now, if there were a slot for it."""
    return {**FREE_TO_START, "not_before": {"$lte": now}, "$or": unclaimed(now)}


def unclaimed(now: datetime) -> list[Document]:
    return [{"claim": {"$exists": False}}, {"claim.until": {"$lte": now}}]
