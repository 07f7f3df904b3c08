"""The jobs that have been due for longest, for whoever asks why they still are."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from pydantic import ValidationError
from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import Job
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, read_job


class DueJobs:
    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]

    def since(self, moment: datetime, limit: int) -> list[Job]:
        """Those that have waited for nothing but a slot since then, the longest first; `limit` are looked at."""
        query = {**FREE_TO_START, "not_before": {"$lte": moment}}
        found = []
        for document in self._jobs.find(query, sort=[("not_before", ASCENDING)], limit=limit):
            # one that cannot be understood is told of elsewhere
            with suppress(ValidationError):
                found.append(read_job(document))
        return [job for job in found if job.claim is None and job.placement is None]
