"""The waiting jobs, and their way to a node: claimed, placed, handed over, or given back with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, ReturnDocument
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Claim, Job, JobStatus, Placement, WaitingReason
from gateway.domain.lane import Lane, Need, rank
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, JobDocuments, change, eligible, unclaimed

_BEST_FIRST = [("rank", ASCENDING)]
#: What a job's place follows from.
_PLACE_FIELDS = ("user_id", "spec.project", "spec.version", "render", "created_at", "not_before", "priority")


class JobQueue:
    """The `jobs` collection as a dispatcher needs it. What follows is `JobStore`'s."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._clock = clock

    @state_change("jobs.claim")
    def claim(self, claim: Claim, lane: Lane) -> Job | None:
        """The best job of the lane that is pending and not blocked, due and unclaimed, now claimed."""
        now = self._clock()
        document = self._jobs.find_one_and_update(
            {**eligible(now), "lane": str(lane)},
            {"$set": {"claim": claim.model_dump(), "updated_at": now}},
            sort=_BEST_FIRST,
            return_document=ReturnDocument.AFTER,
        )
        return self._documents.optional(document)

    @state_change("jobs.claim_placed")
    def claim_placed(self, job_id: str, claim: Claim) -> Job | None:
        """The job that was on its way to a node when its dispatcher failed: it has its slot already."""
        now = self._clock()
        due = {"_id": job_id, "status": JobStatus.PENDING, "not_before": {"$lte": now}}
        return self._change(
            {**due, "placement.attempt": {"$exists": True}, "$or": unclaimed(now)}, {"claim": claim.model_dump()}
        )

    @state_change("jobs.drop_claim")
    def drop_claim(self, job_id: str, claim: Claim) -> None:
        """Whoever claimed the job so has not come back in time: nothing can be placed by that claim any more."""
        late = {"claim.token": claim.token, "claim.until": {"$lte": self._clock()}}
        self._jobs.update_one({"_id": job_id, **late}, {"$unset": {"claim": ""}})

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
        return self._documents.optional(document)

    @state_change("jobs.note_waiting")
    def note_waiting(self, job_id: str, reason: WaitingReason) -> Job | None:
        """Say why the job has no slot yet; `None` if that is known, or it waits for a lease, for a node's answer or
        not at all.
        """
        free = {"_id": job_id, **FREE_TO_START, "claim": {"$exists": False}, "placement": {"$exists": False}}
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
            # they were about that attempt
            {"dispatch_failures": 0},
            unset=("claim", "placement"),
        )

    @state_change("jobs.adopt")
    def adopt(self, limit: int) -> int:
        """Give their place to jobs that wait and were made before there were lanes; how many did."""
        made_before = {**FREE_TO_START, "lane": None}
        found = list(self._jobs.find(made_before, dict.fromkeys(_PLACE_FIELDS, 1), limit=limit))
        for document in found:
            # nobody else would write anything else
            self._jobs.update_one({"_id": document["_id"]}, {"$set": _place(document)})
        return len(found)

    def _change(
        self, query: Document, changes: Document, *, unset: Sequence[str] = (), increment: str | None = None
    ) -> Job | None:
        update = change(self._clock(), changes, unset=unset, increment=increment)
        changed = self._jobs.find_one_and_update(query, update, return_document=ReturnDocument.AFTER)
        return self._documents.optional(changed)


def _place(document: Document) -> Document:
    """By a job's document, which need not be one that can be read as a whole."""
    spec = document["spec"]
    need = Need(spec["project"], spec.get("version"), bool(document.get("render")))
    due = max(document["created_at"], document["not_before"])
    return {"lane": str(Lane(need, document["user_id"])), "rank": rank(due, document.get("priority", 0))}
