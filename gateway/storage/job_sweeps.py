"""What nobody may have looked at: the questions that the sweeper and the reconciler ask of the jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import JobStatus, WaitingReason
from gateway.domain.lane import Lane
from gateway.storage.client import Document

#: What a job waits for that comes or goes without anybody looking at the job.
_PASSING = (
    WaitingReason.CAPACITY,
    WaitingReason.NO_NODE,
    WaitingReason.NO_SUCH_PROJECT,
    WaitingReason.DISK_FULL,
    WaitingReason.USER_QUOTA,
)


class Waiting(NamedTuple):
    """A job that waits, in its lane, and why as far as it has been told."""

    job_id: str
    lane: Lane
    reason: WaitingReason


class JobSweeps:
    """Reads only; each is one indexed query for ids."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]

    def undecided(self, limit: int) -> list[str]:
        """Jobs whose attempt has ended but whose outcome nobody has decided."""
        return self._ids({"undecided": True}, limit)

    def unsettled(self, limit: int) -> list[str]:
        """Final jobs whose consequences have not all been carried out."""
        return self._ids({"settled": False}, limit)

    def cancelled_while_waiting(self, limit: int) -> list[str]:
        """Jobs that wait, for their time or for a node, were asked to end and are not on their way to one."""
        query = {
            "status": {"$in": [JobStatus.SCHEDULED, JobStatus.PENDING]},
            # not `$exists`: no index leads past those that have none
            "cancel_requested_at": {"$gte": datetime.fromtimestamp(0, UTC)},
            "placement": {"$exists": False},
        }
        return self._ids(query, limit)

    def placed(self, now: datetime, limit: int) -> list[str]:
        """Pending jobs that hold a slot already, because the answer of their node is missing."""
        # a running job has no placement
        return self._ids({"placement.attempt": {"$gte": 1}, "not_before": {"$lte": now}}, limit)

    def hindered(self, now: datetime, limit: int, after: str = "") -> list[Waiting]:
        """Pending jobs that wait for something that comes or goes by itself: a slot, a node, a deployment, disk; or
        for the end of a back-off that has come, so that there must be another reason. By their ids, from above
        `after` on: whoever looks at all of them, a batch at a time, passes each.
        """
        known = {"_id": {"$gt": after}, "lane": {"$exists": True}, "placement": {"$exists": False}}
        over: Document = {"waiting_reason": WaitingReason.BACKOFF, "not_before": {"$lte": now}}
        found: list[Waiting] = []
        for query in (over, *({"waiting_reason": reason} for reason in _PASSING)):
            fields, order = {"lane": 1, "waiting_reason": 1}, [("_id", ASCENDING)]
            documents = self._jobs.find({**query, **known}, fields, sort=order, limit=limit)
            found += [Waiting(one["_id"], Lane.parse(one["lane"]), query["waiting_reason"]) for one in documents]
        return sorted(found)[:limit]

    def blocked_for(self, limit: int, after: str = "") -> list[str]:
        """Leases that jobs wait for, in order, from above `after` on; of so many jobs."""
        query = {"blocked": True, "exclusive": {"$gt": after}}
        found = self._jobs.find(query, {"exclusive": 1}, sort=[("exclusive", ASCENDING)], limit=limit)
        return list(dict.fromkeys(document["exclusive"] for document in found))

    def in_need_of_lease(self, job_ids: list[str]) -> set[str]:
        """Those of the jobs that must keep the lease they hold: not what is gone or settled, and not what waits to be
        looked at for the first time.
        """
        no_need: list[Document] = [
            {"settled": True},
            {"blocked": True},
            {"status": JobStatus.PENDING, "attempt": 0, "claim": {"$exists": False}},
        ]
        found = self._jobs.find({"_id": {"$in": job_ids}, "$nor": no_need}, {"_id": 1})
        return {document["_id"] for document in found}

    def running_on(self, node: str) -> list[str]:
        return self._ids({"status": JobStatus.RUNNING, "node": node}, 0)

    def _ids(self, query: Document, limit: int) -> list[str]:
        return [document["_id"] for document in self._jobs.find(query, {"_id": 1}, limit=limit)]
