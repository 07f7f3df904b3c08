"""What has been due for longest, jobs and webhooks, for whoever asks why it still is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import Job
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, JobDocuments
from gateway.storage.jobs import WATCHED

#: Ended jobs that are looked at.
MAX_COUNTED = 1000


class CallsToCome(NamedTuple):
    """Ended jobs of which somebody is still to be told."""

    #: Due, and nobody is at them,
    waiting: int
    #: and since when the first of these.
    since: datetime | None
    #: Called before, in vain.
    failing: int


class DueJobs:
    def __init__(self, database: Database[Document]) -> None:
        self._documents = JobDocuments(database)

    def since(self, moment: datetime, limit: int) -> list[Job]:
        """Those that have waited for nothing but a slot since then, the longest first; `limit` are looked at."""
        query = {**FREE_TO_START, "not_before": {"$lte": moment}, "assignment": None}
        found = self._documents.collection.find(query, sort=[("not_before", ASCENDING)], limit=limit)
        return self._documents.many(found)

    def webhooks(self, moment: datetime) -> CallsToCome:
        """Waiting: those that were due at `moment` already. Of many, the first `MAX_COUNTED` by their users."""
        # an index leads to them by their users; not `$exists`: none leads past those that have none
        query = {"user_id": {"$gte": ""}, "webhooks_due": {"$gt": datetime.fromtimestamp(0, UTC)}, **WATCHED}
        fields = {"webhooks_due": 1, "webhook_failures": 1}
        found = list(self._documents.collection.find(query, fields, limit=MAX_COUNTED))
        waiting = [job["webhooks_due"] for job in found if job["webhooks_due"] <= moment]
        failing = sum(bool(job.get("webhook_failures")) for job in found)
        return CallsToCome(len(waiting), min(waiting, default=None), failing)
