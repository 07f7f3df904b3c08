"""The occurrences of a schedule: what happens to a due occurrence, and the job that is inserted for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.clock import Clock, to_iso, utc_now
from gateway.crash_points import state_change
from gateway.jobs.budgets import Budgets
from gateway.jobs.job import LIVE_STATUSES, PROMOTED, Decision, Job, JobStatus, Occurrence
from gateway.jobs.queue import JobDocuments, SetAside, change
from gateway.schedules.next_run import OccurrenceTime, count_due, following, newest_due
from gateway.schedules.orders import NOTHING
from gateway.schedules.schedule import GRACE_SECONDS, MAX_CATCH_UP, CatchUp, Schedule, ScheduleState
from gateway.stores.documents import NO_TIME, SET_ASIDE, moment, text, whole
from gateway.stores.mongo import DUPLICATE_KEY, Document, Repeating, refusals


class OccurrenceVerdict(Enum):
    #: The schedule does not have this occurrence (any more).
    VOID = auto()
    #: The schedule has this occurrence, but the content of its job is out of date.
    REFRESH = auto()
    #: The schedule has not been advanced past the occurrence.
    ADVANCE = auto()
    #: The schedule has been advanced past the occurrence: the decision can be carried out.
    READY = auto()


def judge(occurrence: Occurrence, schedule: Schedule | None) -> OccurrenceVerdict:
    """What to do with a held occurrence. `schedule` must be read after the occurrence's job was inserted; `None` if
    it was deleted.

    If the job has the schedule's revision, that revision decided about it. This holds even if the occurrence ended
    the schedule, because every change by a person raises the revision.
    """
    if schedule is None:
        return OccurrenceVerdict.VOID
    if occurrence.rev != schedule.rev:
        return (
            OccurrenceVerdict.REFRESH
            if schedule.timing_rev <= occurrence.rev < schedule.rev
            else OccurrenceVerdict.VOID
        )
    return OccurrenceVerdict.ADVANCE if schedule.next_at == occurrence.at else OccurrenceVerdict.READY


def advanced(schedule: Schedule, job_id: str, occurrence: Occurrence, fate: Decision | None) -> dict[str, Any]:
    """The changes of the schedule when it is advanced past the occurrence; `None` removes a field. Without a `fate`
    the occurrence has run before and is not counted again.
    """
    runs = schedule.runs + (fate is Decision.RUN)
    changes: dict[str, Any] = {"next_at": occurrence.next_at, "next_run": occurrence.next_due}
    if fate is Decision.RUN:
        changes |= {"runs": runs, "last_run_at": occurrence.fired_at, "last_job_id": job_id}
    if message := _end(schedule, occurrence, runs):
        changes |= ending(message)
    return changes


def ending(message: str) -> dict[str, Any]:
    """The changes of a schedule that ends; `None` removes a field."""
    return {"next_at": None, "next_run": None, "state": ScheduleState.ENDED, "message": message, "live_key": None}


def _end(schedule: Schedule, occurrence: Occurrence, runs: int) -> str | None:
    if schedule.max_runs is not None and runs >= schedule.max_runs:
        return f"max runs reached ({runs})"
    return None if occurrence.next_at else "no runs left before its end date"


# --- the decision about a due occurrence, and the next one of its schedule. Pure functions.

GRACE = timedelta(seconds=GRACE_SECONDS)
_MILLISECOND = timedelta(milliseconds=1)


class OccurrencePlan(NamedTuple):
    """The decision about an occurrence by its time alone: another module checks whether the previous run is over."""

    fate: Decision
    #: How many later occurrences were also due; this one replaces them.
    missed: int
    #: `None` if the schedule ends.
    next: OccurrenceTime | None
    #: Why it does not run.
    reason: str | None = None


def plan(schedule: Schedule, now: datetime) -> OccurrencePlan:
    """Plans the next occurrence, `schedule.next_at`. Raises `ValueError` if there is none."""
    at, due, timing = schedule.next_at, schedule.next_run, schedule.timing
    if at is None or due is None:
        raise ValueError(f"schedule {schedule.id} has no occurrence to come")
    if now - due <= GRACE:
        return OccurrencePlan(Decision.RUN, 0, following(schedule.id, timing, at))
    if timing.ends_at is not None and now > timing.ends_at + GRACE:
        # no occurrence runs after the end date
        reason = f"found {_late(now, due)} late, after the end date {to_iso(timing.ends_at)}"
        return OccurrencePlan(Decision.MISS, count_due(schedule.id, timing, at, now), None, reason)
    if schedule.catch_up is CatchUp.ALL:
        return _each(schedule, at, due, now)
    if schedule.catch_up is CatchUp.NONE:
        return _none(schedule, at, due, now)
    return OccurrencePlan(
        Decision.RUN, count_due(schedule.id, timing, at, now), following(schedule.id, timing, at, now)
    )


def _none(schedule: Schedule, at: datetime, due: datetime, now: datetime) -> OccurrencePlan:
    """Skip to the first occurrence that is at most `GRACE` late, or not due yet."""
    stale = now - GRACE - _MILLISECOND
    missed = count_due(schedule.id, schedule.timing, at, stale)
    reason = f"found {_late(now, due)} late, and catch_up is none"
    return OccurrencePlan(Decision.MISS, missed, following(schedule.id, schedule.timing, at, stale), reason)


def _each(schedule: Schedule, at: datetime, due: datetime, now: datetime) -> OccurrencePlan:
    """Run the missed occurrences one by one. If there are too many, skip to the newest `MAX_CATCH_UP` of them."""
    schedule_id, timing = schedule.id, schedule.timing
    is_few = count_due(schedule_id, timing, at, now) < MAX_CATCH_UP
    oldest = None if is_few else newest_due(schedule_id, timing, now, MAX_CATCH_UP)
    if oldest is None or oldest.at <= at:
        return OccurrencePlan(Decision.RUN, 0, following(schedule_id, timing, at))
    missed = count_due(schedule_id, timing, at, oldest.due - _MILLISECOND)
    reason = f"found {_late(now, due)} late, and catch_up covers only the newest {MAX_CATCH_UP} occurrences"
    return OccurrencePlan(Decision.MISS, missed, oldest, reason)


def _late(now: datetime, due: datetime) -> str:
    return f"{(now - due).total_seconds():.0f} s"


# --- held jobs. The job of a due occurrence is inserted with the decision about it in `held` (`Decision`: run, skip,
# miss or void). Once its schedule has been advanced, it becomes an ordinary job or is removed.

#: `$exists` is not used, because an index cannot skip the jobs that do not have the field.
_HELD = {"$in": [fate.value for fate in Decision]}
_FREE: Document = {"held": None}
#: An equality is not used, because MongoDB would then walk the index of the status even if ids are given.
_SCHEDULED = {"$in": [JobStatus.SCHEDULED]}


class EarlierRun(NamedTuple):
    """An earlier run of the same schedule that is not over."""

    job_id: str
    schedule_id: str
    status: JobStatus
    #: If the run is still held: the schedule's revision that decided about it. Otherwise `None`.
    held_by: int | None


class OccurrenceStore:
    """The `jobs` collection, for firing occurrences."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._runs = SetAside(self._jobs, _earlier_run)
        self._starts = SetAside(self._jobs, _start)
        self.budgets = Budgets(database, clock)
        self._clock = clock

    @state_change("schedules.insert_occurrences")
    def insert(self, jobs: Sequence[Job]) -> set[str]:
        """Insert the held jobs of occurrences. Returns the ids of jobs that another process has inserted before."""
        try:
            self._jobs.insert_many([job.to_document() for job in jobs], ordered=False)
        except BulkWriteError as error:
            return {jobs[position].id for position in refusals(error, {DUPLICATE_KEY})}
        return set()

    def read(self, job_ids: Iterable[str]) -> list[Job]:
        """The jobs with these ids that exist and can be read."""
        return self._documents.many(self._jobs.find({"_id": {"$in": list(job_ids)}}))

    def held(self, schedule_ids: Sequence[str]) -> list[Job]:
        """All held jobs of these schedules."""
        wanted = {"schedule_id": {"$in": list(schedule_ids)}}
        # equalities, so that MongoDB uses the index of the few held jobs, not the one of all jobs of the schedules
        return [job for fate in Decision for job in self._documents.many(self._jobs.find({"held": fate, **wanted}))]

    def left_over(self, before: datetime, limit: int) -> list[Job]:
        """Jobs that have been held since before then: the process that inserted them has died, or is slow."""
        return self._first({"held": _HELD, "updated_at": {"$lt": before}}, "updated_at", limit)

    def unnoted(self, before: datetime, limit: int) -> list[Job]:
        """Jobs of occurrences that ran before then, and that the ledger may not contain."""
        return self._first({"noted": False, **_FREE, "updated_at": {"$lt": before}}, "updated_at", limit)

    def live(self, schedule_ids: Sequence[str]) -> list[EarlierRun]:
        """The runs of these schedules that are not over, including held jobs that are to run."""
        runs: list[EarlierRun] = []
        for status in LIVE_STATUSES:
            query: Document = {"status": status, "schedule_id": {"$in": list(schedule_ids)}}
            found = self._jobs.find(query, {"schedule_id": 1, "status": 1, "held": 1, "slot.rev": 1})
            runs += self._runs.many(one for one in found if one.get("held") in (None, Decision.RUN))
        return runs

    @state_change("schedules.promote")
    def promote(self, job_ids: Sequence[str], rev: int, *, by_hand: bool = False) -> int:
        """Make these jobs pending, if they are still held by that revision. Returns how many this call has changed. A
        run asked for `by_hand` has an occurrence only while it is held, and loses it here.
        """
        now = self._clock()
        query = {"_id": {"$in": list(job_ids)}, "held": Decision.RUN, "slot.rev": rev, "status": _SCHEDULED}
        pending = {**PROMOTED.change, "not_before": now}
        gone = ("held", "slot") if by_hand else ("held",)
        return Repeating(self._jobs).update_many(query, change(now, pending, unset=gone)).modified_count

    @state_change("schedules.refresh")
    def refresh(self, old: Job, new: Job) -> bool:
        """Give the held job the content of its schedule's present revision. False if it has changed since `old`."""
        content = {**new.model_dump(include=_CONTENT, exclude_none=True), **new.queue_place()}
        gone = [name for name in _CONTENT if name not in content]
        update = change(self._clock(), content, unset=gone)
        return self._jobs.update_one(_same(old), update).matched_count == 1

    @state_change("schedules.void")
    def void(self, job: Job) -> Job | None:
        """Mark the job so that it can never run. Returns the changed job, or `None` if it has changed since `job`."""
        return self._documents.find_one_and_update(_same(job), change(self._clock(), {"held": Decision.VOID}))

    @state_change("schedules.remove_occurrence")
    def remove(self, job: Job) -> None:
        """Delete the job, as if the occurrence had never been due, unless it has changed since `job` was read."""
        self._jobs.delete_one(_same(job))

    @state_change("schedules.clear")
    def clear(self, job_ids: Sequence[str], rev: int) -> None:
        """Delete the jobs of skipped and missed occurrences, once the ledger contains these."""
        without_run = {"$in": [Decision.SKIP, Decision.MISS]}
        Repeating(self._jobs).delete_many({"_id": {"$in": list(job_ids)}, "held": without_run, "slot.rev": rev})

    @state_change("schedules.release")
    def release(self, job: Job) -> None:
        """Turn a job that has ended while it was held into an ordinary job."""
        self._jobs.update_one(_same(job), {"$unset": {"held": "", "noted": ""}})

    @state_change("schedules.note")
    def note(self, job_ids: Sequence[str]) -> None:
        """Record that the ledger contains these occurrences."""
        Repeating(self._jobs).update_many({"_id": {"$in": list(job_ids)}, "noted": False}, {"$unset": {"noted": ""}})

    # --- one-off jobs

    def next_scheduled(self, *, after: datetime | None = None) -> datetime | None:
        """The next start time of a waiting job, perhaps in the past; with `after`, only later times count."""
        later = {"not_before": {"$gt": after or NO_TIME}}
        query: Document = {"status": JobStatus.SCHEDULED, **_FREE, SET_ASIDE: None, **later}
        return next(iter(self._starts.find(query, 1, [("not_before", ASCENDING)], {"not_before": 1})), None)

    def scheduled(self, now: datetime, limit: int) -> list[Job]:
        """Jobs whose start time has come."""
        return self._first({"status": JobStatus.SCHEDULED, "not_before": {"$lte": now}, **_FREE}, "not_before", limit)

    @state_change("schedules.promote_scheduled")
    def promote_scheduled(self, job_ids: Sequence[str]) -> int:
        """Make these jobs pending. Returns how many this call has changed."""
        query: Document = {"_id": {"$in": list(job_ids)}, "status": _SCHEDULED, **_FREE}
        pending = change(self._clock(), PROMOTED.change, unset=("attend_at",))
        return Repeating(self._jobs).update_many(query, pending).modified_count

    def _first(self, query: Document, field: str, limit: int) -> list[Job]:
        """The first `limit` jobs that the query finds and that can be read, in the order of the field."""
        return self._documents.find({**query, SET_ASIDE: None}, limit, [(field, ASCENDING)])


def _earlier_run(document: Document) -> EarlierRun:
    rev = whole(document["slot"]["rev"]) if document.get("held") else None
    return EarlierRun(document["_id"], text(document["schedule_id"]), JobStatus(document["status"]), rev)


def _start(document: Document) -> datetime:
    return moment(document["not_before"])


#: All fields in which two revisions of an occurrence's job can differ.
_CONTENT = {"slot", "held", "budget", *NOTHING.job_fields("")}


def _same(job: Job) -> Document:
    return {"_id": job.id, "held": job.held, "slot.rev": job.slot.rev if job.slot else None}
