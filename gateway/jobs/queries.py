"""Lists of jobs, and the place of a job in the queue. `JobStore` has the operations on a single job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database

from gateway.contract.outbox import AttemptId
from gateway.jobs.job import GOOD_STATUSES, Job, JobStatus, WaitingReason
from gateway.jobs.queue import FREE_TO_START, JobDocuments
from gateway.jobs.store import WATCHED
from gateway.stores.documents import NEWEST_FIRST, Documents, cursor_of, down_to, moment_of, older_than
from gateway.stores.mongo import Document

#: Leaves out an occurrence's job that waits for its schedule to be advanced: it may never become a real job.
_DECIDED: Document = {"held": {"$exists": False}}
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
#: Up to this many jobs are read without a time limit.
FEW = 500
#: Seconds after which a search answers with what it has found.
SEARCH_SECONDS = 0.5
#: How many jobs a search reads in one step: in the first step, and at most.
FIRST_LOOK, LARGEST_LOOK = 250, 4000
#: How many runs are read to find one that ended well.
_RUNS_READ = 4
#: Places in the queue are counted up to this.
MAX_QUEUE_POSITION = 10_000
#: The jobs of up to this many other users are counted for a place in the queue.
MAX_USERS = 32


class JobFilter(NamedTuple):
    """Which jobs to list; a field that is `None` or empty does not restrict the list."""

    user_id: str | None = None
    status: tuple[JobStatus, ...] = ()
    spider: str | None = None
    tag: str | None = None
    #: Jobs created at this moment or later.
    since: datetime | None = None
    #: Jobs created before this moment.
    until: datetime | None = None
    #: Text in the id, the spider, a tag, a start URL or the message; case does not matter.
    q: str | None = None
    #: Dead letters only.
    dead: bool = False
    #: Runs of this schedule only.
    schedule_id: str | None = None
    #: Runs of this site only.
    site: str | None = None


class JobsPage(NamedTuple):
    jobs: list[Job]
    #: Cursor of the next page; `None` on the last page.
    next: str | None
    #: If the search ran out of time: it has not read jobs that were created before this moment.
    searched_to: datetime | None = None


class JobQueries:
    """A list never reads all jobs: it finds its rows through an index, or it stops after a time limit and says so."""

    def __init__(self, database: Database[Document], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._monotonic = monotonic

    def page(self, wanted: JobFilter, limit: int, cursor: str | None = None) -> JobsPage:
        """Newest first. A page may have fewer than `limit` jobs if the search ran out of time.

        Raises `InvalidRequestError` for a cursor that was not taken from one of these pages.
        """
        leads, is_few = self._leads(wanted)
        others = [_only_checked(lead) for lead in _equalities(wanted) if lead != leads]
        checked = [_DECIDED, *others, *([_text(wanted.q)] if wanted.q is not None else [])]
        if is_few or len(checked) == 1:
            jobs = self._first(leads, [*_span(wanted, cursor), *checked], limit + 1)
            searched_to = None
        else:
            jobs, searched_to = self._search(leads, wanted, checked, limit + 1, cursor)
        if len(jobs) > limit:
            return JobsPage(jobs[:limit], cursor_of(jobs[limit - 1].created_at, jobs[limit - 1].id))
        return JobsPage(jobs, searched_to, moment_of(searched_to) if searched_to else None)

    def _leads(self, wanted: JobFilter) -> tuple[list[Document], bool]:
        """The conditions to look up in an index, of which a job must meet one; and whether few jobs meet them. The
        conditions that the fewest jobs meet are chosen.
        """
        equalities = _equalities(wanted)
        if len(equalities) + (wanted.q is not None) <= 1:
            return (equalities or [[{}]])[0], False
        counts = [sum(self._jobs.count_documents(one, limit=FEW) for one in leads) for leads in equalities]
        if counts and min(counts) < FEW:
            return equalities[counts.index(min(counts))], True
        # alternatives are left out, because their results would have to be merged
        return next((leads for leads in equalities if len(leads) == 1), [{}]), False

    def _first(self, leads: list[Document], conditions: list[Document], count: int) -> list[Job]:
        found = [self._documents.find({"$and": [lead, *conditions]}, count, NEWEST_FIRST) for lead in leads]
        return sorted(chain(*found), key=lambda job: (job.created_at, job.id), reverse=True)[:count]

    def _search(
        self, leads: list[Document], wanted: JobFilter, checked: list[Document], count: int, cursor: str | None
    ) -> tuple[list[Job], str | None]:
        """Up to `count` jobs that meet the one condition of `leads`; and the cursor of the last job that was read, if
        the search did not reach the end. Each step reads twice as many jobs as the previous one.
        """
        began, size, found = self._monotonic(), FIRST_LOOK, list[Job]()
        while True:
            span = [*leads, *_span(wanted, cursor)]
            looked_at, cursor = self._monotonic(), self._end_of_look(span, size)
            until = [down_to(cursor)] if cursor is not None else []
            found += self._first([{}], [*span, *until, *checked], count - len(found))
            now = self._monotonic()
            if cursor is None or len(found) >= count or now + 2 * (now - looked_at) > began + SEARCH_SECONDS:
                return found, cursor
            size = min(2 * size, LARGEST_LOOK)

    def _end_of_look(self, span: list[Document], size: int) -> str | None:
        """The cursor of the job at place `size`; `None` if there are fewer jobs."""
        last = self._jobs.find_one({"$and": span}, {"created_at": 1}, sort=NEWEST_FIRST, skip=size - 1)
        return cursor_of(last["created_at"], last["_id"]) if last else None

    def latest_run(self, schedule_id: str) -> Job | None:
        """The newest run of the schedule, whether it is under way or has ended."""
        query = {"schedule_id": schedule_id, **_DECIDED}
        return self._documents.optional(self._jobs.find_one(query, sort=NEWEST_FIRST))

    def runs_before(self, job: Job, limit: int) -> list[Job]:
        """The last runs of the job's schedule before it that ended well, newest first; none without a schedule. It
        reads a few times as many at most.
        """
        if job.schedule_id is None:
            return []
        query = {"schedule_id": job.schedule_id, **_DECIDED, "created_at": {"$lt": job.created_at}}
        found = self._documents.find(query, _RUNS_READ * limit, NEWEST_FIRST)
        return [run for run in found if run.status in GOOD_STATUSES][:limit]

    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """By id, of the jobs that exist."""
        found = self._jobs.find({"_id": {"$in": list(job_ids)}}, {"status": 1}) if job_ids else ()
        return {one["_id"]: JobStatus(one["status"]) for one in found}

    def queue_position(self, job: Job) -> int | None:
        """The job's place in the queue; 1 for the job that starts next. It is computed as if waiting users took
        turns: as many jobs of each other user are ahead as of the job's own user, and perhaps one more. `None` for a
        job that does not wait, or that waits for the end of another job.

        Counting stops at `MAX_QUEUE_POSITION` places and at `MAX_USERS` users.
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
        """Users with waiting jobs, by id; one query finds each of them, however many jobs the user has."""
        query: Document = {**FREE_TO_START, "user_id": {"$gt": ""}}
        for _ in range(MAX_USERS):
            found = self._jobs.find_one(query, {"user_id": 1}, sort=[("user_id", ASCENDING)])
            if found is None:
                return
            if found["user_id"] != but:
                yield found["user_id"]
            query["user_id"] = {"$gt": found["user_id"]}

    def _first_jobs(self, user_id: str, turns: int, before: datetime) -> int:
        """How many jobs the user starts in this many turns; one more if its next job ranks before `before`."""
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


def _equalities(wanted: JobFilter) -> list[list[Document]]:
    """Lists of conditions: a job must meet one condition of each list. An index starts with the field of each."""
    equal = {
        "user_id": wanted.user_id,
        "spec.spider": wanted.spider,
        "tags": wanted.tag,
        "schedule_id": wanted.schedule_id,
        "spec.site": wanted.site,
        "dead": wanted.dead or None,
    }
    one_of = [[{path: value}] for path, value in equal.items() if value is not None]
    return [*one_of, *([[{"status": status} for status in wanted.status]] if wanted.status else [])]


def _only_checked(leads: list[Document]) -> Document:
    """The same condition, written so that the server does not choose an index for it."""
    return {"$nor": [{"$nor": leads}]}


def _span(wanted: JobFilter, cursor: str | None) -> list[Document]:
    """The conditions on the time of creation. A job without one is in no list."""
    conditions: list[Document] = [{"created_at": {"$gte": wanted.since or _BEGINNING}}]
    if wanted.until is not None:
        conditions.append({"created_at": {"$lt": wanted.until}})
    if cursor is not None:
        conditions.append(older_than(cursor))
    return conditions


def _text(q: str) -> Document:
    text = {"$regex": re.escape(q), "$options": "i"}
    return {"$or": [{path: text} for path in ("_id", "spec.spider", "tags", "spec.start_urls", "message")]}


# --- the queries of the beat, which concern all jobs. They only read, and each of them uses an index.
class LiveAttempt(NamedTuple):
    """An attempt that runs, or that is assigned to a node."""

    id: AttemptId
    node: str
    is_running: bool


class JobSweeps:
    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)

    def live_attempts(self) -> list[LiveAttempt]:
        """All attempts that should be on a node."""
        running = self._jobs.find({"status": JobStatus.RUNNING}, {"attempt": 1, "node": 1})
        assigned = self._jobs.find({"assignment.attempt": {"$gte": 1}}, {"assignment": 1})
        found = [(one["_id"], one["attempt"], one.get("node", ""), True) for one in running]
        found += [(one["_id"], one["assignment"]["attempt"], one["assignment"]["node"], False) for one in assigned]
        return [LiveAttempt(AttemptId(job, attempt), node, is_running) for job, attempt, node, is_running in found]

    def jobs(self, job_ids: Iterable[str]) -> dict[str, Job]:
        """The jobs with these ids that exist and can be read."""
        wanted = list(job_ids)
        found = self._documents.many(self._jobs.find({"_id": {"$in": wanted}})) if wanted else ()
        return {job.id: job for job in found}

    def existing(self, job_ids: Iterable[str]) -> set[str]:
        """The ids of which a job exists."""
        return {one["_id"] for one in self._jobs.find({"_id": {"$in": list(job_ids)}}, {"_id": 1})}

    def running_on(self, node: str) -> list[str]:
        return [one["_id"] for one in self._jobs.find({"status": JobStatus.RUNNING, "node": node}, {"_id": 1})]


# --- figures over all jobs: why they wait, since when, and how those have ended that ended recently

#: At most this many ended jobs are read.
MAX_COUNTED = 1000


class CallsToCome(NamedTuple):
    """Ended jobs whose webhooks are still to be called."""

    #: Jobs whose webhooks are due and that no worker has claimed.
    waiting: int
    #: Since when the first of these is due.
    since: datetime | None
    #: Jobs whose webhooks were called before and failed.
    failing: int


_FIELDS = (
    "status", "spec.site", "created_at", "not_before", "started_at", "finished_at", "attempt",
    "attempts.1.dispatched_at", "progress.completed_pages", "progress.items_count",
    "progress.errors_count",
)  # fmt: skip


class EndedJob(NamedTuple):
    id: str
    #: `None` for a single crawl.
    site: str | None
    status: JobStatus
    finished_at: datetime
    #: The earliest time at which it could have started.
    due: datetime
    #: When its first attempt was dispatched to a node.
    dispatched_at: datetime | None
    #: When its first attempt started.
    started_at: datetime | None
    #: Attempts after the first.
    retries: int
    pages: int
    items: int
    errors: int


class JobStatistics:
    """Only reads; each query uses an index."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._ended = Documents(self._jobs, _ended_job)

    def waiting_reasons(self) -> dict[WaitingReason, int]:
        """How many jobs wait for which reason; jobs that no worker has looked at yet are left out."""
        counts = {reason: self._jobs.count_documents({"waiting_reason": reason}) for reason in WaitingReason}
        return {reason: count for reason, count in counts.items() if count}

    def oldest_due(self, now: datetime) -> datetime | None:
        """Since when the longest-waiting job has been due. That may be days after it was requested."""
        query = {"status": JobStatus.PENDING, "not_before": {"$lte": now}}
        first = self._jobs.find_one(query, {"not_before": 1}, sort=[("not_before", ASCENDING)])
        return None if first is None else first["not_before"]

    def one_off_jobs(self) -> int:
        """How many single crawls wait for their start time; runs of schedules do not count."""
        scheduled = {"status": JobStatus.SCHEDULED}
        # a query for jobs without `schedule_id` would read every job, because no index finds a missing field
        of_schedules = {**scheduled, "schedule_id": {"$gte": ""}}
        return max(0, self._jobs.count_documents(scheduled) - self._jobs.count_documents(of_schedules))

    def waiting_since(self, moment: datetime, limit: int) -> list[Job]:
        """Jobs that have waited only for a slot since `moment`, the longest first; at most `limit` are read."""
        query = {**FREE_TO_START, "not_before": {"$lte": moment}, "assignment": None}
        found = self._jobs.find(query, sort=[("not_before", ASCENDING)], limit=limit)
        return self._documents.many(found)

    def webhooks(self, moment: datetime) -> CallsToCome:
        """Jobs count as waiting if they were due at `moment`. Only the first `MAX_COUNTED` by user id are counted."""
        # the index begins with the user; `$exists` is not used, because an index cannot skip documents by it
        query = {"user_id": {"$gte": ""}, "webhooks_due": {"$gt": datetime.fromtimestamp(0, UTC)}, **WATCHED}
        fields = {"webhooks_due": 1, "webhook_failures": 1}
        found = list(self._jobs.find(query, fields, limit=MAX_COUNTED))
        waiting = [job["webhooks_due"] for job in found if job["webhooks_due"] <= moment]
        failing = sum(bool(job.get("webhook_failures")) for job in found)
        return CallsToCome(len(waiting), min(waiting, default=None), failing)

    def ended(self, since: datetime, limit: int, *, of_sites: bool = False) -> list[EndedJob]:
        """Jobs, or only runs of sites, that ended at `since` or later, newest first."""
        query: Document = {"finished_at": {"$gte": since}, **({"spec.site": {"$exists": True}} if of_sites else {})}
        found = self._jobs.find(query, dict.fromkeys(_FIELDS, 1))
        return self._ended.many(found.sort("finished_at", DESCENDING).limit(limit))


def _ended_job(document: Document) -> EndedJob:
    progress: dict[str, Any] = document.get("progress") or {}
    dispatched_at = (document.get("attempts") or {}).get("1", {}).get("dispatched_at")
    retries = max(0, document.get("attempt", 0) - 1)
    return EndedJob(
        id=document["_id"],
        site=document["spec"].get("site"),
        status=JobStatus(document["status"]),
        finished_at=document["finished_at"],
        due=_due(document, dispatched_at, retries),
        dispatched_at=dispatched_at,
        started_at=document.get("started_at"),
        retries=retries,
        pages=progress.get("completed_pages", 0),
        items=progress.get("items_count", 0),
        errors=progress.get("errors_count", 0),
    )


def _due(document: Document, dispatched_at: datetime | None, retries: int) -> datetime:
    """`not_before` is the start time of a scheduled crawl; after a retry it is the time of the retry instead."""
    created_at: datetime = document["created_at"]
    not_before: datetime = document["not_before"]
    if retries or (dispatched_at is not None and not_before > dispatched_at):
        return created_at
    return max(created_at, not_before)
