"""Schedules. Every change is one compare-and-set on the revision of one document."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from attrs import define
from pymongo import ASCENDING, DESCENDING, ReturnDocument, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError

from gateway import errors
from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.jobs.hosts import CrawledHost, schedule_crawls
from gateway.jobs.job import Job
from gateway.jobs.queries import JobQueries
from gateway.jobs.store import IdempotencyKeys, JobStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind, Schedule, ScheduleState
from gateway.stores.documents import NO_TIME, Documents, moment, page, reader, whole
from gateway.stores.mongo import Document, Repeating, is_passing, mongo_errors, one_of

#: Fields that a text search covers.
_SEARCHED = ("_id", "name", "site", "crawl.spec.spider", "crawl.tags", "crawl.spec.start_urls")


class ScheduleFilter(NamedTuple):
    """Which schedules to list; a field that is `None` does not restrict the list."""

    user_id: str | None = None
    state: ScheduleState | None = None
    site: str | None = None
    target: str | None = None
    #: Schedules that crawl this host or one below it.
    host: CrawledHost | None = None
    project: str | None = None
    spider: str | None = None
    #: Text in the id, the name, the site, the spider, a tag or a start URL; case does not matter.
    q: str | None = None
    #: Only schedules of these projects, which are those that the caller may see. Former projects count, too.
    projects: tuple[str, ...] = ()


class SchedulesFound(NamedTuple):
    schedules: list[Schedule]
    #: The ids of schedules that cannot be read.
    unreadable: list[str]


class UnwritableError(Exception):
    """The database refuses to change these schedules: they are too large, or damaged."""

    def __init__(self, schedule_ids: Sequence[str]) -> None:
        super().__init__(f"the database refuses to change schedule {', '.join(schedule_ids)}")
        self.schedule_ids = schedule_ids


class Advance(NamedTuple):
    """A schedule as it was read, and its changes when it is advanced past its next occurrence (`None`: remove)."""

    schedule: Schedule
    changes: Document


class ScheduleStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._schedules = database["schedules"]
        self._documents = Documents(self._schedules, reader(Schedule))
        self._times = Documents(self._schedules, lambda document: moment(document["next_run"]))
        self._keys = IdempotencyKeys(database, clock)
        self._clock = clock

    # --- one at a time

    @state_change("schedules.insert")
    def insert(self, schedule: Schedule) -> None:
        """Insert the schedule. Raises `ScheduleExistsError`, `LiveTwinError` or `IdempotencyConflictError`, depending
        on which key is taken.
        """
        if schedule.idempotency_key:
            self._keys.claim(schedule.idempotency_key, "schedule")
        try:
            Repeating(self._schedules).insert_one(schedule.to_document(), ours=["created_at"])
        except DuplicateKeyError as error:
            if self._schedules.find_one({"_id": schedule.id}, {"_id": 1}):
                raise errors.ScheduleExistsError(f"there is a schedule {schedule.id!r} already") from error
            if schedule.idempotency_key and self.find_idempotent(schedule.idempotency_key):
                raise errors.IdempotencyConflictError("this idempotency key was used before") from error
            raise errors.LiveTwinError("the same crawl is scheduled already") from error

    def get(self, schedule_id: str) -> Schedule:
        """The schedule with this id. Raises `ScheduleNotFoundError`, `UnreadableError`."""
        if (schedule := self._documents.find_one({"_id": schedule_id})) is None:
            raise errors.ScheduleNotFoundError(schedule_id)
        return schedule

    def find_live(self, live_key: str) -> Schedule | None:
        return self._documents.find_one({"live_key": live_key})

    def find_idempotent(self, idempotency_key: str) -> Schedule | None:
        return self._documents.find_one({"idempotency_key": idempotency_key})

    @state_change("schedules.overtake")
    def overtake(self, live_key: str) -> None:
        """Take `live_key` from the schedule that has it, because a request asked for a schedule of its own."""
        Repeating(self._schedules).update_one({"live_key": live_key}, {"$unset": {"live_key": ""}})

    @state_change("schedules.change")
    def change(self, schedule: Schedule, changes: Document) -> Schedule | None:
        """Make `changes` (`None`: remove the field) and raise the revision. Returns `None` if the schedule is no
        longer in this revision and state. Raises `LiveTwinError` if a changed `live_key` is taken.
        """
        query = {"_id": schedule.id, "rev": schedule.rev, "state": schedule.state}
        update = _update({**changes, "rev": schedule.rev + 1, "updated_at": self._clock()})
        try:
            found = self._schedules.find_one_and_update(query, update, return_document=ReturnDocument.AFTER)
        except DuplicateKeyError as error:
            raise errors.LiveTwinError("the same crawl is scheduled already") from error
        return self._documents.optional(found)

    @state_change("schedules.touch")
    def touch(self, *, site: str | None = None, target: str | None = None) -> list[str]:
        """Raise the revisions of the schedules of this site or target, because their content has changed. Returns
        their ids.
        """
        query: Document = {"site": site} if target is None else {"target": target}
        ids = [document["_id"] for document in self._schedules.find(query, {"_id": 1})]
        if ids:
            further = {"$inc": {"rev": 1}, "$set": {"updated_at": self._clock()}}
            Repeating(self._schedules).update_many({"_id": {"$in": ids}}, further)
        return ids

    @state_change("schedules.delete")
    def delete(self, schedule_id: str) -> bool:
        """Delete the schedule. Returns whether it existed."""
        return self._schedules.delete_one({"_id": schedule_id}).deleted_count == 1

    # --- lists

    def page(self, wanted: ScheduleFilter, limit: int, after: str | None = None) -> tuple[list[Schedule], str | None]:
        """A page as `documents.page` returns it."""
        return page(self._documents, [_query(wanted)], limit, after)

    def read(self, schedule_ids: Iterable[str]) -> SchedulesFound:
        """The schedules with these ids that exist."""
        return _found(self._documents.each(self._schedules.find({"_id": {"$in": list(schedule_ids)}})))

    # --- firing

    def next_run(self, *, but: Sequence[str] = ()) -> datetime | None:
        """When the next occurrence of any schedule is due; this may be in the past."""
        query: Document = {"next_run": {"$gte": NO_TIME}, **_all_but(but)}
        return next(iter(self._times.find(query, 1, [("next_run", ASCENDING)], {"next_run": 1})), None)

    def due(
        self, now: datetime, limit: int, *, but: Sequence[str] = (), users: Collection[str] = ()
    ) -> SchedulesFound:
        """Schedules whose next occurrence is due, the longest due first, without those of `users`. There are fewer
        than `limit` if they are large: a user may have a thousand with crawls of a quarter of a megabyte.
        """
        query: Document = {"next_run": {"$lte": now}, **_all_but(but)}
        if users:
            query["user_id"] = {"$nin": list(users)}
        return _found(self._documents.first(query, limit, [("next_run", ASCENDING)]))

    def count_due(self, now: datetime, limit: int) -> int:
        """How many schedules are due; counted up to `limit`."""
        return self._schedules.count_documents({"next_run": {"$lte": now}}, limit=limit)

    def count(self, state: ScheduleState) -> int:
        return self._schedules.count_documents({"state": state})

    @state_change("schedules.advance")
    def advance(self, advances: Sequence[Advance]) -> bool:
        """Advance each schedule past its next occurrence, unless it has changed. Returns whether none has changed.
        Raises `UnwritableError` after all others are advanced, if some cannot be written.
        """
        now = self._clock()
        operations = [
            UpdateOne(
                {"_id": schedule.id, "rev": schedule.rev, "next_at": schedule.next_at},
                _update({**changes, "updated_at": now}),
            )
            for schedule, changes in advances
        ]
        try:
            return self._schedules.bulk_write(operations, ordered=False).matched_count == len(advances)
        except BulkWriteError as error:
            if is_passing(error):
                raise
            raise UnwritableError(
                [advances[one["index"]].schedule.id for one in error.details["writeErrors"]]
            ) from error

    @state_change("schedules.note_run")
    def note_run(self, schedule: Schedule, job_id: str, at: datetime) -> None:
        """Note a run that was asked for by hand, unless another run was noted since the schedule was read. It is
        counted apart, because `max_runs` is about occurrences.
        """
        query = {"_id": schedule.id, "last_job_id": schedule.last_job_id}
        noted = {"$set": {"last_job_id": job_id, "last_run_at": at}, "$inc": {"runs_by_hand": 1}}
        Repeating(self._schedules).update_one(query, noted)

    @state_change("schedules.uncount")
    def uncount(self, schedule_id: str, job_id: str) -> None:
        """Take back the count of an occurrence whose job was made void after the schedule had counted it."""
        self._schedules.update_one(
            {"_id": schedule_id, "last_job_id": job_id},
            {"$inc": {"runs": -1}, "$unset": {"last_job_id": "", "last_run_at": ""}},
        )


def _found(each: Iterable[tuple[Document, Schedule | None]]) -> SchedulesFound:
    read = list(each)
    unreadable = [document["_id"] for document, schedule in read if schedule is None]
    return SchedulesFound([schedule for _, schedule in read if schedule is not None], unreadable)


def _all_but(schedule_ids: Sequence[str]) -> Document:
    return {"_id": {"$nin": list(schedule_ids)}} if schedule_ids else {}


def _query(wanted: ScheduleFilter) -> Document:
    paths = {"spider": "crawl.spec.spider", "project": "crawl.spec.project"}
    query: Document = {
        paths.get(name, name): value
        for name, value in wanted._asdict().items()
        if value is not None and name not in {"q", "projects", "host"}
    }
    further: list[Document] = []
    if wanted.projects:
        # a schedule's history is shown with it, so its former project must be among these, too
        further += [
            {"crawl.spec.project": one_of(wanted.projects)},
            {"moved_from": {"$in": [None, *wanted.projects]}},
        ]
    if wanted.q is not None:
        text = {"$regex": re.escape(wanted.q), "$options": "i"}
        further.append({"$or": [{path: text} for path in _SEARCHED]})
    if wanted.host is not None:
        further.append(schedule_crawls(wanted.host))
    return {**query, "$and": further} if further else query


def _update(changes: Document) -> Document:
    gone = [name for name, value in changes.items() if value is None]
    update: Document = {"$set": {name: value for name, value in changes.items() if value is not None}}
    return {**update, "$unset": dict.fromkeys(gone, "")} if gone else update


# The ledger: what happened to each occurrence of each schedule
class LedgerStore:
    def __init__(self, database: Database[Document]) -> None:
        self._ledger = database["schedule_ledger"]
        self._documents = Documents(self._ledger, reader(LedgerEntry))
        self._revisions = Documents(self._ledger, lambda document: whole(document["rev"]))

    @state_change("schedule_ledger.record")
    def record(self, entries: Sequence[LedgerEntry]) -> None:
        """Record entries, one for each occurrence even if it is recorded twice. No other kind replaces `fired`."""
        operations = []
        for entry in entries:
            document = entry.model_dump(by_alias=True, exclude_none=True)
            modifier = "$set" if entry.kind is LedgerKind.FIRED else "$setOnInsert"
            operations.append(UpdateOne({"_id": document.pop("_id")}, {modifier: document}, upsert=True))
        self._ledger.bulk_write(operations, ordered=False)

    def revisions(self, job_ids: Sequence[str]) -> dict[str, int | None]:
        """The revision in the ledger entry of each of these occurrences that has one, by job id; `None` if the entry
        cannot be read.
        """
        found = self._ledger.find({"_id": {"$in": list(job_ids)}}, {"rev": 1})
        return {document["_id"]: rev for document, rev in self._revisions.each(found)}

    def page(self, schedule_id: str, limit: int, after: str | None = None) -> tuple[list[LedgerEntry], str | None]:
        """A page as `documents.page` returns it."""
        return page(self._documents, [{"schedule_id": schedule_id}], limit, after, field="due", identity="job_id")

    def between(self, schedule_id: str, since: datetime, until: datetime, limit: int) -> list[LedgerEntry]:
        """The entries of occurrences that were due from `since` on and before `until`, the newest first."""
        query = {"schedule_id": schedule_id, "due": {"$gte": since, "$lt": until}}
        return self._documents.find(query, limit, [("due", DESCENDING), ("_id", DESCENDING)])

    def latest(self, count: int) -> list[LedgerEntry]:
        """The latest entries of all schedules."""
        return self._documents.find({}, count, [("recorded_at", DESCENDING)])

    def count_refused(self, since: datetime, limit: int) -> int:
        """How many occurrences were skipped since then because of a user quota; counted up to `limit`."""
        query: Document = {"recorded_at": {"$gte": since}, "reason": {"$regex": f"^{errors.UserQuotaError.code}"}}
        return self._ledger.count_documents(query, limit=limit)

    def to_announce(self, now: datetime, limit: int) -> list[LedgerEntry]:
        """Skipped and missed occurrences that are to be announced, the longest due first."""
        return self._documents.find({"announce_due": {"$lte": now}}, limit, [("announce_due", ASCENDING)])

    @state_change("schedule_ledger.announced")
    def announced(self, job_ids: Sequence[str]) -> None:
        if job_ids:
            gone = {"$unset": {"announce_due": ""}}
            Repeating(self._ledger).update_many({"_id": {"$in": list(job_ids)}}, gone)

    @state_change("schedule_ledger.delete")
    def delete(self, schedule_id: str) -> None:
        """Delete all entries of a deleted schedule."""
        Repeating(self._ledger).delete_many({"schedule_id": schedule_id})

    @state_change("schedule_ledger.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` entries that were recorded before then. Returns how many."""
        found = self._ledger.find({"recorded_at": {"$lt": before}}, {"_id": 1}, limit=limit)
        old = [document["_id"] for document in found]
        return Repeating(self._ledger).delete_many({"_id": {"$in": old}}).deleted_count if old else 0


# --- when any beat last sent each entry of Celery's own `beat_schedule`
class StaticEntryStore:
    """The collection `static_entries`, with one document for each entry, by its name."""

    def __init__(self, database: Database[Document]) -> None:
        self._entries = database["static_entries"]
        self._documents = Documents(self._entries, read_static_entry)

    def last_sent(self) -> dict[str, datetime]:
        """When each entry was last sent; entries that were never sent are absent."""
        return dict(self._documents.many(self._entries.find()))

    @state_change("static_entries.claim")
    def claim(self, name: str, last_sent: datetime | None, now: datetime) -> bool:
        """Whether the caller may send the entry, because no beat has sent it since `last_sent`. Beats claim before
        they send, so that none is sent twice.
        """
        if last_sent is None:
            try:
                Repeating(self._entries).insert_one({"_id": name, "sent_at": now}, ours=["sent_at"])
            except DuplicateKeyError:
                return False
            return True
        query = {"_id": name, "sent_at": last_sent}
        sent = {"sent_at": now}
        return Repeating(self._entries).change_one(query, {"$set": sent}, done={"_id": name, **sent})


def read_static_entry(document: Document) -> tuple[str, datetime]:
    return document["_id"], moment(document["sent_at"])


# --- an id below `/jobs` names a job, or a schedule, which stands for its present or latest run
class RunOf(NamedTuple):
    schedule: Schedule
    #: `None` if the schedule has not run yet.
    job: Job | None


@define(eq=False, repr=False, slots=False)
class JobOrSchedule:
    _jobs: JobStore
    _schedules: ScheduleStore
    _queries: JobQueries

    def find(self, identity: str, run: str | None = None) -> Job | RunOf:
        """The job, or the schedule with its run `run` if the schedule has that run, else with its latest run.

        Raises `JobNotFoundError`, `UnavailableError`.
        """
        with mongo_errors():
            with suppress(errors.JobNotFoundError):
                return self._jobs.get(identity)
            if (schedule := self._schedule(identity)) is None:
                raise errors.JobNotFoundError(identity)
            asked = self._run(identity, run) if run else None
            return RunOf(schedule, asked or self._queries.latest_run(identity))

    def job(self, identity: str) -> Job | None:
        """The job, or a schedule's latest run; `None` for a schedule without one. Raises as `find`."""
        named = self.find(identity)
        return named.job if isinstance(named, RunOf) else named

    def whole(self, identity: str) -> Job | None:
        """As `job`, with the job's earlier attempts."""
        job = self.job(identity)
        with mongo_errors():
            return job and self._jobs.attempts.complete(job)

    def followed(self, identity: str, run: str | None = None) -> Job | RunOf:
        """As `find`, with outlines of earlier attempts."""
        named = self.find(identity, run)
        with mongo_errors():
            if isinstance(named, RunOf):
                return named._replace(job=named.job and self._jobs.attempts.outline(named.job))
            return self._jobs.attempts.outline(named)

    def is_schedule(self, identity: str) -> bool:
        with mongo_errors():
            return self._schedule(identity) is not None

    def latest_run(self, schedule_id: str) -> Job | None:
        """The schedule's latest run, with outlines of its earlier attempts."""
        with mongo_errors():
            latest = self._queries.latest_run(schedule_id)
            return latest and self._jobs.attempts.outline(latest)

    def _schedule(self, identity: str) -> Schedule | None:
        with suppress(errors.ScheduleNotFoundError):
            return self._schedules.get(identity)
        return None

    def _run(self, schedule_id: str, run: str) -> Job | None:
        with suppress(errors.JobNotFoundError):
            job = self._jobs.get(run)
            return job if job.schedule_id == schedule_id else None
        return None
