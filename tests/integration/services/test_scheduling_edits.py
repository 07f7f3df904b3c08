"""What people do to a schedule while it is being fired. Tests between every two steps are in tests/faults."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from clockwork import HOUR, START, Clockwork, crawl
from jobs import make_job

from gateway.errors import (
    InvalidRequestError,
    LiveTwinError,
    ScheduleChangedError,
    ScheduleEndedError,
    ScheduleNotFoundError,
)
from gateway.jobs.job import Decision, Job, JobStatus, Occurrence
from gateway.schedules.schedule import LedgerKind, Overlap, Schedule, ScheduleState

HALF_HOUR = timedelta(minutes=30)
FIRED = LedgerKind.FIRED


def page(job: Job) -> str:
    return job.spec.start_urls[0].rpartition("/")[2]


def half_hourly(schedule: Schedule) -> dict[str, object]:
    return {"timing": schedule.timing.model_copy(update={"interval": "every 30m"})}


# --- edits


def test_an_edit_raises_the_revision_and_keeps_the_coming_occurrence(works: Clockwork) -> None:
    schedule = works.schedule()
    edited = works.edits.edit(schedule.id, {"crawl": crawl(2), "name": "morning", "overlap": Overlap.QUEUE})
    assert (edited.rev, edited.timing_rev, edited.next_at) == (2, 1, START)
    assert (edited.crawl, edited.name, edited.overlap) == (crawl(2), "morning", Overlap.QUEUE)
    works.beat.tick()
    assert [page(job) for job in works.runs(schedule)] == ["2"]


def test_a_field_can_be_taken_away(works: Clockwork) -> None:
    schedule = works.schedule(name="morning", max_runs=3)
    edited = works.edits.edit(schedule.id, {"name": None, "max_runs": None})
    assert (edited.name, edited.max_runs) == (None, None)


def test_another_timing_begins_after_now(works: Clockwork) -> None:
    schedule = works.schedule()
    works.at(timedelta(minutes=10))
    edited = works.edits.edit(schedule.id, half_hourly(schedule))
    assert (edited.rev, edited.timing_rev, edited.next_at) == (2, 2, START + HALF_HOUR)


def test_a_paused_schedule_can_be_edited_and_stays_paused(works: Clockwork) -> None:
    schedule = works.schedule()
    works.edits.pause(schedule.id)
    edited = works.edits.edit(schedule.id, half_hourly(schedule))
    assert (edited.state, edited.next_at) == (ScheduleState.PAUSED, None)


def test_what_cannot_be_is_refused_and_changes_nothing(works: Clockwork) -> None:
    schedule, twin = works.schedule(overlap=Overlap.ALLOW), works.schedule(starts_at=START + HOUR)
    works.beat.tick()
    with pytest.raises(InvalidRequestError, match="max_runs: it has run 1 times already"):
        works.edits.edit(schedule.id, {"max_runs": 1})
    never = schedule.timing.model_copy(update={"interval": "0 0 30 2 *"})
    with pytest.raises(InvalidRequestError, match="interval"):
        works.edits.edit(schedule.id, {"timing": never})
    with pytest.raises(LiveTwinError):
        works.edits.edit(schedule.id, {"live_key": twin.live_key})
    with pytest.raises(ScheduleChangedError):
        works.edits.edit(schedule.id, {"name": "x"}, rev=7)
    with pytest.raises(ScheduleNotFoundError):
        works.edits.edit("f" * 32, {"name": "x"})
    with pytest.raises(ValueError, match="runs"):
        works.edits.edit(schedule.id, {"runs": 0})
    assert works.schedules.get(schedule.id).rev == 1


def test_an_edit_that_keeps_the_timing_refreshes_a_held_occurrence(works: Clockwork) -> None:
    schedule = works.schedule()
    left = works.insert_occurrence(schedule)
    edited = works.edits.edit(schedule.id, {"crawl": crawl(2, priority=7)})
    (job,) = works.runs(schedule)
    assert (job.id, page(job), job.priority, job.slot and job.slot.rev) == (left.id, "2", 7, 2)
    assert (edited.next_at, edited.runs, works.book(schedule)) == (START + HOUR, 1, [(FIRED, START, 0)])
    assert works.woken == [left.id]


def test_an_occurrence_that_was_voided_can_be_armed_again(works: Clockwork) -> None:
    schedule = works.schedule(starts_at=START + HOUR)
    works.at(HOUR)
    left = works.insert_occurrence(schedule)
    # the occurrence was inserted by a beat whose clock was ahead
    works.at(timedelta(minutes=59))
    edited = works.edits.edit(schedule.id, half_hourly(schedule) | {"crawl": crawl(2)})
    assert (edited.next_at, works.occurrences.read([left.id])) == (START + HOUR, [])
    works.at(HOUR)
    assert works.beat.tick().fired == [left.id]
    assert [page(job) for job in works.runs(schedule)] == ["2"]


def test_an_occurrence_whose_time_was_taken_back_is_not_counted(works: Clockwork) -> None:
    schedule = works.schedule(max_runs=5)
    left = works.insert_occurrence(schedule)
    gone_on = {"next_at": START + HOUR, "next_run": START + HOUR, "runs": 1, "last_job_id": left.id}
    works.database["schedules"].update_one({"_id": schedule.id}, {"$set": gone_on})
    edited = works.edits.edit(schedule.id, half_hourly(schedule))
    assert (edited.runs, edited.last_job_id, works.occurrences.read([left.id])) == (0, None, [])


def test_a_slow_beat_that_inserts_after_the_answer_runs_the_new_revision(works: Clockwork) -> None:
    schedule = works.schedule()
    slow = works.beat.decide([schedule])[0]
    works.edits.edit(schedule.id, {"crawl": crawl(2)})
    works.occurrences.insert(slow)
    works.beat.tick()
    assert [page(job) for job in works.runs(schedule)] == ["2"]
    assert works.schedules.get(schedule.id).next_at == START + HOUR


@pytest.mark.parametrize("request_", ["pause", "cancel", "delete"])
def test_nothing_runs_after_it_was_stopped(works: Clockwork, request_: str) -> None:
    schedule = works.schedule()
    slow = works.beat.decide([schedule])[0]
    left = works.insert_occurrence(schedule)
    getattr(works.edits, request_)(schedule.id)
    assert works.occurrences.read([left.id]) == []
    works.occurrences.insert(slow)
    works.at(timedelta(seconds=2))
    works.new_beat().tick()
    assert (works.runs(schedule), works.held(schedule), works.book(schedule)) == ([], [], [])


def test_an_occurrence_from_before_a_pause_does_not_run_after_it(works: Clockwork) -> None:
    schedule = works.schedule()
    slow = works.beat.decide([schedule])[0]
    works.edits.pause(schedule.id)
    works.at(HALF_HOUR)
    works.edits.resume(schedule.id)
    works.occurrences.insert(slow)
    works.at(HALF_HOUR + timedelta(seconds=2))
    works.new_beat().tick()
    assert (works.runs(schedule), works.held(schedule)) == ([], [])


def test_what_a_refreshed_occurrence_must_not_run_any_more_is_skipped(works: Clockwork) -> None:
    schedule = works.schedule()
    works.insert_occurrence(schedule)
    works.orders.skip = "the site is disabled"
    works.edits.edit(schedule.id, {"crawl": crawl(2)})
    assert (works.runs(schedule), works.held(schedule)) == ([], [])
    assert works.book(schedule) == [(LedgerKind.SKIPPED, START, 0)]
    assert works.schedules.get(schedule.id).next_at == START + HOUR


def test_a_change_beside_the_schedule_reaches_its_held_occurrences(works: Clockwork) -> None:
    of_site, of_target = works.schedule(site="board"), works.schedule(site="board", target="t1")
    other = works.schedule(site="other")
    for schedule in (of_site, of_target, other):
        works.insert_occurrence(schedule)
    works.edits.touch(target="t1")
    assert [works.schedules.get(schedule.id).rev for schedule in (of_site, of_target, other)] == [1, 2, 1]
    works.edits.touch(site="board")
    assert [works.schedules.get(schedule.id).rev for schedule in (of_site, of_target, other)] == [2, 3, 1]
    assert [len(works.runs(schedule)) for schedule in (of_site, of_target, other)] == [1, 1, 0]
    works.edits.touch(site="nobody's")


# --- pause, resume, end, delete


def test_a_paused_schedule_has_no_occurrence_until_it_is_resumed(works: Clockwork) -> None:
    schedule = works.schedule()
    paused = works.edits.pause(schedule.id)
    assert (paused.state, paused.next_run, paused.next_at) == (ScheduleState.PAUSED, None, None)
    assert works.edits.pause(schedule.id).rev == paused.rev
    works.at(5 * HOUR)
    assert works.beat.tick().fired == []
    resumed = works.edits.resume(schedule.id)
    assert (resumed.state, resumed.next_at) == (ScheduleState.ACTIVE, START + 6 * HOUR)
    assert works.edits.resume(schedule.id).rev == resumed.rev


def test_it_cannot_be_resumed_where_no_occurrence_is_left(works: Clockwork) -> None:
    schedule = works.schedule(ends_at=START + HOUR)
    works.edits.pause(schedule.id)
    works.at(2 * HOUR)
    with pytest.raises(ScheduleEndedError):
        works.edits.resume(schedule.id)


def test_what_has_ended_stays_as_it_is(works: Clockwork) -> None:
    schedule = works.schedule()
    ended = works.edits.cancel(schedule.id)
    assert (ended.state, ended.message, ended.live_key, ended.next_run) == (
        ScheduleState.ENDED, "cancelled on request", None, None,
    )  # fmt: skip
    assert works.edits.cancel(schedule.id) == ended
    for request in (works.edits.pause, works.edits.resume, works.edits.run_now):
        with pytest.raises(ScheduleEndedError, match="cancelled on request"):
            request(schedule.id)
    with pytest.raises(ScheduleEndedError):
        works.edits.edit(schedule.id, {"name": "x"})


def test_a_deleted_schedule_leaves_its_runs_and_no_ledger(works: Clockwork) -> None:
    schedule = works.schedule()
    works.beat.tick()
    works.edits.delete(schedule.id)
    assert (len(works.runs(schedule)), works.book(schedule)) == (1, [])
    with pytest.raises(ScheduleNotFoundError):
        works.edits.delete(schedule.id)


def test_a_job_that_no_schedule_has_is_void(works: Clockwork) -> None:
    stray = make_job(
        status=JobStatus.SCHEDULED, schedule_id="e" * 32, held=Decision.RUN, noted=False,
        slot=Occurrence(rev=1, at=START, due=START, fired_at=START),
    )  # fmt: skip
    works.jobs.insert(stray)
    works.at(timedelta(days=900))
    works.beat.tick()
    assert works.occurrences.read([stray.id]) == []


def test_the_ledger_has_no_run_that_was_taken_back_while_others_were_promoted(
    works: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, paused = works.schedule(), works.schedule()
    promote = works.occurrences.promote

    def after_a_pause(job_ids: Sequence[str], rev: int, *, by_hand: bool) -> int:
        monkeypatch.undo()
        works.edits.pause(paused.id)
        return promote(job_ids, rev, by_hand=by_hand)

    monkeypatch.setattr(works.occurrences, "promote", after_a_pause)
    assert works.beat.tick().fired == [job.id for job in works.runs(kept)] == works.woken
    assert (works.book(kept), works.book(paused)) == ([(FIRED, START, 0)], [])
    assert works.runs(paused) == []
