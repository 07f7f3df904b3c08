"""Jobs as their documents: read, changed, and told apart by what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gateway.domain.job import Job, JobStatus
from gateway.storage.client import Document

#: Waits for nothing but a slot. Equalities, so that an index leads past all those that wait for a lease.
FREE_TO_START: Document = {"status": JobStatus.PENDING, "blocked": None}


#: Written for an index alone.
_NOT_READ = ("node", "lane", "rank")


def read_job(document: Document) -> Job:
    for name in _NOT_READ:
        document.pop(name, None)
    return Job.model_validate(document)


def read_optional(document: Document | None) -> Job | None:
    return None if document is None else read_job(document)


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
