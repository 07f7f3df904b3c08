"""Jobs as their documents: read, changed, and told apart by what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.job import Job, JobStatus
from gateway.storage.client import Document
from gateway.storage.documents import Documents, Unreadable, reader

Model = TypeVar("Model")

#: Nobody looks at it for work: it cannot be read. Taken away once it can.
SET_ASIDE = "set_aside"
#: Waits for nothing but a slot. Equalities, so that an index leads past all those that wait for another job.
FREE_TO_START: Document = {"status": JobStatus.PENDING, "blocked": None, SET_ASIDE: None}


class SetAside(Documents[Model]):
    """Of the `jobs` collection. What cannot be read is set aside: looking for work does not come upon it again."""

    @state_change("jobs.set_aside")
    def _note(self, found: Unreadable) -> None:
        super()._note(found)
        aside = {"$set": {SET_ASIDE: True}, "$unset": {"lane": "", "attend_at": ""}}
        self.collection.update_one({"_id": found.id}, aside)


class JobDocuments(SetAside[Job]):
    def __init__(self, database: Database[Document]) -> None:
        super().__init__(database["jobs"], reader(Job))


def change(now: datetime, changes: Document, *, unset: Sequence[str] = (), increment: str | None = None) -> Document:
    """The update that makes these changes, and tells when."""
    update: dict[str, Any] = {"$set": {**changes, "updated_at": now}}
    if unset:
        update["$unset"] = dict.fromkeys(unset, "")
    if increment:
        update["$inc"] = {increment: 1}
    return update
