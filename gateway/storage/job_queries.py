"""Lists of jobs, and where a job stands among the others. The path of a single job's life is `JobStore`'s."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import Job, JobStatus
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, read_job, read_optional
from gateway.storage.newest_first import NEWEST_FIRST, cursor_of, older_than

#: A slot's job that waits for its schedule to be advanced may never become one.
_DECIDED: Document = {"held": {"$exists": False}}
#: A place in the queue beyond this is not worth counting to.
MAX_QUEUE_POSITION = 10_000


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

    def page(self, wanted: JobFilter, limit: int, cursor: str | None = None) -> tuple[list[Job], str | None]:
        """Newest first; and the cursor of the page that follows, `None` after the last.

        Raises `InvalidRequestError` for a cursor that none of our pages gave out.
        """
        conditions = _conditions(wanted)
        if cursor is not None:
            conditions.append(older_than(cursor))
        found = self._jobs.find({"$and": conditions}).sort(NEWEST_FIRST).limit(limit + 1)
        jobs = [read_job(document) for document in found]
        more = len(jobs) > limit
        last = jobs[limit - 1] if more else None
        return jobs[:limit], cursor_of(last.created_at, last.id) if last else None

    def latest_run(self, schedule_id: str) -> Job | None:
        """Of a schedule: the one under way, or the one before."""
        query = {"schedule_id": schedule_id, **_DECIDED}
        return read_optional(self._jobs.find_one(query, sort=NEWEST_FIRST))

    def queue_position(self, job: Job) -> int | None:
        """1 for the job that is looked at next; `None` for one that does not wait, or waits for another job's end."""
        if job.status is not JobStatus.PENDING or job.blocked:
            return None
        ahead: Document = {
            **FREE_TO_START,
            "$or": [
                {"priority": {"$gt": job.priority}},
                {"priority": job.priority, "created_at": {"$lt": job.created_at}},
            ],
        }
        return self._jobs.count_documents(ahead, limit=MAX_QUEUE_POSITION) + 1

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
