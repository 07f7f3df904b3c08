"""Daily sums of the jobs that have ended, for pages and the API: a count over jobs would read a million of them, and
retention removes them long before.

A sum is of jobs of one project, spider, schedule or site that ended on one day: of one user's jobs, or of all users'
(`OF_ALL`). Each has each of its jobs once, whoever is killed and however many workers add to it:

1. A worker reads the sums (`rev`, and `applied`: the jobs that were added last).
2. Then it reads in which sums the jobs are (`summed`), and notes it for those of `applied` where it is not noted.
3. It adds the jobs that are not in the sum yet, if the sum's `rev` is still the one that it has read.
4. It notes that they are in, and then takes them out of `applied` if they are many.

So what a sum had before the `rev` that a worker has read is noted in its jobs before the worker reads these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple, Self
from urllib.parse import quote
from zlib import crc32

import structlog
from pydantic import BaseModel, Field
from pymongo import ASCENDING, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.crash_points import state_change
from gateway.jobs.job import GOOD_STATUSES, Job, JobFacts, JobStatus
from gateway.stores.documents import NO_TIME, Documents, reader
from gateway.stores.mongo import DUPLICATE_KEY, Document, Repeating, is_passing

log = structlog.get_logger()

#: How long sums are kept.
SUMS_KEPT = timedelta(days=400)
#: The most of each number that a job adds: a sum of a day must fit into MongoDB's 64 bits, also of a million jobs.
MOST_ADDED = 1 << 40
#: Durations are counted in steps of this many to a doubling, so a median of them is right to 9 %.
STEPS = 4
#: In place of a user: the sum is of all users' jobs. It is in parts, each of some users, so that workers that add
#: jobs of different users seldom change the same one.
OF_ALL = ""
_PARTS = 8
#: So many jobs may stay in `applied`, until others take their place: it saves a write of most of the jobs.
_FEW = 3
#: How often jobs are tried to be added to sums that others change meanwhile. The last try only finds out what came
#: of the one before.
_TRIES = 5
#: Jobs that ended so long ago are in their sums, if a worker of this release has ended them.
_SUMMED_AFTER = timedelta(minutes=10)
#: The document in `counters` that says until when `adopt` has looked.
_ADOPTED = "run_days"
#: How exact times in MongoDB are.
_MOMENT = timedelta(milliseconds=1)


class RunSubject(StrEnum):
    """What sums are of."""

    PROJECT = "project"
    #: By `<project>/<spider>`.
    SPIDER = "spider"
    SCHEDULE = "schedule"
    SITE = "site"


class SummedSpec(BaseModel):
    """What sums need of a job's spec."""

    project: str = DEFAULT_PROJECT
    spider: str
    site: str | None = None


class EndedRun(JobFacts):
    """What sums need of a job; none of it changes after the job's end."""

    spec: SummedSpec
    summed: list[str] = Field(default_factory=list)


AnyRun = Job | EndedRun


class RunTotals(BaseModel):
    """The sums of any number of jobs that have ended."""

    #: How many ended with each status.
    runs: dict[str, int] = Field(default_factory=dict)
    pages: int = 0
    items: int = 0
    errors: int = 0
    #: How many took about `2 ** (step / STEPS)` seconds, by the step; those that never started are not among them.
    took: dict[int, int] = Field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[AnyRun]) -> Self:
        total = cls()
        for job in jobs:
            total.runs[job.status.value] = total.runs.get(job.status.value, 0) + 1
            if job.started_at and job.finished_at:
                step = _step((job.finished_at - job.started_at).total_seconds())
                total.took[step] = total.took.get(step, 0) + 1
            if job.progress:
                total.pages += _addend(job.progress.completed_pages)
                total.items += _addend(job.progress.items_count)
                total.errors += _addend(job.progress.errors_count)
        return total

    @classmethod
    def together(cls, totals: Iterable[RunTotals]) -> Self:
        runs, took, counts = Counter[str](), Counter[int](), Counter[str]()
        for one in totals:
            runs.update(one.runs)
            took.update(one.took)
            counts.update(pages=one.pages, items=one.items, errors=one.errors)
        return cls(runs=dict(runs), took=dict(took), **counts)

    @property
    def ended(self) -> int:
        return sum(self.runs.values())

    @property
    def good(self) -> int:
        return sum(self.runs.get(status.value, 0) for status in GOOD_STATUSES)

    @property
    def failed(self) -> int:
        return self.runs.get(JobStatus.ERROR.value, 0)

    @property
    def success(self) -> float | None:
        """The share of jobs that ended well, from 0 to 1, of those that nobody has cancelled."""
        asked = self.ended - self.runs.get(JobStatus.CANCELLED.value, 0)
        return self.good / asked if asked > 0 else None

    @property
    def error_share(self) -> float | None:
        """The share of errors among pages and errors."""
        return self.errors / (self.pages + self.errors) if self.pages + self.errors else None

    @property
    def median_seconds(self) -> float | None:
        steps = sorted(self.took)
        before = list(accumulate(self.took[step] for step in steps))
        if not before:
            return None
        middle = next(step for step, count in zip(steps, before, strict=True) if 2 * count >= before[-1])
        return float(2 ** (middle / STEPS))

    def increments(self) -> dict[str, int]:
        """What is to be added to a document's fields."""
        counts = {"pages": self.pages, "items": self.items, "errors": self.errors}
        nested = {
            **{f"runs.{status}": number for status, number in self.runs.items()},
            **{f"took.{step}": number for step, number in self.took.items()},
        }
        return nested | {name: number for name, number in counts.items() if number}


def _addend(number: int) -> int:
    return max(0, min(number, MOST_ADDED))


def _step(seconds: float) -> int:
    return round(STEPS * math.log2(max(seconds, 1.0)))


class RunDay(RunTotals, populate_by_name=True):
    """Jobs of one subject that ended on one day."""

    id: str = Field(alias="_id")
    #: Whose jobs; or `OF_ALL`.
    user_id: str
    kind: str
    subject: str
    #: Its begin, by UTC.
    day: datetime
    #: How often jobs were added.
    rev: int
    #: The jobs that were added last, until it is noted in them.
    applied: list[str] = Field(default_factory=list)

    @classmethod
    def new(cls, job: AnyRun, kind: RunSubject, subject: str, day: datetime, *, of_all: bool = False) -> Self:
        # no quoted id of a user begins like the number of a part
        whose = f"*{crc32(job.user_id.encode()) % _PARTS}" if of_all else quote(job.user_id, safe="")
        place = "/".join((f"{day:%Y-%m-%d}", kind, quote(subject, safe=""), whose))
        return cls(id=place, user_id=OF_ALL if of_all else job.user_id, kind=kind, subject=subject, day=day, rev=0)

    @property
    def mark(self) -> str:
        """How a job's `summed` calls it."""
        return f"{self.kind}/all" if self.user_id == OF_ALL else self.kind


_NONE = RunTotals()


class DayTotals(NamedTuple):
    day: datetime
    totals: RunTotals


class RunHistory(NamedTuple):
    """Days after each other, the last one is today."""

    days: list[DayTotals]

    @property
    def total(self) -> RunTotals:
        return RunTotals.together(day.totals for day in self.days)


def spider_subject(project: str, spider: str) -> str:
    return f"{project}/{spider}"


def subjects_of(job: AnyRun) -> dict[RunSubject, str]:
    spec = job.spec
    found = {
        RunSubject.PROJECT: spec.project,
        RunSubject.SPIDER: spider_subject(spec.project, spec.spider),
        RunSubject.SCHEDULE: job.schedule_id,
        RunSubject.SITE: spec.site,
    }
    return {kind: subject for kind, subject in found.items() if subject}


def day_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def days_of(job: AnyRun) -> list[RunDay]:
    """The sums that the job belongs to, as if there were none yet."""
    if job.finished_at is None:
        return []
    day, found = day_of(job.finished_at), subjects_of(job).items()
    return [RunDay.new(job, kind, subject, day, of_all=of_all) for kind, subject in found for of_all in (False, True)]


#: What `EndedRun` is read from.
_FIELDS = [
    *("user_id", "status", "created_at", "not_before", "started_at", "finished_at", "progress", "schedule_id"),
    *("spec.project", "spec.spider", "spec.site", "summed"),
]


class RunDays:
    """The collection `run_days`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._days = database["run_days"]
        self._jobs = database["jobs"]
        self._counters = database["counters"]
        self._documents = Documents(self._days, reader(RunDay))
        self._ended = Documents(self._jobs, reader(EndedRun))
        self._clock = clock
        #: How many looks of `adopt` after each other have left something.
        self._failed = 0

    # --- to add

    def add(self, jobs: Iterable[AnyRun]) -> set[str]:
        """Add those of the jobs that have ended to their sums, each once. Returns the ids of jobs that cannot be
        added now: a sum cannot be read or written, or others change it all the time. Raises PyMongo's errors.
        """
        left = [job for job in jobs if self._missing(job, job.summed)]
        for _ in range(_TRIES):
            if not left:
                break
            left = self._add(left)
        return {job.id for job in left}

    def _missing(self, job: AnyRun, summed: Iterable[str]) -> set[str]:
        """The sums, by their marks, in which the job is not yet and should be."""
        if not job.is_final or job.finished_at is None or job.finished_at < day_of(self._clock() - SUMS_KEPT):
            return set()
        return {day.mark for day in days_of(job)} - set(summed)

    def _add(self, jobs: Sequence[AnyRun]) -> list[AnyRun]:
        """One try. Returns those of the jobs that are still missing in a sum, as far as this try knows."""
        pairs = [(job, day) for job in jobs for day in days_of(job)]
        stored = self._stored({day.id for _, day in pairs})
        added = [(one, day.mark) for day in stored.values() if day is not None for one in day.applied]
        summed = self._summed({*(job.id for job in jobs), *(job_id for job_id, _ in added)})
        if self._note(added, summed):
            groups: dict[str, tuple[RunDay, list[AnyRun]]] = {}
            for job, new in pairs:
                day = stored.get(new.id, new)
                # a job that is gone was in its sums before it went
                if day is not None and new.mark not in summed.get(job.id, {new.mark}):
                    groups.setdefault(day.id, (day, []))[1].append(job)
            added = [(job.id, day.mark) for day, some in groups.values() for job in some]
            if self._apply(list(groups.values())) and self._note(added, summed):
                self._clear([day for day, some in groups.values() if len(some) > _FEW])
        return [job for job in jobs if job.id in summed and self._missing(job, summed[job.id])]

    def _stored(self, ids: Collection[str]) -> dict[str, RunDay | None]:
        """Those of the sums that there are; `None` for one that cannot be read."""
        found = self._days.find({"_id": {"$in": list(ids)}})
        return {document["_id"]: day for document, day in self._documents.each(found)}

    def _summed(self, job_ids: Collection[str]) -> dict[str, set[str]]:
        """In which sums, by their marks, those of the jobs are that there are."""
        found = self._jobs.find({"_id": {"$in": list(job_ids)}}, {"summed": 1})
        known = ((one["_id"], one.get("summed", [])) for one in found)
        # a job whose field is damaged is left out: nothing can be noted in it
        return {job_id: set(of) for job_id, of in known if isinstance(of, list)}

    @state_change("run_days.note")
    def _note(self, added: Iterable[tuple[str, str]], summed: dict[str, set[str]]) -> bool:
        """Note in the jobs that they were added to sums with these marks, unless `summed` says so already. It is
        kept up to date. Returns whether all jobs could be written.
        """
        late: dict[str, set[str]] = {}
        for job_id, mark in added:
            if mark not in summed.get(job_id, {mark}):
                late.setdefault(job_id, set()).add(mark)
        new = [UpdateOne({"_id": one}, {"$addToSet": {"summed": {"$each": sorted(of)}}}) for one, of in late.items()]
        try:
            if new:
                self._jobs.bulk_write(new, ordered=False)
        except BulkWriteError as error:
            _check_refused(error)
            return False
        for job_id, marks in late.items():
            summed[job_id] |= marks
        return True

    @state_change("run_days.apply")
    def _apply(self, groups: Sequence[tuple[RunDay, Sequence[AnyRun]]]) -> bool:
        """Add the jobs to the sums as they were read. Returns whether all sums were still as they were read."""
        updates = []
        for day, jobs in groups:
            new: Document = day.model_dump(include={"user_id", "kind", "subject", "day"})
            update = {
                "$inc": {"rev": 1, **RunTotals.of(jobs).increments()},
                "$set": {"applied": [job.id for job in jobs]},
                "$setOnInsert": new,
            }
            as_read = {"_id": day.id, "rev": day.rev or {"$exists": False}}
            # where another worker has made the sum meanwhile, its id is taken
            updates.append(UpdateOne(as_read, update, upsert=not day.rev))
        try:
            done = self._days.bulk_write(updates, ordered=False) if updates else None
        except BulkWriteError as error:
            _check_refused(error)
            return False
        return done is None or done.matched_count + done.upserted_count == len(updates)

    @state_change("run_days.clear")
    def _clear(self, days: Sequence[RunDay]) -> None:
        """Take the jobs out of `applied`, which would make large documents."""
        gone = {"$unset": {"applied": ""}}
        if days:
            cleared = [UpdateOne({"_id": day.id, "rev": day.rev + 1}, gone) for day in days]
            self._days.bulk_write(cleared, ordered=False)

    # --- what a release before this one has ended

    def adopt(self, limit: int) -> bool:
        """Add some of the jobs that ended a while ago and are in no sum, because a release before this one has ended
        them; the oldest first. Returns whether there may be more. Raises PyMongo's errors.
        """
        before = self._clock() - _SUMMED_AFTER
        since = max(day_of(self._clock() - SUMS_KEPT), self._adopted_until())
        jobs: list[EndedRun] = []
        last, count = since, 0
        query = {"finished_at": {"$gte": since, "$lt": before}}
        with self._jobs.find(query, _FIELDS, sort=[("finished_at", ASCENDING)], batch_size=limit) as found:
            for document, job in self._ended.each(found):
                # all that ended at the same moment, because the next look begins after it
                if count >= limit and document["finished_at"] != last:
                    break
                last, count = document["finished_at"], count + 1
                jobs += [] if job is None else [job]
        if left := self.add(jobs):
            self._failed += 1
            if self._failed < _TRIES:
                return True
            # a damaged sum stops no other. Its jobs are added before they are deleted, if that is possible by then
            log.warning("not_summed", jobs=len(left))
        self._failed = 0
        if count:
            self._advance(last + _MOMENT)
        return count >= limit

    def _adopted_until(self) -> datetime:
        until = (self._counters.find_one({"_id": _ADOPTED}) or {}).get("until")
        return until if isinstance(until, datetime) else NO_TIME

    @state_change("run_days.advance")
    def _advance(self, until: datetime) -> None:
        self._counters.update_one({"_id": _ADOPTED}, {"$max": {"until": until}}, upsert=True)

    @state_change("run_days.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` sums of days before then. Returns how many."""
        found = [one["_id"] for one in self._days.find({"day": {"$lt": before}}, {"_id": 1}, limit=limit)]
        return Repeating(self._days).delete_many({"_id": {"$in": found}}).deleted_count if found else 0

    # --- to read

    def histories(
        self, kind: RunSubject, subjects: Collection[str], days: int, user_id: str | None = None
    ) -> dict[str, RunHistory]:
        """The last `days` days of each of the subjects, today included, of this user's jobs or of all users'."""
        today = day_of(self._clock())
        dates = [today - timedelta(days=ago) for ago in reversed(range(days))]
        query = {
            "kind": kind,
            "user_id": OF_ALL if user_id is None else user_id,
            "subject": {"$in": list(subjects)},
            "day": {"$gte": dates[0]},
        }
        found: dict[str, dict[datetime, list[RunDay]]] = {subject: {} for subject in subjects}
        for one in self._documents.many(self._days.find(query, {"applied": 0}) if subjects else ()):
            found[one.subject].setdefault(one.day, []).append(one)
        return {
            subject: RunHistory([DayTotals(day, _sum_of(by_day.get(day, []))) for day in dates])
            for subject, by_day in found.items()
        }


def _sum_of(parts: Sequence[RunTotals]) -> RunTotals:
    # of most days of most subjects there is none or one
    return parts[0] if len(parts) == 1 else RunTotals.together(parts) if parts else _NONE


def _check_refused(error: BulkWriteError) -> None:
    """Raises the error unless single documents were refused."""
    if is_passing(error):
        raise error
    refused = {problem["code"] for problem in error.details["writeErrors"]} - {DUPLICATE_KEY}
    if refused:
        log.warning("sums_not_written", codes=sorted(refused))
