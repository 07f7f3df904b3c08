"""The jobs that have been due for longest, for whoever asks why they still are."""

from __future__ import annotations

from datetime import datetime

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import Job
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, JobDocuments


class DueJobs:
    def __init__(self, database: Database[Document]) -> None:
        self._documents = JobDocuments(database)

    def since(self, moment: datetime, limit: int) -> list[Job]:
        """Those that have waited for nothing but a slot since then, the longest first; `limit` are looked at."""
        query = {**FREE_TO_START, "not_before": {"$lte": moment}}
        found = self._documents.collection.find(query, sort=[("not_before", ASCENDING)], limit=limit)
        return [job for job in self._documents.many(found) if job.claim is None and job.placement is None]
