"""The questions that the beat asks of all jobs at once. Reads only; each is one indexed query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pymongo.database import Database

from gateway.domain.job import Job, JobStatus
from gateway.domain.node_files import AttemptId
from gateway.storage.client import Document
from gateway.storage.job_documents import JobDocuments


class LiveAttempt(NamedTuple):
    """An attempt that runs, or is on its way to a node."""

    id: AttemptId
    node: str
    is_running: bool


class JobSweeps:
    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)

    def live_attempts(self) -> list[LiveAttempt]:
        """All that should be on a node."""
        running = self._jobs.find({"status": JobStatus.RUNNING}, {"attempt": 1, "node": 1})
        assigned = self._jobs.find({"assignment.attempt": {"$gte": 1}}, {"assignment": 1})
        found = [
            LiveAttempt(AttemptId(one["_id"], one["attempt"]), one.get("node", ""), is_running=True)
            for one in running
        ]
        for one in assigned:
            attempt = AttemptId(one["_id"], one["assignment"]["attempt"])
            found.append(LiveAttempt(attempt, one["assignment"]["node"], is_running=False))
        return found

    def jobs(self, job_ids: Iterable[str]) -> dict[str, Job]:
        """Those of them that there are and that can be read."""
        wanted = list(job_ids)
        found = self._documents.many(self._jobs.find({"_id": {"$in": wanted}})) if wanted else ()
        return {job.id: job for job in found}

    def existing(self, job_ids: Iterable[str]) -> set[str]:
        """Those of them that there are."""
        return {one["_id"] for one in self._jobs.find({"_id": {"$in": list(job_ids)}}, {"_id": 1})}

    def running_on(self, node: str) -> list[str]:
        return [one["_id"] for one in self._jobs.find({"status": JobStatus.RUNNING, "node": node}, {"_id": 1})]
