"""The jobs of slots, the ledger, and when static entries were sent, as stored."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job
from pymongo.database import Database
from scheduled import HOUR, NINE, make_schedule, make_slot_job

from gateway.clock import utc_now
from gateway.errors import InvalidRequestError
from gateway.jobs.job import JobStatus, SlotFate
from gateway.jobs.store import JobStore
from gateway.schedules.occurrences import SlotStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore, StaticEntryStore

Mongo = Database[dict[str, Any]]


@pytest.fixture
def slots(database: Mongo) -> SlotStore:
    return SlotStore(database)


@pytest.fixture
def ledger(served: Mongo) -> LedgerStore:
    return LedgerStore(served)


def test_whoever_inserts_a_slot_first_has_it(slots: SlotStore) -> None:
    schedule = make_schedule()
    mine, both = make_slot_job(schedule), make_slot_job(schedule, NINE + HOUR)
    assert slots.insert([mine]) == set()
    assert slots.insert([mine.model_copy(update={"priority": 5}), both]) == {mine.id}
    assert {job.id: job.priority for job in slots.read([mine.id, both.id])} == {mine.id: 0, both.id: 0}
    assert {job.id for job in slots.held([schedule.id])} == {mine.id, both.id}


def test_only_what_is_held_by_that_revision_is_promoted(slots: SlotStore, jobs: JobStore) -> None:
    schedule = make_schedule()
    runs, skipped = make_slot_job(schedule), make_slot_job(schedule, NINE + HOUR, held=SlotFate.SKIP)
    cancelled = make_slot_job(schedule, NINE + 2 * HOUR, status=JobStatus.CANCELLED)
    every = [runs, skipped, cancelled]
    slots.insert(every)
    ids = [job.id for job in every]
    assert [slots.promote(ids, 2), slots.promote(ids, 1), slots.promote(ids, 1)] == [0, 1, 0]
    promoted = jobs.get(runs.id)
    assert (promoted.status, promoted.held, promoted.noted) == (JobStatus.PENDING, None, False)
    slots.note([runs.id])
    assert jobs.get(runs.id).noted is None
    slots.clear(ids, 1)
    slots.release(cancelled)
    assert {job.id for job in slots.read(ids)} == {runs.id, cancelled.id}
    assert slots.held([schedule.id]) == []


def test_a_refreshed_job_is_the_new_revisions(slots: SlotStore) -> None:
    schedule = make_schedule()
    old = make_slot_job(schedule, priority=3, exclusive="site:b")
    slots.insert([old])
    assert old.slot is not None
    new = old.model_copy(
        update={"slot": old.slot.model_copy(update={"rev": 2}), "priority": 7, "exclusive": None, "tags": ["t"]}
    )
    assert slots.refresh(old, new)
    assert not slots.refresh(old, new)
    (stored,) = slots.read([old.id])
    assert (stored.priority, stored.exclusive, stored.tags, stored.slot) == (7, None, ["t"], new.slot)
    assert slots.promote([old.id], 1) == 0


def test_a_void_job_cannot_run_and_goes_for_whoever_finds_it(slots: SlotStore) -> None:
    schedule = make_schedule()
    job = make_slot_job(schedule)
    slots.insert([job])
    voided = slots.void(job)
    assert voided is not None
    assert (voided.held, slots.void(job), slots.promote([job.id], 1)) == (SlotFate.VOID, None, 0)
    slots.remove(job)
    assert len(slots.held([schedule.id])) == 1
    slots.remove(voided)
    assert slots.insert([job]) == set()


def test_what_was_left_behind_is_found(slots: SlotStore, database: Mongo) -> None:
    schedule = make_schedule()
    held, noted = make_slot_job(schedule), make_slot_job(schedule, NINE + HOUR, held=None)
    slots.insert([held, noted, make_slot_job(schedule, NINE + 2 * HOUR, held=None, noted=None)])
    later = utc_now() + HOUR
    assert [job.id for job in slots.left_over(later, 9)] == [held.id]
    assert [job.id for job in slots.unnoted(later, 9)] == [noted.id]
    assert (slots.left_over(NINE - 365 * 24 * HOUR, 9), slots.unnoted(NINE - 365 * 24 * HOUR, 9)) == ([], [])
    database["jobs"].update_many({}, {"$set": {"attempt": "x"}})
    assert (slots.left_over(later, 9), slots.unnoted(later, 9), slots.read([held.id])) == ([], [], [])


def test_runs_that_are_not_over_are_found_by_their_schedules(slots: SlotStore, jobs: JobStore) -> None:
    one, other = make_schedule(), make_schedule()
    waits, held = make_job(schedule_id=one.id), make_slot_job(one)
    for job in (
        waits,
        make_job(schedule_id=one.id, status=JobStatus.FINISHED),
        make_job(),
        make_job(schedule_id="x"),
    ):
        jobs.insert(job)
    slots.insert([held, make_slot_job(other, held=SlotFate.SKIP)])
    found = {(run.job_id, run.schedule_id, run.status, run.held_by) for run in slots.live([one.id, other.id])}
    assert found == {(waits.id, one.id, JobStatus.PENDING, None), (held.id, one.id, JobStatus.SCHEDULED, 1)}


def test_one_off_jobs_are_promoted_when_it_is_time(slots: SlotStore, jobs: JobStore) -> None:
    assert slots.next_scheduled() is None
    now = utc_now()
    due, ahead = (make_job(status=JobStatus.SCHEDULED, not_before=now + HOUR * n) for n in (0, 1))
    for job in (due, ahead):
        jobs.insert(job)
    slots.insert([make_slot_job(make_schedule(), not_before=now - HOUR)])
    assert slots.next_scheduled() == now
    assert [job.id for job in slots.scheduled(now, 9)] == [due.id]
    assert [slots.promote_scheduled([due.id]), slots.promote_scheduled([due.id])] == [1, 0]
    assert (jobs.get(due.id).status, slots.next_scheduled()) == (JobStatus.PENDING, now + HOUR)


# --- the ledger


def entry(number: int, **fields: Any) -> LedgerEntry:
    moment = NINE + number * HOUR
    given = {"schedule_id": "5" * 32, "kind": LedgerKind.FIRED, "at": moment, "due": moment, "recorded_at": moment}
    return LedgerEntry.model_validate(
        {"job_id": f"{number:032x}", "late_by_seconds": 0.5, "rev": 1, **given, **fields}
    )


def test_that_a_slot_was_fired_is_never_replaced(ledger: LedgerStore) -> None:
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
