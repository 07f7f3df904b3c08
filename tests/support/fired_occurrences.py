"""Schedules for beats to fire, and checks that each occurrence is there once, in the jobs and in the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypedDict

from beats import Arena
from firing import order
from stack import wait_until

from gateway.clock import utc_now
from gateway.jobs.job import Job, JobStatus, new_job_id, occurrence_id
from gateway.jobs.store import JobStore
from gateway.schedules.next_run import OccurrenceTime, first, preview
from gateway.schedules.schedule import LedgerEntry, LedgerKind, Overlap, Schedule, Timing
from gateway.schedules.store import ScheduleStore

#: All writes of a firing, including those for a skipped occurrence.
FIRING = (
    *("schedules.insert_occurrences", "schedules.advance", "schedules.promote", "schedules.note", "schedules.clear"),
    *("schedule_ledger.record", "schedules.promote_scheduled"),
)
CRASH_POINTS = [f"{name}.{side}" for name in FIRING for side in ("before", "after")]
#: Seconds that beats may take until they have nothing more to do.
PATIENCE = 120.0


def schedule(ring: Arena, interval: str, **fields: Any) -> Schedule:
    """A schedule that begins in two seconds, because no beat runs before."""
    now = utc_now()
    zone, jitter = fields.pop("timezone", "UTC"), fields.pop("jitter", None)
    timing = Timing(interval=interval, timezone=zone, starts_at=now + timedelta(seconds=2), jitter=jitter)
    schedule_id = new_job_id()
    coming = first(schedule_id, timing, now)
    assert coming is not None
    made = Schedule(
        id=schedule_id, user_id="ada", crawl=order(1), timing=timing, next_at=coming.at, next_run=coming.due,
        fingerprint="f", created_at=now, updated_at=now, **{"overlap": Overlap.ALLOW, **fields},
    )  # fmt: skip
    ScheduleStore(ring.database).insert(made)
    return made


def one_off(ring: Arena, at: datetime) -> Job:
    now, job_id = utc_now(), new_job_id()
    job = Job(
        id=job_id, user_id="ada", spec=order(1).spec, fingerprint=job_id, status=JobStatus.SCHEDULED, not_before=at,
        created_at=now, updated_at=now,
    )  # fmt: skip
    JobStore(ring.database).insert(job)
    return job


def jobs_of(ring: Arena, made: Schedule, until: datetime) -> dict[str, dict[str, Any]]:
    """The jobs of occurrences that were due by `until`. Later ones may be half done by a beat that was killed."""
    found = ring.database["jobs"].find({"schedule_id": made.id, "slot.due": {"$lte": until}})
    return {job["_id"]: job for job in found}


def entries_of(ring: Arena, made: Schedule, until: datetime) -> list[LedgerEntry]:
    """The entries of the ledger, the oldest occurrence first."""
    found = ring.database["schedule_ledger"].find({"schedule_id": made.id, "due": {"$lte": until}}).sort("at", 1)
    return [LedgerEntry.model_validate(document) for document in found]


def occurrences(made: Schedule, until: datetime) -> list[OccurrenceTime]:
    """All occurrences that are due by `until`."""
    moments = preview(made.id, made.timing, made.timing.starts_at - timedelta(days=1), 1000)
    return [moment for moment in moments if moment.due <= until]


def wait_for(ring: Arena, schedules: Iterable[Schedule], until: datetime) -> None:
    """Wait until each schedule is advanced past all occurrences that are due by `until`, and nothing is half done."""

    def at_rest() -> bool:
        behind = {"_id": {"$in": [made.id for made in schedules]}, "next_run": {"$gt": until}}
        # by the occurrence's time, not by when it was found, which may be after `until` for the last one
        left = {"$or": [{"held": {"$ne": None}}, {"noted": False}], "slot.due": {"$lte": until}}
        return (
            ring.database["schedules"].count_documents(behind) == len(list(schedules))
            and not ring.database["jobs"].count_documents(left)
            and not ring.database["jobs"].count_documents({"status": "scheduled", "not_before": {"$lte": until}})
        )

    wait_until(lambda: utc_now() > until and at_rest(), timeout=PATIENCE, what="rest")


def check_each_once(ring: Arena, made: Schedule, until: datetime) -> None:
    """Check that each occurrence has run, with one job and one entry of the ledger, and that there is
    nothing else.
    """
    expected = {occurrence_id(made.id, moment.at) for moment in occurrences(made, until)}
    jobs, entries = jobs_of(ring, made, until), entries_of(ring, made, until)
    assert (expected - jobs.keys(), jobs.keys() - expected) == (set(), set()), entries
    assert {job["status"] for job in jobs.values()} <= {"pending"}
    assert {entry.job_id for entry in entries} == expected
    assert {(entry.kind, entry.missed) for entry in entries} <= {(LedgerKind.FIRED, 0)}


def check_skipped(ring: Arena, made: Schedule, until: datetime) -> None:
    """Check that the first occurrence runs and is not over, and that all others were skipped for that reason."""
    expected = [occurrence_id(made.id, moment.at) for moment in occurrences(made, until)]
    entries = entries_of(ring, made, until)
    assert [entry.job_id for entry in entries] == expected
    assert [entry.kind for entry in entries] == [LedgerKind.FIRED] + [LedgerKind.SKIPPED] * (len(expected) - 1)
    assert all(expected[0] in (entry.reason or "") for entry in entries[1:])
    assert jobs_of(ring, made, until).keys() == {expected[0]}


class Tally(TypedDict):
    lost: int
    doubled: int


def tally(ring: Arena, schedules: Iterable[Schedule], until: datetime) -> Tally:
    """Count occurrences that did not run, and runs that belong to no occurrence or to one that had run."""
    lost = doubled = 0
    for made in schedules:
        expected = {occurrence_id(made.id, moment.at) for moment in occurrences(made, until)}
        jobs, entries = jobs_of(ring, made, until), entries_of(ring, made, until)
        lost += len(expected - jobs.keys())
        doubled += len(jobs.keys() - expected) + len(entries) - len({entry.job_id for entry in entries})
    return Tally(lost=lost, doubled=doubled)
