"""Dead letters: jobs that are out of retries and wait for a person. Which ones there are is `JobQueries`' to tell."""

from __future__ import annotations

from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.storage.client import Document


class DeadLetterStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._clock = clock

    def count(self) -> int:
        return self._jobs.count_documents({"dead": True})

    @state_change("dead_letters.dismiss")
    def dismiss(self, job_id: str) -> bool:
        """Somebody has seen to it: the job stays as it ended, and is no dead letter any more; whether it was one."""
        seen = {"$set": {"dead": False, "updated_at": self._clock()}}
        return self._jobs.update_one({"_id": job_id, "dead": True}, seen).modified_count == 1
