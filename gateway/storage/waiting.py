"""How many jobs wait."""

from __future__ import annotations

from pymongo.database import Database

from gateway.domain.job import JobStatus
from gateway.storage.client import Document


class WaitingStore:
    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]

    def count(self, limit: int, user_id: str | None = None) -> int:
        """Up to `limit`: of this user, or of all. Equalities that an index answers without looking at a job."""
        user: Document = {} if user_id is None else {"user_id": user_id}
        return self._jobs.count_documents({"status": JobStatus.PENDING, **user}, limit=limit)
