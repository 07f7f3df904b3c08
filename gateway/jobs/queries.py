"""Lists of jobs, and a job's place in the queue. Operations on a single job are in `JobStore`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database

from gateway.contract.outbox import AttemptId
from gateway.contract.reasons import Reason, reason_of
from gateway.jobs.hosts import CrawledHost, SpiderOfProject, asked, job_crawls
from gateway.jobs.job import GOOD_STATUSES, LISTED_URLS, Job, JobStatus, ListedJob, ListedSpec, WaitingReason
from gateway.jobs.queue import FREE_TO_START, JobDocuments, SetAside
from gateway.stores.documents import (
    NEWEST_FIRST,
    NO_TIME,
    SET_ASIDE,
    Documents,
    cursor_of,
    following,
    moment,
    moment_of,
    reader,
    up_to,
    whole,
)
from gateway.stores.mongo import Document

#: Leaves out an occurrence's job that waits for its schedule to be advanced: it may never become a real job.
_DECIDED: Document = {"held": {"$exists": False}}
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
#: Up to this many jobs are read without a time limit.
FEW = 500
#: Seconds after which a search answers with what it has found.
SEARCH_SECONDS = 0.5
#: The same for counting, and for the points of a chart.
COUNT_SECONDS = 2.0
#: How many jobs a search reads in one step: in the first step, and at most.
FIRST_LOOK, LARGEST_LOOK = 250, 4000
#: `runs_before` reads this many times the wanted number of runs, because some did not end well.
_RUNS_READ = 4
#: A chart reads all jobs if there are at most this many times as many as it shows; otherwise, it reads a sample.
READ_FOR_POINTS = 4
#: To find a sample, at most this many times as many jobs are looked at as a chart shows.
LOOKED_FOR_POINTS = 50
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
    #: Jobs that crawl this host or one below it.
    host: CrawledHost | None = None
    project: str | None = None
    #: Jobs that wait for this reason only.
    waiting_reason: WaitingReason | None = None
    #: Jobs whose first attempt started at `started_since` or later, and before `started_until`.
    started_since: datetime | None = None
    started_until: datetime | None = None
    #: Jobs that ended at `finished_since` or later, and before `finished_until`.
    finished_since: datetime | None = None
    finished_until: datetime | None = None
    #: Leaves out jobs that were asked to stop.
    unasked: bool = False
    #: Only jobs whose end has no consequence left to carry out.
    settled: bool = False
    #: Only jobs whose id begins with this: up to `FEW`. Random ids share four digits or more in fewer cases than
    #: that.
    id_prefix: str | None = None
    #: Only jobs with one of these ids.
    job_id: tuple[str, ...] = ()
    #: Only jobs of these projects: the ones that the caller may see.
    projects: tuple[str, ...] = ()


class JobOrder(StrEnum):
    """What a list is sorted by. There is an index for each order, so the server need not read all jobs."""

    NEWEST = "newest"
    OLDEST = "oldest"
    #: The last start first; jobs that have not started are not in the list.
    STARTED = "started"
    #: The last end first; jobs that have not ended are not in the list.
    ENDED = "ended"

    @property
    def field(self) -> str:
        return {JobOrder.STARTED: "started_at", JobOrder.ENDED: "finished_at"}.get(self, "created_at")

    @property
    def newest_first(self) -> bool:
        return self is not JobOrder.OLDEST

    @property
    def sort(self) -> list[tuple[str, int]]:
        direction = DESCENDING if self.newest_first else ASCENDING
        return [(self.field, direction), ("_id", direction)]

    def cursor(self, job: ListedJob) -> str:
        return cursor_of(getattr(job, self.field), job.id)


class JobsPage(NamedTuple):
    """One page of a list."""

    jobs: list[ListedJob]
    #: Cursor of the next page; `None` on the last page.
    next: str | None
    #: Set if the search ran out of time: the list was searched only up to the job with this time.
    searched_to: datetime | None = None


class RunningCount(NamedTuple):
    """A running job, and how many items it has."""

    id: str
    attempt: int
    items: int
    #: Some fields of its document.
    facts: Document


class ListedPlace(NamedTuple):
    """A job's place in a list."""

    job_id: str
    #: Cursor of the jobs that follow this one.
    cursor: str


class JobPoint(NamedTuple):
    """A job that has started, as a point of a chart."""

    job_id: str
    status: JobStatus
    started_at: datetime
    #: `None` while it has not ended.
    finished_at: datetime | None


class JobPoints(NamedTuple):
    """The points of a chart."""

    points: list[JobPoint]
    #: Whether points were left out because there are too many.
    is_sample: bool
    #: Cursor at which to continue; `None` at the end.
    next: str | None = None


class JobsCounted(NamedTuple):
    """How many jobs were counted, perhaps not all."""

    number: int
    #: Cursor at which to continue; `None` at the end.
    next: str | None = None


class JobQueries:
    """Lists and counts of jobs. A list never reads all jobs: it finds its rows through an index, or it stops after a
    time limit and says so.
    """

    def __init__(self, database: Database[Document], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._listed = SetAside(self._jobs, reader(ListedJob))
        self._nodes = Documents(self._jobs, _nodes)
        self._points = Documents(self._jobs, _point)
        self._counts = Documents(self._jobs, _running_count)
        self._made = Documents(self._jobs, lambda document: moment(document["created_at"]))
        self._monotonic = monotonic

    def page(
        self, wanted: JobFilter, limit: int, cursor: str | None = None, order: JobOrder = JobOrder.NEWEST
    ) -> JobsPage:
        """One page of the list. It can have fewer than `limit` jobs if a search ran out of time.

        Raises `InvalidRequestError` for a cursor that was not taken from one of these pages.
        """
        wanted = self._narrowed(wanted)
        leads, is_few = self._leads(wanted)
        if not is_few and order.field != "created_at":
            # the index for this order starts with no other field
            leads = [{}]
        checked = [_DECIDED, *_checked(wanted, leads)]
        if is_few or len(checked) == 1:
            jobs = self._first(leads, [*_span(wanted, cursor, order), *checked], limit + 1, order)
            searched_to = None
        else:
            jobs, searched_to = self._search(leads, wanted, checked, limit + 1, cursor, order=order)
        jobs = self._whole(jobs)
        if len(jobs) > limit:
            return JobsPage(jobs[:limit], order.cursor(jobs[limit - 1]))
        return JobsPage(jobs, searched_to, moment_of(searched_to) if searched_to else None)

    def _list(self, query: Document, limit: int, order: Sequence[tuple[str, int]] = NEWEST_FIRST) -> list[ListedJob]:
        return self._listed.find(query, limit, order, _LISTED)

    def _whole(self, jobs: list[ListedJob]) -> list[ListedJob]:
        """The jobs, with two fields added that a projection by field names cannot read: the nodes of their attempts,
        and the number of start URLs, which is absent in documents of older releases.
        """
        begun = [job for job in jobs if job.attempt]
        paths = {f"attempts.{number}.node": 1 for number in sorted({n for job in begun for n in _numbers(job)})}
        found = self._jobs.find({"_id": {"$in": [job.id for job in begun]}}, paths) if begun else ()
        nodes = dict(self._nodes.many(found))
        uncounted = [job.id for job in jobs if not job.start_urls_count and len(job.spec.start_urls) > LISTED_URLS]
        urls = self._jobs.find({"_id": {"$in": uncounted}}, {"spec.start_urls": 1}) if uncounted else ()
        counts = {one["_id"]: len(one["spec"]["start_urls"]) for one in urls}
        return [
            job.model_copy(
                update={
                    "nodes": nodes.get(job.id, {}),
                    "start_urls_count": job.start_urls_count or counts.get(job.id) or len(job.spec.start_urls),
                }
            )
            for job in jobs
        ]

    def one_off(self, wanted: JobFilter, since: datetime, until: datetime, limit: int) -> list[ListedJob]:
        """Single crawls with a start time from `since` on and before `until`, the next one first."""
        lead: Document = {"status": JobStatus.SCHEDULED, "not_before": {"$gte": since, "$lt": until}}
        single: Document = {"schedule_id": {"$exists": False}}
        query = {"$and": [lead, single, *_checked(wanted, [])]}
        return self._whole(self._list(query, limit, [("not_before", ASCENDING)]))

    def places(self, wanted: JobFilter, limit: int, cursor: str | None = None) -> list[ListedPlace]:
        """The next jobs of the list, newest first. It reads until it has `limit` jobs, however long that takes."""
        wanted = self._narrowed(wanted)
        leads, _ = self._leads(wanted)
        conditions = [*_span(wanted, cursor), _DECIDED, *_checked(wanted, leads)]
        found = list[ListedPlace]()
        for lead in leads:
            query = {"$and": [lead, *conditions]}
            documents = self._jobs.find(query, {"created_at": 1}, sort=NEWEST_FIRST, limit=limit)
            found += [ListedPlace(one["_id"], cursor_of(one["created_at"], one["_id"])) for one in documents]
        return sorted(found, key=lambda place: (moment_of(place.cursor), place.job_id), reverse=True)[:limit]

    def count(self, wanted: JobFilter, most: int | None = None) -> int:
        """How many jobs the list has; counting stops at `most`. Without `most` it may have to read all jobs."""
        undecided = self._undecided(wanted)
        leads, _ = self._leads(wanted)
        conditions = [*_span(wanted, None), *_checked(wanted, leads)]
        limit: dict[str, Any] = {} if most is None else {"limit": most + undecided}
        counts = [self._jobs.count_documents({"$and": [lead, *conditions]}, **limit) for lead in leads]
        count = sum(counts) - undecided
        return count if most is None else min(count, most)

    def count_part(self, wanted: JobFilter, most: int, cursor: str | None = None) -> JobsCounted:
        """As `count`. With a text (`q`) or a host, which would need all jobs to be read, it counts the newest jobs
        for up to `COUNT_SECONDS`; the returned cursor continues.
        """
        if wanted.q is None and wanted.host is None:
            return JobsCounted(self.count(wanted, most))
        count = 0
        for query, reached in self._parts(wanted, cursor):
            count += self._jobs.count_documents(query, limit=most - count)
            cursor = reached
            if count >= most:
                break
        return JobsCounted(count, cursor if count < most else None)

    def _parts(self, wanted: JobFilter, cursor: str | None) -> Iterator[tuple[Document, str | None]]:
        """Yields queries, each for a part of the jobs, newest first, for up to `COUNT_SECONDS`. Each comes with the
        cursor of the next part; `None` after the last part.
        """
        wanted = self._narrowed(wanted)
        leads, _ = self._leads(wanted)
        # an index finds the parts by a single condition and the creation time; several alternatives are only checked
        lead = leads if len(leads) == 1 else [{}]
        checked = [_DECIDED, *_checked(wanted, lead)]
        began, size = self._monotonic(), FIRST_LOOK
        while True:
            span = [*lead, *_span(wanted, cursor)]
            cursor = self._end_of_look(span, size)
            until = [] if cursor is None else [up_to(cursor)]
            yield {"$and": [*span, *until, *checked]}, cursor
            if cursor is None or self._monotonic() > began + COUNT_SECONDS:
                return
            size = min(2 * size, LARGEST_LOOK)

    def _undecided(self, wanted: JobFilter) -> int:
        """How many jobs `_DECIDED` leaves out. They are few, and counted through an index. With `_DECIDED` in the
        query itself, the server would have to read each job.
        """
        conditions = [_only_checked(one) for one in _equalities(wanted)]
        span = _only_checked([{"$and": _span(wanted, None)}])
        query = {"$and": [{"held": {"$gte": ""}}, span, *conditions, *_further(wanted)]}
        return self._jobs.count_documents(query)

    def points(self, wanted: JobFilter, most: int, cursor: str | None = None) -> JobPoints:
        """Up to `most` of the jobs that have started, each with the same chance to be chosen. With a text (`q`) or a
        host, the newest jobs are searched for up to `COUNT_SECONDS`.
        """
        if wanted.q is not None or wanted.host is not None:
            return self._points_with_text(wanted, most, cursor)
        wanted = self._narrowed(wanted)
        leads, _ = self._leads(wanted)
        conditions = [*_span(wanted, None), *_checked(wanted, leads)]
        enough = most * READ_FOR_POINTS
        # with one equality, an index alone can count; with more, counting takes as long as reading
        is_counted = not _further(wanted) and len(_equalities(wanted)) <= 1
        is_many = is_counted and self.count(wanted, enough + 1) > enough
        found = [] if is_many else self._started(leads, conditions, enough + 1)
        if is_many := is_many or len(found) > enough:
            found = self._sample(wanted, most)
        points = _evenly(found, most)
        return JobPoints(points, is_sample=is_many or len(points) < len(found))

    def _sample(self, wanted: JobFilter, most: int) -> list[JobPoint]:
        """A sample of about `most` jobs. It reads a small share of all jobs, and enlarges the share until it has
        found enough or has looked at about `LOOKED_FOR_POINTS * most` jobs; the sample is then smaller.
        """
        conditions = [_only_checked([{"$and": _span(wanted, None)}]), *_checked(wanted, [])]
        jobs = max(self._jobs.estimated_document_count(), 1)
        share, largest = most / jobs, most * LOOKED_FOR_POINTS / jobs
        while True:
            # ids are random, so those below a limit are a fair sample
            sample: Document = {"_id": {"$lt": f"{int(min(share, 1) * 0xFFFFFFFF):08x}"}}
            found = self._started([sample], conditions, most * READ_FOR_POINTS)
            if len(found) >= most or share >= min(largest, 1):
                return found
            share = min(share * max(2, 1.2 * most / max(len(found), 1)), largest)

    def _points_with_text(self, wanted: JobFilter, most: int, cursor: str | None) -> JobPoints:
        found = list[JobPoint]()
        for query, reached in self._parts(wanted, cursor):
            started = {"$and": [query, {"started_at": {"$gte": _BEGINNING}}]}
            found += self._points.many(self._jobs.find(started, _POINT_FIELDS))
            cursor = reached
            if len(found) > most * READ_FOR_POINTS:
                break
        points = _evenly(found, most)
        return JobPoints(points, is_sample=len(points) < len(found), next=cursor)

    def _started(self, leads: list[Document], conditions: list[Document], limit: int) -> list[JobPoint]:
        """Up to `limit` jobs for each of `leads`."""
        started: Document = {"started_at": {"$gte": _BEGINNING}}
        queries = [{"$and": [lead, *conditions, _DECIDED, started]} for lead in leads]
        return [
            point for one in queries for point in self._points.many(self._jobs.find(one, _POINT_FIELDS, limit=limit))
        ]

    def _narrowed(self, wanted: JobFilter) -> JobFilter:
        """The filter, narrowed to the time in which its jobs were created, if only few jobs started or ended in the
        time that the filter names.
        """
        started = _range("started_at", wanted.started_since, wanted.started_until)
        ended = _range("finished_at", wanted.finished_since, wanted.finished_until)
        for conditions in (started, ended):
            if conditions and (first := self._first_created(conditions)):
                wanted = wanted._replace(since=max(wanted.since or _BEGINNING, first))
        return wanted

    def _first_created(self, conditions: list[Document]) -> datetime | None:
        """When the first of the jobs that meet these conditions was created; `None` if there are many such jobs."""
        found = list(self._jobs.find({"$and": conditions}, {"created_at": 1}, limit=FEW))
        if len(found) == FEW:
            return None
        created = [one["created_at"] for one in found if isinstance(one.get("created_at"), datetime)]
        return min(created, default=datetime.max.replace(tzinfo=UTC))

    def _leads(self, wanted: JobFilter) -> tuple[list[Document], bool]:
        """The conditions to look up in an index, and whether only few jobs meet them. They are alternatives: a wanted
        job meets one of them. If the filter gives several such lists, the one that the fewest jobs meet is chosen.
        """
        if wanted.job_id:
            return [_one_of(wanted.job_id)], True
        if wanted.id_prefix is not None:
            # look up the ids first: to sort by time, the server might read all jobs from the newest on
            ids = self._jobs.find(_begins(wanted.id_prefix), {"_id": 1}, limit=FEW)
            return [_one_of([one["_id"] for one in ids])], True
        equalities = _equalities(wanted)
        if len(equalities) + len(_further(wanted)) <= 1:
            return (equalities or [[{}]])[0], False
        counts = [sum(self._jobs.count_documents(one, limit=FEW) for one in leads) for leads in equalities]
        if counts and min(counts) < FEW:
            return equalities[counts.index(min(counts))], True
        # alternatives are left out, because their results would have to be merged
        return next((leads for leads in equalities if len(leads) == 1), [{}]), False

    def _first(
        self, leads: list[Document], conditions: list[Document], count: int, order: JobOrder
    ) -> list[ListedJob]:
        found = [self._list({"$and": [lead, *conditions]}, count, order.sort) for lead in leads]
        place = attrgetter(order.field, "id")
        return sorted(chain(*found), key=place, reverse=order.newest_first)[:count]

    def _search(
        self,
        leads: list[Document],
        wanted: JobFilter,
        checked: list[Document],
        count: int,
        cursor: str | None,
        *,
        order: JobOrder,
    ) -> tuple[list[ListedJob], str | None]:
        """Up to `count` jobs that meet the only condition in `leads`, and the cursor of the last job that was read;
        `None` if the search reached the end. Each step reads twice as many jobs as the previous one.
        """
        began, size, found = self._monotonic(), FIRST_LOOK, list[ListedJob]()
        while True:
            span = [*leads, *_span(wanted, cursor, order)]
            looked_at, cursor = self._monotonic(), self._end_of_look(span, size, order)
            until = [] if cursor is None else [up_to(cursor, order.field, newest_first=order.newest_first)]
            found += self._first([{}], [*span, *until, *checked], count - len(found), order)
            now = self._monotonic()
            if cursor is None or len(found) >= count or now + 2 * (now - looked_at) > began + SEARCH_SECONDS:
                return found, cursor
            size = min(2 * size, LARGEST_LOOK)

    def _end_of_look(self, span: list[Document], size: int, order: JobOrder = JobOrder.NEWEST) -> str | None:
        """The cursor of the job at place `size`; `None` if there are fewer jobs."""
        last = self._jobs.find_one({"$and": span}, {order.field: 1}, sort=order.sort, skip=size - 1)
        return cursor_of(last[order.field], last["_id"]) if last else None

    def last_ended(self, limit: int, wanted: JobFilter, since: datetime = _BEGINNING) -> list[ListedJob]:
        """The wanted jobs that ended at `since` or later, the last end first. All jobs are read from the last end on
        until `limit` wanted ones are found.
        """
        query = {"$and": [{"finished_at": {"$gte": since}}, _DECIDED, *_checked(wanted, [])]}
        return self._whole(self._list(query, limit, [("finished_at", DESCENDING)]))

    def running_counts(
        self, limit: int, users: Sequence[str] | None = None, after: str | None = None
    ) -> tuple[list[RunningCount], str | None]:
        """Up to `limit` running jobs of these users (`None`: of all users), the newest first, with their numbers of
        items; and the cursor of the jobs that follow, `None` at the end.
        """
        of_users = [] if users is None else [{"user_id": {"$in": list(users)}}]
        beyond = [] if after is None else [following(after)]
        query = {"$and": [{"status": JobStatus.RUNNING}, *of_users, *beyond]}
        found = list(self._jobs.find(query, _COUNTED_FIELDS, sort=NEWEST_FIRST, limit=limit))
        is_all = len(found) < limit
        return self._counts.many(found), None if is_all else cursor_of(found[-1]["created_at"], found[-1]["_id"])

    def latest_run(self, schedule_id: str) -> Job | None:
        """The newest run of the schedule, in whichever state it is; `None` if there is no run."""
        query = {"schedule_id": schedule_id, **_DECIDED}
        return self._documents.optional(self._jobs.find_one(query, sort=NEWEST_FIRST))

    def runs_before(self, job: Job, limit: int, *, of_all_users: bool = False) -> list[Job]:
        """The last runs before the job that ended well, newest first: runs of the same schedule, or, if the job has
        none, the user's crawls with the same spider, start URLs and parameters; or those of all users. Their versions
        may differ, so that a new version can be compared with the one before. It reads at most a few times `limit`
        runs.
        """
        kinds = [_same(job)] if job.schedule_id else [_same_spider(job)]
        if of_all_users and not job.schedule_id:
            # besides the user's own, which many crawls of others could otherwise push out of what is read
            kinds.append({name: value for name, value in _same_spider(job).items() if name != "user_id"})
        found = dict[str, Job]()
        for same in kinds:
            query = {**same, **_DECIDED, "created_at": {"$lt": job.created_at}}
            found |= {run.id: run for run in self._documents.find(query, _RUNS_READ * limit, NEWEST_FIRST)}
        latest = sorted(found.values(), key=lambda run: (run.created_at, run.id), reverse=True)
        good = [run for run in latest if run.status in GOOD_STATUSES]
        return [run for run in good if job.schedule_id or _asked(run) == _asked(job)][:limit]

    def that_asked(self, host: str) -> tuple[set[SpiderOfProject], set[str]]:
        """The spiders and schedules (ids) that have sent requests to the host in the last `LARGEST_LOOK` jobs; only
        spiders that had start URLs of their own.
        """
        span = _span(JobFilter(), None)
        cursor = self._end_of_look(span, LARGEST_LOOK)
        query = {"$and": [*span, *([] if cursor is None else [up_to(cursor)]), asked(host)]}
        spiders, schedules = set[SpiderOfProject](), set[str]()
        fields = {"schedule_id": 1, "spec.project": 1, "spec.spider": 1, "spec.start_urls": {"$slice": 1}}
        for one in self._jobs.find(query, fields):
            if not one["spec"].get("start_urls"):
                spiders.add(SpiderOfProject(one["spec"]["project"], one["spec"]["spider"]))
            if schedule_id := one.get("schedule_id"):
                schedules.add(schedule_id)
        return spiders, schedules

    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """The statuses of the jobs that exist, by id."""
        found = self._jobs.find({"_id": {"$in": list(job_ids)}}, {"status": 1}) if job_ids else ()
        return {one["_id"]: JobStatus(one["status"]) for one in found}

    def params(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The parameters of those jobs that exist, by id."""
        found = self._jobs.find({"_id": {"$in": job_ids}}, {"spec.params": 1}) if job_ids else ()
        return {one["_id"]: one["spec"].get("params") or {} for one in found}

    def runs_beside(self, job: Job, limit: int) -> list[ListedJob]:
        """The newest runs of the job's schedule in its project, or of the same request if it has no schedule, newest
        first. The job itself is among them if it is new enough.
        """
        return self._whole(self._list({**_same(job), **_DECIDED}, limit))

    def queue_position(self, job: Job, running: Callable[[], Mapping[str, int]]) -> int | None:
        """The job's place in the queue; 1 for the job that starts next. The user with the fewest crawls starts next,
        so a job of another user is ahead if this user will have fewer crawls when it starts than the job's own user
        when the job starts; or as many, and the other job is due earlier. `running` returns how many crawls each user
        has running. It is computed as if none of them ended, because nobody knows which ends first. `None` for a job
        that does not wait, or that waits for the end of another job.

        Counting stops at `MAX_QUEUE_POSITION` places and at `MAX_USERS` users.
        """
        if job.status is not JobStatus.PENDING or job.blocked:
            return None
        stored = self._jobs.find_one({"_id": job.id}, {"rank": 1}) or {}
        rank: datetime = stored.get("rank") or job.queue_place()["rank"]
        mine = {**FREE_TO_START, "user_id": job.user_id, "rank": {"$lt": rank}}
        before = self._jobs.count_documents(mine, limit=MAX_QUEUE_POSITION)
        have = running()
        crawls = have.get(job.user_id, 0) + before
        others = (
            self._first_jobs(user, crawls - have.get(user, 0), rank)
            for user in self._waiting_users(job.user_id)
            if have.get(user, 0) <= crawls
        )
        return min(before + sum(others), MAX_QUEUE_POSITION) + 1

    def _waiting_users(self, but: str) -> Iterator[str]:
        """Users with waiting jobs, in the order of their ids. Each takes one query, however many jobs the
        user has.
        """
        query: Document = {**FREE_TO_START, "user_id": {"$gt": ""}}
        for _ in range(MAX_USERS):
            found = self._jobs.find_one(query, {"user_id": 1}, sort=[("user_id", ASCENDING)])
            if found is None:
                return
            if found["user_id"] != but:
                yield found["user_id"]
            query["user_id"] = {"$gt": found["user_id"]}

    def _first_jobs(self, user_id: str, turns: int, before: datetime) -> int:
        """How many jobs the user starts in this number of turns. If the job after them has a rank below `before`, it
        counts, too.
        """
        waiting = {**FREE_TO_START, "user_id": user_id}
        ahead = self._jobs.count_documents({**waiting, "rank": {"$lt": before}}, limit=turns + 1)
        if ahead > turns or not turns:
            return ahead
        return self._jobs.count_documents(waiting, limit=turns)

    def in_status(self, status: JobStatus) -> int:
        """How many jobs are in this state. The server reads one index key for each job."""
        return self._jobs.count_documents({"status": status})

    def oldest_waiting(self) -> datetime | None:
        """When the job that has waited longest was created."""
        query = {"status": JobStatus.PENDING, "created_at": {"$gt": NO_TIME}}
        return next(iter(self._made.find(query, 1, [("created_at", ASCENDING)], {"created_at": 1})), None)


#: The stored fields that a `ListedJob` needs.
_LISTED: Document = {
    **{field.alias or name: 1 for name, field in ListedJob.model_fields.items() if name not in {"spec", "nodes"}},
    **{f"spec.{name}": 1 for name in ListedSpec.model_fields},
    "spec.start_urls": {"$slice": LISTED_URLS + 1},
}
#: The nodes of this many first attempts are read, and of this many last ones if there were more.
_FIRST_ATTEMPTS, _LAST_ATTEMPTS = 50, 4


def _numbers(job: ListedJob) -> Iterator[int]:
    yield from range(1, min(job.attempt, _FIRST_ATTEMPTS) + 1)
    yield from range(max(1, job.attempt - _LAST_ATTEMPTS + 1), job.attempt + 1)


def _nodes(document: Document) -> tuple[str, dict[int, str]]:
    attempts = document.get("attempts") or {}
    return document["_id"], {int(number): one["node"] for number, one in attempts.items() if "node" in one}


_COUNTED_FIELDS: Document = {
    **dict.fromkeys(("user_id", "created_at", "schedule_id", "tags", "attempt", "progress.items_count"), 1),
    **{f"spec.{name}": 1 for name in ("project", "version", "spider", "site", "dataset.name")},
}


def _running_count(document: Document) -> RunningCount:
    items = (document.get("progress") or {}).get("items_count") or 0
    return RunningCount(document["_id"], int(document["attempt"]), int(items), document)


#: Fields that are together the beginning of an index.
_TOGETHER = (frozenset(("user_id", "spec.project", "spec.spider")), frozenset(("spec.project", "spec.spider")))


def _equalities(wanted: JobFilter) -> list[list[Document]]:
    """Lists of conditions: a job must meet one condition of each list. Each condition can use an index."""
    if wanted.project is None and len(wanted.projects) == 1:
        wanted = wanted._replace(project=wanted.projects[0])
    equal = {
        "user_id": wanted.user_id,
        "spec.spider": wanted.spider,
        "tags": wanted.tag,
        "schedule_id": wanted.schedule_id,
        "spec.site": wanted.site,
        "spec.project": wanted.project,
        "waiting_reason": wanted.waiting_reason,
        "dead": wanted.dead or None,
    }
    given = {path: value for path, value in equal.items() if value is not None}
    together = next((paths for paths in _TOGETHER if given.keys() >= paths), frozenset())
    one_of = [[{path: given[path] for path in sorted(together)}]] if together else []
    one_of += [[{path: value}] for path, value in given.items() if path not in together]
    one_of += [[{"status": status} for status in wanted.status]] if wanted.status else []
    if wanted.projects and wanted.project not in wanted.projects:
        one_of.append([{"spec.project": one} for one in wanted.projects])
    if wanted.job_id:
        one_of.append([_one_of(wanted.job_id)])
    return [*one_of, *([[_begins(wanted.id_prefix)]] if wanted.id_prefix is not None else [])]


def _one_of(ids: Sequence[str]) -> Document:
    return {"_id": {"$in": list(ids)}}


def _begins(prefix: str) -> Document:
    # `g` sorts after every hexadecimal digit
    return {"_id": {"$gte": prefix, "$lt": f"{prefix}g"}}


def _only_checked(leads: list[Document]) -> Document:
    """The same condition, written so that the server does not choose an index for it."""
    return {"$nor": [{"$nor": leads}]}


def _checked(wanted: JobFilter, leads: list[Document]) -> list[Document]:
    """All conditions except those of `leads` and the time of creation."""
    return [*(_only_checked(one) for one in _equalities(wanted) if one != leads), *_further(wanted)]


def _further(wanted: JobFilter) -> list[Document]:
    """Conditions that no index in the order of a list covers."""
    conditions = _range("started_at", wanted.started_since, wanted.started_until)
    conditions += _range("finished_at", wanted.finished_since, wanted.finished_until)
    if wanted.unasked:
        conditions.append({"cancel_requested_at": {"$exists": False}})
    if wanted.settled:
        conditions.append({"settled": True})
    if wanted.host is not None:
        conditions.append(job_crawls(wanted.host))
    return [*conditions, *([_text(wanted.q)] if wanted.q is not None else [])]


def _range(path: str, since: datetime | None, until: datetime | None) -> list[Document]:
    limits = {"$gte": since, "$lt": until}
    return [{path: {operator: limit}} for operator, limit in limits.items() if limit is not None]


def _span(wanted: JobFilter, cursor: str | None, order: JobOrder = JobOrder.NEWEST) -> list[Document]:
    """The conditions on the creation time and on the place in the list. A job without a creation time is in
    no list.
    """
    conditions: list[Document] = [{"created_at": {"$gte": wanted.since or _BEGINNING}}]
    # a job starts and ends after its creation, so an upper limit on either time also limits the creation time
    limits = (wanted.until, wanted.started_until, wanted.finished_until)
    if until := min((limit for limit in limits if limit is not None), default=None):
        conditions.append({"created_at": {"$lt": until}})
    if order.field != "created_at":
        conditions = [{order.field: {"$gte": _BEGINNING}}, _only_checked([{"$and": conditions}])]
    if cursor is not None:
        conditions.append(following(cursor, order.field, newest_first=order.newest_first))
    return conditions


#: The stored fields that a `JobPoint` needs.
_POINT_FIELDS = ("status", "started_at", "finished_at")


def _point(document: Document) -> JobPoint:
    finished_at = document.get("finished_at")
    return JobPoint(
        document["_id"],
        JobStatus(document["status"]),
        moment(document["started_at"]),
        None if finished_at is None else moment(finished_at),
    )


def _evenly(found: list[JobPoint], most: int) -> list[JobPoint]:
    """Up to `most` of the points, evenly chosen, in the order of their starts."""
    found.sort(key=lambda point: point.started_at)
    shown = min(most, len(found))
    return [found[number * len(found) // shown] for number in range(shown)]


def _same(job: Job) -> Document:
    if not job.schedule_id:
        return {"fingerprint": job.fingerprint}
    # if the schedule was moved to another project, earlier runs are of the old project, which the caller may not see
    return {"schedule_id": job.schedule_id, "spec.project": job.spec.project}


def _same_spider(job: Job) -> Document:
    return {"user_id": job.user_id, "spec.project": job.spec.project, "spec.spider": job.spec.spider}


def _asked(job: Job) -> tuple[list[str], dict[str, Any]]:
    """What the spider was asked to crawl: start URLs and parameters."""
    return sorted(job.spec.start_urls), job.spec.params


def _text(q: str) -> Document:
    text = {"$regex": re.escape(q), "$options": "i"}
    return {"$or": [{path: text} for path in ("_id", "spec.spider", "tags", "spec.start_urls", "message")]}


# --- the queries of the beat, which concern all jobs. They only read, and each of them uses an index.
class LiveAttempt(NamedTuple):
    """An attempt that runs, or that is assigned to a node."""

    id: AttemptId
    node: str
    is_running: bool


class JobWithHolds(NamedTuple):
    """The fields of a job that decide which holds its attempts need."""

    status: JobStatus
    #: Number of its last attempt.
    attempt: int
    #: The node of that attempt.
    node: str | None
    exclusive: str | None
    #: The attempt that is on its way to a node, and the node.
    assigned: tuple[int, str] | None


class JobSweeps:
    """Queries for the sweep and the dispatcher, about the jobs of all users."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._running = Documents(self._jobs, _running)
        self._assigned = Documents(self._jobs, _assigned)
        self._with_holds = Documents(self._jobs, _with_holds)

    def live_attempts(self) -> list[LiveAttempt]:
        """All attempts that should be on a node, without those of jobs that are set aside."""
        running = self._jobs.find({"status": JobStatus.RUNNING, SET_ASIDE: None}, {"attempt": 1, "node": 1})
        assigned = self._jobs.find({"assignment.attempt": {"$gte": 1}, SET_ASIDE: None}, {"assignment": 1})
        return [*self._running.many(running), *self._assigned.many(assigned)]

    def with_holds(self, job_ids: Iterable[str]) -> dict[str, JobWithHolds | None]:
        """The jobs that exist, by id; `None` for a job that is set aside, or whose fields cannot be read."""
        wanted = {"_id": {"$in": list(job_ids)}}
        fields = ("status", "attempt", "node", "exclusive", "assignment", SET_ASIDE)
        found = self._jobs.find(wanted, dict.fromkeys(fields, 1)) if wanted["_id"]["$in"] else ()
        return {one["_id"]: None if SET_ASIDE in one else job for one, job in self._with_holds.each(found)}

    def jobs(self, job_ids: Iterable[str]) -> dict[str, Job | None]:
        """The jobs that exist, complete, by id; `None` for a job that cannot be read."""
        wanted = list(job_ids)
        found = self._jobs.find({"_id": {"$in": wanted}}) if wanted else ()
        return {document["_id"]: job for document, job in self._documents.each(found)}

    def running_on(self, node: str) -> list[str]:
        return [one["_id"] for one in self._jobs.find({"status": JobStatus.RUNNING, "node": node}, {"_id": 1})]


def _running(document: Document) -> LiveAttempt:
    attempt = AttemptId(document["_id"], whole(document["attempt"]))
    return LiveAttempt(attempt, str(document.get("node", "")), is_running=True)


def _assigned(document: Document) -> LiveAttempt:
    number, node = _assignment(document["assignment"])
    return LiveAttempt(AttemptId(document["_id"], number), node, is_running=False)


def _with_holds(document: Document) -> JobWithHolds:
    given = document.get("assignment")
    return JobWithHolds(
        JobStatus(document["status"]),
        whole(document.get("attempt", 0)),
        document.get("node"),
        document.get("exclusive"),
        None if given is None else _assignment(given),
    )


def _assignment(given: Document) -> tuple[int, str]:
    return whole(given["attempt"]), str(given["node"])


# --- figures about all jobs: why they wait, since when, and how recent jobs have ended

#: How many jobs with something to announce are read at most.
MAX_UNANNOUNCED = 1000
_FIELDS = (
    "status", "spec.project", "spec.spider", "spec.site", "created_at", "not_before", "started_at", "finished_at",
    "attempt", "dispatched_at", "reason",
    "attempts.1.dispatched_at", "progress.completed_pages", "progress.items_count",
    "progress.errors_count",
)  # fmt: skip


class EndedJob(NamedTuple):
    """The fields of an ended job from which figures are made."""

    id: str
    project: str
    spider: str
    #: `None` for a single crawl.
    site: str | None
    status: JobStatus
    #: `None` if there is no reason (older releases store none), or only a newer release knows it.
    reason: Reason | None
    finished_at: datetime
    #: The earliest time at which the job could have started.
    due: datetime
    #: When its first attempt was dispatched to a node.
    dispatched_at: datetime | None
    #: When its first attempt started.
    started_at: datetime | None
    #: How many attempts followed the first.
    retries: int
    pages: int
    items: int
    errors: int


class JobStatistics:
    """Figures over all jobs. It only reads, and each query uses an index."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._ended = Documents(self._jobs, _ended_job)
        self._due = Documents(self._jobs, lambda document: moment(document["not_before"]))

    def waiting_reasons(self) -> dict[WaitingReason, int]:
        """How many jobs wait for each reason. Jobs that no worker has looked at yet are left out."""
        counts = {reason: self._jobs.count_documents({"waiting_reason": reason}) for reason in WaitingReason}
        return {reason: count for reason, count in counts.items() if count}

    def oldest_due(self, now: datetime) -> datetime | None:
        """Since when the longest-waiting job has been due, which may be days after it was requested."""
        query = {"status": JobStatus.PENDING, "not_before": {"$gt": NO_TIME, "$lte": now}}
        return next(iter(self._due.find(query, 1, [("not_before", ASCENDING)], {"not_before": 1})), None)

    def one_off_jobs(self) -> int:
        """How many single crawls wait for their start time; runs of schedules do not count."""
        scheduled = {"status": JobStatus.SCHEDULED}
        # a query for jobs without `schedule_id` would read every job, because no index finds a missing field
        of_schedules = {**scheduled, "schedule_id": {"$gte": ""}}
        return max(0, self._jobs.count_documents(scheduled) - self._jobs.count_documents(of_schedules))

    def waiting_since(self, moment: datetime, limit: int) -> list[Job]:
        """Jobs that have waited for nothing but a slot since `moment` or longer, the longest first; up to `limit`."""
        query = {**FREE_TO_START, "not_before": {"$lte": moment}, "assignment": None}
        found = self._jobs.find(query, sort=[("not_before", ASCENDING)], limit=limit)
        return self._documents.many(found)

    def oldest_free(self, wanted: Document, now: datetime) -> datetime | None:
        """Since when the longest-waiting of the wanted jobs could have started."""
        query = {**wanted, **FREE_TO_START, "not_before": {"$gt": NO_TIME, "$lte": now}}
        return next(iter(self._due.find(query, 1, [("not_before", ASCENDING)], {"not_before": 1})), None)

    def ended_of(self, wanted: Document, since: datetime, fields: Sequence[str], limit: int) -> Iterator[Document]:
        """These fields of the wanted jobs that ended at `since` or later, newest first."""
        query = {**wanted, "finished_at": {"$gte": since}}
        found = self._jobs.find(query, dict.fromkeys(fields, 1)).sort("finished_at", DESCENDING).limit(limit)
        yield from found.batch_size(500)

    def count_pending(self, wanted: Document, limit: int) -> int:
        """How many of the wanted jobs wait; at most `limit` are counted."""
        return self._jobs.count_documents({**wanted, "status": JobStatus.PENDING}, limit=limit)

    def unannounced_since(self, moment: datetime) -> datetime | None:
        """The earliest time, up to `moment`, since when a job has had something to announce; `None` if
        there is none.
        """
        due = {"user_id": {"$gte": ""}, "signals_due": {"$gt": NO_TIME, "$lte": moment}}
        found = self._jobs.find(due, {"signals_due": 1}, limit=MAX_UNANNOUNCED)
        return min((one["signals_due"] for one in found), default=None)

    def ended(self, since: datetime, limit: int, *, of_sites: bool = False) -> list[EndedJob]:
        """Jobs, or only runs of sites, that ended at `since` or later, newest first."""
        query: Document = {"finished_at": {"$gte": since}, **({"spec.site": {"$exists": True}} if of_sites else {})}
        found = self._jobs.find(query, dict.fromkeys(_FIELDS, 1))
        return self._ended.many(found.sort("finished_at", DESCENDING).limit(limit))


def _ended_job(document: Document) -> EndedJob:
    progress: dict[str, Any] = document.get("progress") or {}
    first = (document.get("attempts") or {}).get("1", {})
    dispatched_at = document.get("dispatched_at") or first.get("dispatched_at")
    retries = max(0, document.get("attempt", 0) - 1)
    return EndedJob(
        id=document["_id"],
        project=document["spec"]["project"],
        spider=document["spec"]["spider"],
        site=document["spec"].get("site"),
        status=JobStatus(document["status"]),
        reason=reason_of(document.get("reason")),
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
    """The earliest time at which the job could have started. It is in `not_before`, until a retry overwrites that."""
    created_at: datetime = document["created_at"]
    not_before: datetime = document["not_before"]
    if retries or (dispatched_at is not None and not_before > dispatched_at):
        return created_at
    return max(created_at, not_before)
