"""What the jobs that ended lately tell of how things go: a few figures of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from pymongo import DESCENDING
from pymongo.database import Database

from gateway.domain.job import JobStatus
from gateway.storage.client import Document
from gateway.storage.documents import Documents

_FIELDS = (
    "status", "spec.site", "created_at", "not_before", "started_at", "finished_at", "attempt",
    "attempts.1.dispatched_at", "progress.completed_pages", "progress.items_count",
    "progress.errors_count",
)  # fmt: skip


class EndedJob(NamedTuple):
    id: str
    #: `None` for a single crawl.
    site: str | None
    status: JobStatus
    finished_at: datetime
    #: When it could have been started first.
    due: datetime
    #: When a node was given its first attempt,
    dispatched_at: datetime | None
    #: and when that ran.
    started_at: datetime | None
    #: Attempts after the first.
    retries: int
    pages: int
    items: int
    errors: int


class EndedJobs:
    """Reads only, by the index on `finished_at`."""

    def __init__(self, database: Database[Document]) -> None:
        self._documents = Documents(database["jobs"], _ended_job)

    def since(self, moment: datetime, limit: int) -> list[EndedJob]:
        """Those that ended then or later, newest first."""
        found = self._documents.collection.find({"finished_at": {"$gte": moment}}, dict.fromkeys(_FIELDS, 1))
        return self._documents.many(found.sort("finished_at", DESCENDING).limit(limit))


def _ended_job(document: Document) -> EndedJob:
    progress: dict[str, Any] = document.get("progress") or {}
    dispatched_at = (document.get("attempts") or {}).get("1", {}).get("dispatched_at")
    retries = max(0, document.get("attempt", 0) - 1)
    return EndedJob(
        id=document["_id"],
        site=document["spec"].get("site"),
        status=JobStatus(document["status"]),
        finished_at=document["finished_at"],
        due=_due(document, dispatched_at, retries),
        dispatched_at=dispatched_at,
        started_at=document.get("started_at"),
        retries=retries,
        pages=progress.get("completed_pages", 0),
        items=progress.get("items_count", 0),
        errors=progress.get("errors_count", 0),
    )


def _due(document: Document, dispatched_at: datetime | None, retries: int) -> datetime:
    """A crawl for later has its time in `not_before`; after a retry that holds the time of the retry instead."""
    created_at: datetime = document["created_at"]
    not_before: datetime = document["not_before"]
    if retries or (dispatched_at is not None and not_before > dispatched_at):
        return created_at
    return max(created_at, not_before)
