"""Daily sums of the jobs that have ended, for pages and the API. They are stored, because to count the jobs would
read a million of them, and retention deletes jobs much sooner than sums.

There is a sum for each project, spider, schedule and site, and for each day on which jobs of it ended: one of each
user's jobs, and one of all users' jobs (`OF_ALL`). Each sum counts a job once (`added_once.py`).
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

from pydantic import BaseModel, Field
from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.jobs.added_once import AddedOnce, Addition, AnyRun, Counting
from gateway.jobs.job import GOOD_STATUSES, JobStatus, success_rate
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating

#: How long sums are kept.
SUMS_KEPT = timedelta(days=400)
#: The largest amount that a job adds to each number, so that a day's sum of a million jobs fits into MongoDB's 64
#: bits.
MOST_ADDED = 1 << 40
#: Durations are counted in this many logarithmic steps per doubling, so their median is accurate to 9 %.
STEPS = 4
#: The `user_id` of sums of all users' jobs. Such a sum is stored in `_PARTS` parts, each of some users, so that
#: workers that add jobs of different users seldom change the same document.
OF_ALL = ""
_PARTS = 8


class RunSubject(StrEnum):
    """What a sum is about."""

    PROJECT = "project"
    #: The subject is `<project>/<spider>`.
    SPIDER = "spider"
    SCHEDULE = "schedule"
    SITE = "site"


class RunTotals(BaseModel):
    """The sums of any number of jobs that have ended."""

    #: How many jobs ended with each status.
    runs: dict[str, int] = Field(default_factory=dict)
    pages: int = 0
    items: int = 0
    errors: int = 0
    #: By step: how many jobs took about `2 ** (step / STEPS)` seconds. Jobs that never started are not counted.
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
        """By `SUCCESS_RULE`."""
        return success_rate({status: self.runs.get(status.value, 0) for status in JobStatus})

    @property
    def error_share(self) -> float | None:
        """Errors divided by pages plus errors, from 0 to 1; `None` if there are neither."""
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
        """What to add to a document's fields, by path."""
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


class RunDay(RunTotals, Counting, populate_by_name=True):
    """Jobs of one subject that ended on one day."""

    #: Whose jobs it counts, or `OF_ALL`.
    user_id: str
    kind: str
    subject: str
    #: The beginning of the day (UTC).
    day: datetime

    @classmethod
    def new(cls, job: AnyRun, kind: RunSubject, subject: str, day: datetime, *, of_all: bool = False) -> Self:
        # a part's number begins with `*`, which no quoted user id contains
        whose = f"*{crc32(job.user_id.encode()) % _PARTS}" if of_all else quote(job.user_id, safe="")
        place = "/".join((f"{day:%Y-%m-%d}", kind, quote(subject, safe=""), whose))
        return cls(id=place, user_id=OF_ALL if of_all else job.user_id, kind=kind, subject=subject, day=day, rev=0)

    @property
    def mark(self) -> str:
        """The name of this sum in a job's `summed`."""
        return f"{self.kind}/all" if self.user_id == OF_ALL else self.kind


_NONE = RunTotals()


class DayTotals(NamedTuple):
    """The sums of one day."""

    day: datetime
    totals: RunTotals


class RunHistory(NamedTuple):
    """Consecutive days; the last one is today."""

    days: list[DayTotals]

    @property
    def total(self) -> RunTotals:
        return RunTotals.together(day.totals for day in self.days)


def spider_subject(project: str, spider: str) -> str:
    """The subject of a spider's sums."""
    return f"{project}/{spider}"


def subjects_of(job: AnyRun) -> dict[RunSubject, str]:
    """The subjects of the sums that count the job, by kind."""
    spec = job.spec
    found = {
        RunSubject.PROJECT: spec.project,
        RunSubject.SPIDER: spider_subject(spec.project, spec.spider),
        RunSubject.SCHEDULE: job.schedule_id,
        RunSubject.SITE: spec.site,
    }
    return {kind: subject for kind, subject in found.items() if subject}


def day_of(moment: datetime) -> datetime:
    """The beginning of the day (UTC) of this time."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def days_of(job: AnyRun) -> list[RunDay]:
    """The sums that should count the job, each new and empty."""
    if job.finished_at is None:
        return []
    day, found = day_of(job.finished_at), subjects_of(job).items()
    return [RunDay.new(job, kind, subject, day, of_all=of_all) for kind, subject in found for of_all in (False, True)]


class RunDays(AddedOnce[RunDay]):
    """The collection `run_days`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        super().__init__(Documents(database["run_days"], reader(RunDay)), database["jobs"])
        self._clock = clock

    # --- to add

    def add(self, jobs: Iterable[AnyRun]) -> set[str]:
        """Add the jobs that have ended to their sums, each once. Returns the ids of jobs that cannot be added now, as
        `_add_all`.
        """
        since = day_of(self._clock() - SUMS_KEPT)
        return self._add_all(jobs, Addition(belongs_to=days_of, update=_added, since=since))

    @state_change("run_days.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` sums of days before this time. Returns how many were deleted."""
        found = [one["_id"] for one in self._counting.find({"day": {"$lt": before}}, {"_id": 1}, limit=limit)]
        return Repeating(self._counting).delete_many({"_id": {"$in": found}}).deleted_count if found else 0

    # --- to read

    def histories(
        self, kind: RunSubject, subjects: Collection[str], days: int, user_id: str | None = None
    ) -> dict[str, RunHistory]:
        """The last `days` days, including today, by subject: of this user's jobs, or of all users' jobs."""
        today = day_of(self._clock())
        dates = [today - timedelta(days=ago) for ago in reversed(range(days))]
        query = {
            "kind": kind,
            "user_id": OF_ALL if user_id is None else user_id,
            "subject": {"$in": list(subjects)},
            "day": {"$gte": dates[0]},
        }
        found: dict[str, dict[datetime, list[RunDay]]] = {subject: {} for subject in subjects}
        for one in self._documents.many(self._counting.find(query) if subjects else ()):
            found[one.subject].setdefault(one.day, []).append(one)
        return {
            subject: RunHistory([DayTotals(day, _sum_of(by_day.get(day, []))) for day in dates])
            for subject, by_day in found.items()
        }

    def good_on(self, jobs: Iterable[AnyRun]) -> dict[str, int]:
        """By job id: how many jobs of the same user and spider ended well on the day on which the job ended."""
        days = {job.id: _of_spider(job).id for job in jobs if job.finished_at}
        found = self._documents.many(self._counting.find({"_id": {"$in": sorted(set(days.values()))}}))
        good = {one.id: one.good for one in found}
        return {job_id: good.get(day, 0) for job_id, day in days.items()}

    def good_since(self, places: Iterable[UserSpider], since: datetime) -> dict[UserSpider, dict[datetime, int]]:
        """By user and spider, and by day: how many jobs ended well, since this time. Days without jobs are
        left out.
        """
        subjects: dict[str, set[str]] = {}
        for place in places:
            subjects.setdefault(place.user_id, set()).add(place.subject)
        found: dict[UserSpider, dict[datetime, int]] = {}
        # one query per user: for one query with alternatives, the embedded server would read all sums
        for user_id, some in subjects.items():
            of_user = {"kind": RunSubject.SPIDER, "user_id": user_id, "subject": {"$in": sorted(some)}}
            for one in self._documents.many(self._counting.find({**of_user, "day": {"$gte": since}})):
                found.setdefault(UserSpider(user_id, one.subject), {})[one.day] = one.good
        return found


class UserSpider(NamedTuple):
    """A spider, with the user whose jobs are meant."""

    user_id: str
    #: `<project>/<spider>`.
    subject: str


def _of_spider(job: AnyRun) -> RunDay:
    spider = spider_subject(job.spec.project, job.spec.spider)
    return RunDay.new(job, RunSubject.SPIDER, spider, day_of(job.finished_at or job.created_at))


def _added(day: RunDay, jobs: Sequence[AnyRun]) -> Document:
    new: Document = day.model_dump(include={"user_id", "kind", "subject", "day"})
    return {"$inc": RunTotals.of(jobs).increments(), "$setOnInsert": new}


def _sum_of(parts: Sequence[RunTotals]) -> RunTotals:
    # shortcuts: most subjects have no part or one part on most days
    return parts[0] if len(parts) == 1 else RunTotals.together(parts) if parts else _NONE
