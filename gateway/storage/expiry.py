"""Ended jobs by age: which are old enough to lose their log, their items, or everything."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal, NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain import redis_keys
from gateway.storage.client import Document

#: What a job can lose before it goes itself.
Part = Literal["logs", "items"]
_OLDEST_FIRST = [("finished_at", ASCENDING)]
_ENDED = ("finished_at", "user_id", "spec.spider", "fingerprint")


class Ended(NamedTuple):
    job_id: str
    finished_at: datetime
    #: Where Redis may name this job as the answer; `None` if its document does not say.
    dedupe_key: str | None


class ExpiryStore:
    """How far each part was removed is kept in `retention`: one document a part, so that no run looks at all jobs."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._retention = database["retention"]

    def settled(self, before: datetime) -> Iterator[str]:
        """Jobs that ended before then, and of whose end nothing is left to do; the oldest first."""
        query = {"settled": True, "finished_at": {"$lt": before}}
        with self._jobs.find(query, {"_id": 1}).sort(_OLDEST_FIRST).batch_size(100) as found:
            for document in found:
                yield document["_id"]

    def ended_with(self, part: Part, before: datetime) -> Iterator[Ended]:
        """Jobs that ended before then and may still have that part, the oldest first."""
        record = self._retention.find_one({"_id": part})
        since = {"$gte": record["until"]} if record and isinstance(record.get("until"), datetime) else {}
        query = {"finished_at": {"$lt": before, **since}}
        with self._jobs.find(query, _ENDED).sort(_OLDEST_FIRST).batch_size(200) as found:
            for document in found:
                yield Ended(document["_id"], document["finished_at"], _dedupe_key(document))

    @state_change("expiry.mark_removed")
    def mark_removed(self, job_id: str, part: Part, at: datetime) -> None:
        """Said before it is done: who reads the job in between is not told that something is there."""
        mark = f"{part}_removed_at"
        self._jobs.update_one({"_id": job_id, mark: {"$exists": False}}, {"$set": {mark: at}})

    @state_change("expiry.advance")
    def advance(self, part: Part, until: datetime) -> None:
        """That part of every job that ended before then is gone."""
        self._retention.update_one({"_id": part}, {"$max": {"until": until}}, upsert=True)


def _dedupe_key(document: Document) -> str | None:
    """Of the fields themselves: one document that is no job must not keep the others from being looked at."""
    try:
        return redis_keys.dedupe(document["user_id"], document["spec"]["spider"], document["fingerprint"])
    except (KeyError, TypeError):
        return None
