"""What the jobs say together: why they wait, since when, and how the runs of sites have ended lately."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database

from gateway.domain.job import JobStatus, WaitingReason
from gateway.storage.client import Document
from gateway.storage.documents import Documents


class EndedRun(NamedTuple):
    site: str
    status: JobStatus
    #: Of its first attempt; `None` for one that ended before any.
    started_at: datetime | None
    finished_at: datetime


class RunStatistics:
    """Reads only, each led by an index."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._ended = Documents(self._jobs, _ended_run)

    def waiting_reasons(self) -> dict[WaitingReason, int]:
        """How many jobs wait for what; those nobody has looked at yet are not among them."""
        counts = {reason: self._jobs.count_documents({"waiting_reason": reason}) for reason in WaitingReason}
        return {reason: count for reason, count in counts.items() if count}

    def oldest_due(self, now: datetime) -> datetime | None:
        """Since when the job that waits longest has been due, which may be days after it was asked for."""
        query = {"status": JobStatus.PENDING, "not_before": {"$lte": now}}
        first = self._jobs.find_one(query, {"not_before": 1}, sort=[("not_before", ASCENDING)])
        return None if first is None else first["not_before"]

    def one_off_jobs(self) -> int:
        """Single crawls that lie ahead: scheduled, but not by a schedule."""
        scheduled = {"status": JobStatus.SCHEDULED}
        # not those without `schedule_id`: no index says of a job that it has none, and each would have to be read
        of_schedules = {**scheduled, "schedule_id": {"$gte": ""}}
        return max(0, self._jobs.count_documents(scheduled) - self._jobs.count_documents(of_schedules))

    def ended_runs(self, since: datetime, limit: int) -> list[EndedRun]:
        """The latest runs of sites that ended since then."""
        query = {"spec.site": {"$exists": True}, "finished_at": {"$gte": since}}
        fields = {"spec.site": 1, "status": 1, "started_at": 1, "finished_at": 1}
        found = self._jobs.find(query, fields).sort("finished_at", DESCENDING).limit(limit)
        return self._ended.many(found)


def _ended_run(document: Document) -> EndedRun:
    status, started_at = JobStatus(document["status"]), document.get("started_at")
    return EndedRun(document["spec"]["site"], status, started_at, document["finished_at"])
