"""Beats that die, are slow, or find documents that they cannot read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from bson import BSON, DatetimeMS
from clockwork import HOUR, START, Clockwork, occurrence
from jobs import make_job
from structlog.testing import capture_logs

from gateway.jobs.job import Decision, JobStatus
from gateway.schedules.schedule import LedgerKind

SECOND = timedelta(seconds=1)
FIRED, SKIPPED, MISSED = LedgerKind.FIRED, LedgerKind.SKIPPED, LedgerKind.MISSED


def test_an_unreadable_schedule_keeps_no_other_and_is_told_of_once(works: Clockwork) -> None:
    bad, odd = works.schedule(), works.schedule()
    works.database["schedules"].update_one({"_id": bad.id}, {"$set": {"overlap": "sometimes"}})
    works.database["schedules"].update_one({"_id": odd.id}, {"$set": {"timing.interval": "now and then"}})
    good = works.schedule(starts_at=START + SECOND)
    works.at(2 * SECOND)
    with capture_logs() as logs:
        report = works.beat.tick()
        works.at(3 * SECOND)
        works.beat.tick()
    assert [job.slot and job.slot.at for job in works.runs(good)] == [START + SECOND]
    assert (report.due_left, report.next_due) == (2, START + SECOND + HOUR)
    told = [(entry["event"], entry["schedule_id"]) for entry in logs if entry["log_level"] != "info"]
    assert sorted(told) == sorted([("schedule_unreadable", bad.id), ("schedule_not_fired", odd.id)])


def test_one_whose_order_cannot_be_made_skips_its_occurrence_and_keeps_no_other(works: Clockwork) -> None:
    bad, good = works.schedule(site="unreadable"), works.schedule()
    works.orders.bad = bad.id
    with capture_logs() as logs:
        report = works.beat.tick()
    assert (report.fired, report.skipped) == ([occurrence(good)], [occurrence(bad)])
    assert [entry["schedule_id"] for entry in logs if entry["log_level"] != "info"] == [bad.id]
    (entry,), _ = works.ledger.page(bad.id, 9)
    assert entry.reason == "what it runs could not be determined (ValueError)"
    assert works.schedules.get(bad.id).next_at == START + HOUR


def test_a_schedule_that_cannot_be_written_keeps_no_other_from_firing(works: Clockwork) -> None:
    bad, good = works.schedule(), works.schedule()
    document = works.database["schedules"].find_one({"_id": bad.id})
    assert document is not None
    # the document has no room for a further field, so it cannot be noted that the schedule has run
    padding = "x" * ((16 << 20) - len(BSON.encode(document)) - 40)
    works.database["schedules"].update_one({"_id": bad.id}, {"$set": {"padding": padding}})
    with capture_logs() as logs:
        for _ in range(2):
            report = works.beat.tick()
            works.at(SECOND)
    assert (len(works.runs(good)), report.due_left) == (1, 1)
    assert [entry["event"] for entry in logs if entry["log_level"] != "info"] == ["schedules_not_advanced"]
    works.database["schedules"].update_one({"_id": bad.id}, {"$unset": {"padding": ""}})
    works.beat.tick()
    assert len(works.runs(bad)) == 1


def test_a_beat_that_dies_after_the_insert_leaves_nothing_undone(works: Clockwork) -> None:
    schedule = works.schedule()
    left = works.insert_occurrence(schedule)
    assert works.new_beat().tick().fired == [left.id]
    assert works.schedules.get(schedule.id).next_at == START + HOUR
    assert works.book(schedule) == [(FIRED, START, 0)]


def test_a_held_job_whose_schedule_has_gone_on_is_found_by_the_sweep(works: Clockwork) -> None:
    schedule = works.schedule()
    left = works.insert_occurrence(schedule)
    gone_on = {"next_at": START + HOUR, "next_run": START + HOUR, "runs": 1, "last_job_id": left.id}
    works.database["schedules"].update_one({"_id": schedule.id}, {"$set": gone_on})
    assert works.new_beat().tick().fired == []
    works.at(2 * SECOND)
    assert works.new_beat().tick().fired == [left.id]
    assert works.book(schedule) == [(FIRED, START, 0)]
    assert works.schedules.get(schedule.id).runs == 1


def test_a_run_that_the_ledger_does_not_know_is_noted(works: Clockwork) -> None:
    schedule = works.schedule()
    works.beat.tick()
    works.database["schedule_ledger"].delete_many({})
    works.database["jobs"].update_one({}, {"$set": {"noted": False}})
    works.at(2 * SECOND)
    works.new_beat().tick()
    assert works.book(schedule) == [(FIRED, START, 0)]
    assert works.runs(schedule)[0].noted is None


def test_a_slow_beat_does_not_bring_back_an_occurrence_that_was_skipped(works: Clockwork) -> None:
    schedule = works.schedule()
    before = make_job(schedule_id=schedule.id)
    works.jobs.insert(before)
    (late,) = works.beat.decide([schedule])[0]
    works.beat.tick()
    works.finish(before)
    works.occurrences.insert([late.model_copy(update={"held": Decision.RUN})])
    works.at(2 * SECOND)
    assert works.new_beat().tick().fired == []
    assert works.book(schedule) == [(SKIPPED, START, 0)]
    assert not works.held(schedule)


def test_an_occurrence_that_has_run_by_an_earlier_timing_is_passed_over(works: Clockwork) -> None:
    schedule = works.schedule()
    works.beat.tick()
    again = {"next_at": START, "next_run": START, "rev": 2, "timing_rev": 2}
    works.database["schedules"].update_one({"_id": schedule.id}, {"$set": again})
    report = works.beat.tick()
    after = works.schedules.get(schedule.id)
    assert (report.fired, after.next_at, after.runs) == ([], START + HOUR, 1)


def test_a_job_that_was_cancelled_while_it_was_held_stays_cancelled(works: Clockwork) -> None:
    schedule = works.schedule()
    left = works.insert_occurrence(schedule)
    works.database["jobs"].update_one({"_id": left.id}, {"$set": {"status": "cancelled"}})
    works.beat.tick()
    (job,) = works.runs(schedule)
    assert (job.status, works.woken) == (JobStatus.CANCELLED, [])


def test_a_one_off_job_that_cannot_be_read_is_not_waited_for(works: Clockwork) -> None:
    bad, good = (make_job(status=JobStatus.SCHEDULED, not_before=START + n * HOUR) for n in (0, 1))
    for job in (bad, good):
        works.jobs.insert(job)
    works.database["jobs"].update_one({"_id": bad.id}, {"$set": {"attempt": "x"}})
    report = works.beat.tick()
    assert (report.promoted, report.next_due) == ([], START + HOUR)


#: Values that are no time, or no time that Python can hold. A query for times finds the last three.
NO_TIMES = [None, 5, "tomorrow", [START], DatetimeMS(10**17), DatetimeMS(-(10**17))]


@pytest.mark.parametrize("start", NO_TIMES, ids=str)
def test_a_one_off_job_whose_start_time_is_no_time_keeps_nothing_from_firing(works: Clockwork, start: object) -> None:
    bad, due = (make_job(status=JobStatus.SCHEDULED, not_before=START) for _ in range(2))
    for job in (bad, due):
        works.jobs.insert(job)
    works.database["jobs"].update_one({"_id": bad.id}, {"$set": {"not_before": start}})
    schedule = works.schedule()
    report = works.beat.tick()
    assert (report.fired, report.promoted) == ([occurrence(schedule)], [due.id])
    assert report.next_due == START + HOUR


@pytest.mark.parametrize("due", NO_TIMES, ids=str)
def test_a_schedule_whose_next_run_is_no_time_keeps_no_other_from_firing(works: Clockwork, due: object) -> None:
    bad, good = works.schedule(), works.schedule()
    works.database["schedules"].update_one({"_id": bad.id}, {"$set": {"next_run": due}})
    report = works.beat.tick()
    assert (report.fired, report.next_due) == ([occurrence(good)], START + HOUR)


@pytest.mark.parametrize(("field", "value"), [("slot", "x"), ("slot", {}), ("slot.rev", "x"), ("schedule_id", 5)])
def test_a_held_job_that_cannot_be_read_keeps_no_other_schedule_from_firing(
    works: Clockwork, field: str, value: object
) -> None:
    bad, good = works.schedule(), works.schedule()
    left = works.insert_occurrence(bad)
    works.database["jobs"].update_one({"_id": left.id}, {"$set": {field: value}})
    works.at(2 * SECOND)
    assert occurrence(good) in works.new_beat().tick().fired


def test_an_entry_that_cannot_be_read_keeps_no_left_over_job_of_others_and_runs_nothing_twice(
    works: Clockwork,
) -> None:
    over, left = works.schedule(), works.schedule()
    jobs = [works.insert_occurrence(schedule) for schedule in (over, left)]
    gone_on = {"next_at": START + HOUR, "next_run": START + HOUR}
    works.database["schedules"].update_many({}, {"$set": gone_on})
    works.database["schedule_ledger"].insert_one({"_id": jobs[0].id, "rev": "x"})
    works.at(2 * SECOND)
    assert works.new_beat().tick().fired == [jobs[1].id]
