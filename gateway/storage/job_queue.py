"""The waiting jobs, and their way to a node: claimed, placed, handed over, or given back with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Claim, Job, JobStatus, Placement, WaitingReason
from gateway.domain.room import Room
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, change, fits, read_optional

_BEST_FIRST = [("priority", DESCENDING), ("created_at", ASCENDING)]


class JobQueue:
    """The `jobs` collection as a dispatcher needs it. What follows is `JobStore`'s."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._clock = clock

    @state_change("jobs.claim")
    def claim(self, claim: Claim, room: Room) -> Job | None:
        """The best job that is pending and not blocked, due, unclaimed, and fits into `room`, now claimed."""
        now = self._clock()
        eligible = {**FREE_TO_START, "not_before": {"$lte": now}}
        document = self._jobs.find_one_and_update(
            {**eligible, "$and": [_unclaimed(now), fits(room)]},
            {"$set": {"claim": claim.model_dump(), "updated_at": now}},
            sort=_BEST_FIRST,
            return_document=ReturnDocument.AFTER,
        )
        return read_optional(document)

    @state_change("jobs.claim_placed")
    def claim_placed(self, job_id: str, claim: Claim) -> Job | None:
        """The job that was on its way to a node when its dispatcher failed: it has its slot already."""
        now = self._clock()
        due = {"_id": job_id, "status": JobStatus.PENDING, "not_before": {"$lte": now}}
        return self._change(
            {**due, "placement.attempt": {"$exists": True}, **_unclaimed(now)}, {"claim": claim.model_dump()}
        )

    @state_change("jobs.place")
    def place(self, job_id: str, claim: Claim, placement: Placement) -> Job | None:
        """Decide, before telling anybody, which attempt goes to which node; `None` if the claim is no longer ours."""
        return self._change(
            {"_id": job_id, "status": JobStatus.PENDING, "claim.token": claim.token},
            {"placement": placement.model_dump(), "attempt": placement.attempt},
        )

    @state_change("jobs.wait")
    def wait(self, job_id: str, claim: Claim, reason: WaitingReason) -> Job | None:
        """Give the claim back: the job cannot be started now, and this is why."""
        return self._change(
            {"_id": job_id, "status": JobStatus.PENDING, "claim.token": claim.token},
            {"waiting_reason": reason},
            unset=("claim",),
        )

    @state_change("jobs.block")
    def block(self, job_id: str, claim: Claim, reason: WaitingReason) -> Job | None:
        """Give the claim back: another job has the lease, and this one is not looked at before that is free."""
        return self._change(
            {"_id": job_id, "status": JobStatus.PENDING, "claim.token": claim.token},
            {"blocked": True, "waiting_reason": reason},
            unset=("claim",),
        )

    @state_change("jobs.unblock")
    def unblock(self, exclusive: str) -> Job | None:
        """The best of the jobs that wait for this lease, which from now on waits like all others."""
        document = self._jobs.find_one_and_update(
            {"blocked": True, "exclusive": exclusive, "status": JobStatus.PENDING},
            change(self._clock(), {}, unset=("blocked", "waiting_reason")),
            sort=_BEST_FIRST,
            return_document=ReturnDocument.AFTER,
        )
        return read_optional(document)

    @state_change("jobs.note_waiting")
    def note_waiting(self, job_id: str, reason: WaitingReason) -> Job | None:
        """Say why the job has no slot yet; `None` if that is known, or it waits for a lease or not at all."""
        free = {"_id": job_id, **FREE_TO_START, "claim": {"$exists": False}}
        over = {"waiting_reason": WaitingReason.BACKOFF, "not_before": {"$lte": self._clock()}}
        other = {"waiting_reason": {"$nin": [reason, WaitingReason.BACKOFF]}}
        return self._change({**free, "$or": [other, over]}, {"waiting_reason": reason})

    @state_change("jobs.dispatch_failed")
    def dispatch_failed(
        self, job_id: str, claim: Claim, message: str, not_before: datetime, *, keep: bool
    ) -> Job | None:
        """Try again at `not_before`; with `keep` at the same node with the same attempt (its answer is unknown)."""
        return self._change(
            {"_id": job_id, "status": JobStatus.PENDING, "claim.token": claim.token},
            {"message": message, "not_before": not_before, "waiting_reason": WaitingReason.BACKOFF},
            increment="dispatch_failures",
            unset=("claim",) if keep else ("claim", "placement"),
        )

    @state_change("jobs.abandon_placement")
    def abandon_placement(self, job_id: str, claim: Claim, placement: Placement) -> Job | None:
        """The node is gone and the attempt can no longer be started there: free to place the next one."""
        mine = {"placement.attempt": placement.attempt, "claim.token": claim.token}
        return self._change(
            {"_id": job_id, "status": JobStatus.PENDING, **mine},
            {},
            unset=("claim", "placement"),
        )

    def _change(
        self, query: Document, changes: Document, *, unset: Sequence[str] = (), increment: str | None = None
    ) -> Job | None:
        update = change(self._clock(), changes, unset=unset, increment=increment)
        return read_optional(self._jobs.find_one_and_update(query, update, return_document=ReturnDocument.AFTER))


def _unclaimed(now: datetime) -> Document:
    return {"$or": [{"claim": {"$exists": False}}, {"claim.until": {"$lte": now}}]}
