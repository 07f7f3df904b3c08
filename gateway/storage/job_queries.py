"""Lists of jobs, and where a job stands among the others. The path of a single job's life is `JobStore`'s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import Job, JobStatus
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, JobDocuments
from gateway.storage.newest_first import NEWEST_FIRST, page

#: A slot's job that waits for its schedule to be advanced may never become one.
_DECIDED: Document = {"held": {"$exists": False}}
#: A place in the queue beyond this is not worth counting to.
MAX_QUEUE_POSITION = 10_000
#: Users of whom it is looked up how many jobs are before another's.
MAX_USERS = 32


class JobFilter(NamedTuple):
    """Which jobs; what is `None` or empty does not restrict."""

    user_id: str | None = None
    status: tuple[JobStatus, ...] = ()
    spider: str | None = None
    tag: str | None = None
    #: Created at or after,
    since: datetime | None = None
    #: and before.
    until: datetime | None = None
    #: Text, of either case, in the id, the spider, a tag, a start URL or the message.
    q: str | None = None
    #: Dead letters only.
    dead: bool = False
    #: Runs of this schedule,
    schedule_id: str | None = None
    #: or of this site.
    site: str | None = None


class JobQueries:
    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)

    def page(self, wanted: JobFilter, limit: int, cursor: str | None = None) -> tuple[list[Job], str | None]:
        """Newest first; and the cursor of the page that follows, `None` after the last.

        Raises `InvalidRequestError` for a cursor that none of our pages gave out.
        """
        return page(self._documents, _conditions(wanted), limit, cursor)

    def latest_run(self, schedule_id: str) -> Job | None:
        """Of a schedule: the one under way, or the one before."""
        query = {"schedule_id": schedule_id, **_DECIDED}
        return self._documents.optional(self._jobs.find_one(query, sort=NEWEST_FIRST))

    def queue_position(self, job: Job) -> int | None:
        """1 for the job that is started next, if users who wait take turns: as many jobs of each other user are
        before it as of its own, and one more. `None` for one that does not wait, or waits for another job's end.

        A place beyond `MAX_QUEUE_POSITION`, or behind more users than `MAX_USERS`, is counted no further.
        """
        if job.status is not JobStatus.PENDING or job.blocked:
            return None
        stored = self._jobs.find_one({"_id": job.id}, {"rank": 1}) or {}
        rank: datetime = stored.get("rank") or job.queue_place()["rank"]
        mine = {**FREE_TO_START, "user_id": job.user_id, "rank": {"$lt": rank}}
        before = self._jobs.count_documents(mine, limit=MAX_QUEUE_POSITION)
        others = sum(self._first_jobs(user, before, rank) for user in self._waiting_users(job.user_id))
        return min(before + others, MAX_QUEUE_POSITION) + 1

    def _waiting_users(self, but: str) -> Iterator[str]:
        """In order; each by one look, however many jobs it has."""
        query: Document = {**FREE_TO_START, "user_id": {"$gt": ""}}
        for _ in range(MAX_USERS):
            found = self._jobs.find_one(query, {"user_id": 1}, sort=[("user_id", ASCENDING)])
            if found is None:
                return
            if found["user_id"] != but:
                yield found["user_id"]
            query["user_id"] = {"$gt": found["user_id"]}

    def _first_jobs(self, user_id: str, turns: int, before: datetime) -> int:
        """Jobs that the user starts in so many turns; and one more if it goes first in the next."""
        waiting = {**FREE_TO_START, "user_id": user_id}
        count = self._jobs.count_documents(waiting, limit=turns + 1)
        if count <= turns:
            return count
        next_one = self._jobs.find_one(waiting, {"rank": 1}, sort=[("rank", ASCENDING)], skip=turns)
        return turns + bool(next_one and next_one.get("rank", before) < before)

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs there are in each state."""
        return {status: self._jobs.count_documents({"status": status}) for status in JobStatus}

    def oldest_waiting(self) -> datetime | None:
        """When the job that has waited longest was created."""
        first = self._jobs.find_one(
            {"status": JobStatus.PENDING}, {"created_at": 1}, sort=[("created_at", ASCENDING)]
        )
        return None if first is None else first["created_at"]


def _conditions(wanted: JobFilter) -> list[Document]:
    equal = {
        "user_id": wanted.user_id,
        "spec.spider": wanted.spider,
        "tags": wanted.tag,
        "schedule_id": wanted.schedule_id,
        "spec.site": wanted.site,
    }
    conditions: list[Document] = [{path: value} for path, value in equal.items() if value is not None]
    conditions.append(_DECIDED)
    if wanted.dead:
        conditions.append({"dead": True})
    if wanted.status:
        conditions.append({"status": wanted.status[0] if len(wanted.status) == 1 else {"$in": list(wanted.status)}})
    if wanted.since is not None:
        conditions.append({"created_at": {"$gte": wanted.since}})
    if wanted.until is not None:
        conditions.append({"created_at": {"$lt": wanted.until}})
    if wanted.q is not None:
        text = {"$regex": re.escape(wanted.q), "$options": "i"}
        paths = ("_id", "spec.spider", "tags", "spec.start_urls", "message")
        conditions.append({"$or": [{path: text} for path in paths]})
    return conditions
