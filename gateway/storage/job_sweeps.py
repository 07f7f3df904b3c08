"""What nobody may have looked at: the questions that the sweeper and the reconciler ask of the jobs."""

from __future__ import annotations

from datetime import UTC, datetime

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import JobStatus, WaitingReason
from gateway.domain.room import Room
from gateway.storage.client import Document
from gateway.storage.job_documents import fits


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

    def cancelled_while_pending(self, limit: int) -> list[str]:
        """Waiting jobs that were asked to end and are not on their way to a node."""
        query = {
            "status": JobStatus.PENDING,
            # not `$exists`: no index leads past those that have none
            "cancel_requested_at": {"$gte": datetime.fromtimestamp(0, UTC)},
            "placement": {"$exists": False},
        }
        return self._ids(query, limit)

    def waiting(self, now: datetime, limit: int, room: Room | None = None) -> list[str]:
        """Pending jobs that could be started now, if there were a slot; of those only that fit into `room`."""
        fitting = {} if room is None else fits(room)
        return self._ids({"status": JobStatus.PENDING, "not_before": {"$lte": now}, **fitting}, limit)

    def placed(self, now: datetime, limit: int) -> list[str]:
        """Those of them that hold a slot already, because the answer of their node is missing."""
        # a running job has no placement
        return self._ids({"placement.attempt": {"$gte": 1}, "not_before": {"$lte": now}}, limit)

    def hindered(self, now: datetime, limit: int) -> list[str]:
        """Pending jobs that wait for something that comes or goes by itself: a node, a deployment, disk; or for the
        end of a back-off that has come, so that there must be another reason.
        """
        passing = [WaitingReason.NO_NODE, WaitingReason.NO_SUCH_PROJECT, WaitingReason.DISK_FULL]
        over = {"waiting_reason": WaitingReason.BACKOFF, "not_before": {"$lte": now}}
        return [*self._ids({"waiting_reason": {"$in": passing}}, limit), *self._ids(over, limit)]

    def webhooks_due(self, now: datetime, limit: int) -> list[str]:
        return self._ids({"webhooks_due": {"$lte": now}}, limit)

    def running_on(self, node: str) -> list[str]:
        return self._ids({"status": JobStatus.RUNNING, "node": node}, 0)

    def _ids(self, query: Document, limit: int) -> list[str]:
        return [document["_id"] for document in self._jobs.find(query, {"_id": ASCENDING}, limit=limit)]
