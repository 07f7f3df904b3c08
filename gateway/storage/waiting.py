"""How many jobs wait, and how many schedules there are."""

from __future__ import annotations

from datetime import datetime

from pymongo.database import Database

from gateway.domain.job import JobStatus
from gateway.domain.schedule import ScheduleState
from gateway.storage.client import Document


class WaitingStore:
    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._schedules = database["schedules"]

    # each up to `limit`; equalities that an index answers without looking at a document

    def count(self, limit: int) -> int:
        """Of all users, for a slot."""
        return self._jobs.count_documents({"status": JobStatus.PENDING}, limit=limit)

    def of_user(self, limit: int, user_id: str) -> int:
        """For a slot, or for their time."""
        statuses = (JobStatus.PENDING, JobStatus.SCHEDULED)
        return sum(
            self._jobs.count_documents({"status": status, "user_id": user_id}, limit=limit) for status in statuses
        )

    def begun_by_schedules(self, limit: int, user_id: str, since: datetime) -> int:
        """Runs of the user's schedules."""
        query: Document = {"user_id": user_id, "created_at": {"$gte": since}, "schedule_id": {"$gt": ""}}
        return self._jobs.count_documents(query, limit=limit)

    def schedules_of(self, limit: int, user_id: str) -> int:
        """Those that have not ended."""
        states = (ScheduleState.ACTIVE, ScheduleState.PAUSED)
        return sum(
            self._schedules.count_documents({"user_id": user_id, "state": state}, limit=limit) for state in states
        )
