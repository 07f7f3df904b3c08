"""The jobs of occurrences, the ledger, and when static entries were sent, as stored."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job
from pymongo.database import Database
from scheduled import HOUR, NINE, make_occurrence_job, make_schedule

from gateway.clock import utc_now
from gateway.errors import InvalidRequestError
from gateway.jobs.job import Decision, JobStatus
from gateway.jobs.store import JobStore
from gateway.schedules.occurrences import OccurrenceStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore, StaticEntryStore

Mongo = Database[dict[str, Any]]


@pytest.fixture
def occurrences(database: Mongo) -> OccurrenceStore:
    return OccurrenceStore(database)


@pytest.fixture
def ledger(served: Mongo) -> LedgerStore:
    return LedgerStore(served)


def test_whoever_inserts_an_occurrence_first_has_it(occurrences: OccurrenceStore) -> None:
    schedule = make_schedule()
    mine, both = make_occurrence_job(schedule), make_occurrence_job(schedule, NINE + HOUR)
    assert occurrences.insert([mine]) == set()
    assert occurrences.insert([mine.model_copy(update={"priority": 5}), both]) == {mine.id}
    assert {job.id: job.priority for job in occurrences.read([mine.id, both.id])} == {mine.id: 0, both.id: 0}
    assert {job.id for job in occurrences.held([schedule.id])} == {mine.id, both.id}


def test_only_what_is_held_by_that_revision_is_promoted(occurrences: OccurrenceStore, jobs: JobStore) -> None:
    schedule = make_schedule()
    runs, skipped = make_occurrence_job(schedule), make_occurrence_job(schedule, NINE + HOUR, held=Decision.SKIP)
    cancelled = make_occurrence_job(schedule, NINE + 2 * HOUR, status=JobStatus.CANCELLED)
    every = [runs, skipped, cancelled]
    occurrences.insert(every)
    ids = [job.id for job in every]
    assert [occurrences.promote(ids, 2), occurrences.promote(ids, 1), occurrences.promote(ids, 1)] == [0, 1, 0]
    promoted = jobs.get(runs.id)
    assert (promoted.status, promoted.held, promoted.noted) == (JobStatus.PENDING, None, False)
    occurrences.note([runs.id])
    assert jobs.get(runs.id).noted is None
    occurrences.clear(ids, 1)
    occurrences.release(cancelled)
    assert {job.id for job in occurrences.read(ids)} == {runs.id, cancelled.id}
    assert occurrences.held([schedule.id]) == []


def test_a_refreshed_job_is_the_new_revisions(occurrences: OccurrenceStore) -> None:
    schedule = make_schedule()
    old = make_occurrence_job(schedule, priority=3, exclusive="site:b")
    occurrences.insert([old])
    assert old.slot is not None
    new = old.model_copy(
        update={"slot": old.slot.model_copy(update={"rev": 2}), "priority": 7, "exclusive": None, "tags": ["t"]}
    )
    assert occurrences.refresh(old, new)
    assert not occurrences.refresh(old, new)
    (stored,) = occurrences.read([old.id])
    assert (stored.priority, stored.exclusive, stored.tags, stored.slot) == (7, None, ["t"], new.slot)
    assert occurrences.promote([old.id], 1) == 0


def test_a_void_job_cannot_run_and_goes_for_whoever_finds_it(occurrences: OccurrenceStore) -> None:
    schedule = make_schedule()
    job = make_occurrence_job(schedule)
    occurrences.insert([job])
    voided = occurrences.void(job)
    assert voided is not None
    assert (voided.held, occurrences.void(job), occurrences.promote([job.id], 1)) == (Decision.VOID, None, 0)
    occurrences.remove(job)
    assert len(occurrences.held([schedule.id])) == 1
    occurrences.remove(voided)
    assert occurrences.insert([job]) == set()


def test_what_was_left_behind_is_found(occurrences: OccurrenceStore, database: Mongo) -> None:
    schedule = make_schedule()
    held, noted = make_occurrence_job(schedule), make_occurrence_job(schedule, NINE + HOUR, held=None)
    occurrences.insert([held, noted, make_occurrence_job(schedule, NINE + 2 * HOUR, held=None, noted=None)])
    later = utc_now() + HOUR
    assert [job.id for job in occurrences.left_over(later, 9)] == [held.id]
    assert [job.id for job in occurrences.unnoted(later, 9)] == [noted.id]
    assert (occurrences.left_over(NINE - 365 * 24 * HOUR, 9), occurrences.unnoted(NINE - 365 * 24 * HOUR, 9)) == (
        [],
        [],
    )
    database["jobs"].update_many({}, {"$set": {"attempt": "x"}})
    assert (occurrences.left_over(later, 9), occurrences.unnoted(later, 9), occurrences.read([held.id])) == (
        [],
        [],
        [],
    )


def test_runs_that_are_not_over_are_found_by_their_schedules(occurrences: OccurrenceStore, jobs: JobStore) -> None:
    one, other = make_schedule(), make_schedule()
    waits, held = make_job(schedule_id=one.id), make_occurrence_job(one)
    for job in (
        waits,
        make_job(schedule_id=one.id, status=JobStatus.FINISHED),
        make_job(),
        make_job(schedule_id="x"),
    ):
        jobs.insert(job)
    occurrences.insert([held, make_occurrence_job(other, held=Decision.SKIP)])
    found = {(run.job_id, run.schedule_id, run.status, run.held_by) for run in occurrences.live([one.id, other.id])}
    assert found == {(waits.id, one.id, JobStatus.PENDING, None), (held.id, one.id, JobStatus.SCHEDULED, 1)}


def test_one_off_jobs_are_promoted_when_it_is_time(occurrences: OccurrenceStore, jobs: JobStore) -> None:
    assert occurrences.next_scheduled() is None
    now = utc_now()
    due, ahead = (make_job(status=JobStatus.SCHEDULED, not_before=now + HOUR * n) for n in (0, 1))
    for job in (due, ahead):
        jobs.insert(job)
    occurrences.insert([make_occurrence_job(make_schedule(), not_before=now - HOUR)])
    assert occurrences.next_scheduled() == now
    assert [job.id for job in occurrences.scheduled(now, 9)] == [due.id]
    assert [occurrences.promote_scheduled([due.id]), occurrences.promote_scheduled([due.id])] == [1, 0]
    assert (jobs.get(due.id).status, occurrences.next_scheduled()) == (JobStatus.PENDING, now + HOUR)


def test_any_number_of_jobs_that_cannot_be_read_hide_none_that_are_due(
    occurrences: OccurrenceStore, jobs: JobStore, database: Mongo
) -> None:
    now = utc_now()
    odd = [make_job(status=JobStatus.SCHEDULED, not_before=now - 2 * HOUR) for _ in range(5)]
    due = [make_job(status=JobStatus.SCHEDULED, not_before=now - HOUR) for _ in range(2)]
    schedule = make_schedule()
    held, noted = (make_occurrence_job(schedule, NINE + n * HOUR, updated_at=now) for n in (1, 2))
    spoilt = [make_occurrence_job(schedule, NINE + n * HOUR, updated_at=now - HOUR) for n in range(3, 8)]
    for job in (*odd, *due):
        jobs.insert(job)
    occurrences.insert([held, noted, *spoilt])
    database["jobs"].update_many(
        {"_id": {"$in": [job.id for job in (*odd, *spoilt)]}}, {"$set": {"user_id": {"un": "known"}}}
    )
    for _ in range(2):
        assert {job.id for job in occurrences.scheduled(now, 3)} == {job.id for job in due}
        assert {job.id for job in occurrences.left_over(now + HOUR, 3)} == {held.id, noted.id}
    assert occurrences.next_scheduled() == now - HOUR


# --- the ledger


def entry(number: int, **fields: Any) -> LedgerEntry:
    moment = NINE + number * HOUR
    given = {"schedule_id": "5" * 32, "kind": LedgerKind.FIRED, "at": moment, "due": moment, "recorded_at": moment}
    return LedgerEntry.model_validate(
        {"job_id": f"{number:032x}", "late_by_seconds": 0.5, "rev": 1, **given, **fields}
    )


def test_that_an_occurrence_was_fired_is_never_replaced(ledger: LedgerStore) -> None:
    fired, skipped = entry(1), entry(1, kind=LedgerKind.SKIPPED, reason="busy", rev=2)
    for told, kept in ((skipped, skipped), (fired, LedgerKind.FIRED), (skipped, LedgerKind.FIRED)):
        ledger.record([told, entry(2)])
        latest = {one.job_id: one for one in ledger.latest(9)}
        assert latest[fired.job_id].kind is (kept.kind if isinstance(kept, LedgerEntry) else kept)
    assert ledger.revisions([fired.job_id, "none"]) == {fired.job_id: 1}


def test_the_ledger_has_pages_and_goes_with_its_schedule(ledger: LedgerStore) -> None:
    ledger.record([entry(number) for number in range(5)] + [entry(9, schedule_id="6" * 32)])
    first, cursor = ledger.page("5" * 32, 3)
    second, end = ledger.page("5" * 32, 3, cursor)
    assert ([one.job_id for one in first + second], end) == ([f"{n:032x}" for n in (4, 3, 2, 1, 0)], None)
    with pytest.raises(InvalidRequestError):
        ledger.page("5" * 32, 3, "x")
    assert [ledger.forget(NINE + 2 * HOUR, 1), ledger.forget(NINE + 2 * HOUR, 9)] == [1, 1]
    ledger.delete("5" * 32)
    assert [one.job_id for one in ledger.latest(9)] == [f"{9:032x}"]


# --- static entries


def test_one_of_all_beats_sends_an_entry(database: Mongo) -> None:
    entries = StaticEntryStore(database)
    assert [entries.claim("a", None, NINE), entries.claim("a", None, NINE)] == [True, False]
    assert entries.last_sent() == {"a": NINE}
    assert [entries.claim("a", NINE, NINE + HOUR), entries.claim("a", NINE, NINE + HOUR)] == [True, False]
