"""Runs by hand: somebody asks for a run of a schedule now."""

from __future__ import annotations

from datetime import timedelta

import pytest
from clockwork import HOUR, START, Clockwork, crawl, occurrence

from gateway.contract.reasons import Reason
from gateway.errors import ConflictError
from gateway.jobs.job import Job, JobStatus, Trigger
from gateway.jobs.outcome import Outcome
from gateway.schedules.occurrences import EarlierRun
from gateway.schedules.orders import RunOrder, job_by_hand
from gateway.schedules.schedule import LedgerKind, Overlap, Schedule, ScheduleState

HALF_HOUR = timedelta(minutes=30)
FIRED = LedgerKind.FIRED


def page(job: Job) -> str:
    return job.spec.start_urls[0].rpartition("/")[2]


def order() -> RunOrder:
    return RunOrder(crawl(), trigger=Trigger.MANUAL)


def half_hourly(schedule: Schedule) -> dict[str, object]:
    return {"timing": schedule.timing.model_copy(update={"interval": "every 30m"})}


def test_a_run_beside_the_occurrences_changes_none_of_them(works: Clockwork) -> None:
    schedule = works.schedule(starts_at=START + HOUR)
    job = works.edits.run_now(schedule.id)
    assert works.jobs.get(job.id) == job
    assert (job.status, job.schedule_id, job.slot, job.not_before) == (JobStatus.PENDING, schedule.id, None, START)
    assert (works.woken, job.noted, job.held, works.book(schedule)) == ([job.id], None, None, [])
    after = works.schedules.get(schedule.id)
    assert (after.next_at, after.rev, after.runs, after.runs_by_hand) == (START + HOUR, 1, 0, 1)


def test_a_run_by_hand_is_in_the_history_of_its_schedule_and_is_its_last_run(works: Clockwork) -> None:
    schedule = works.schedule(starts_at=START + HOUR, overlap=Overlap.ALLOW, max_runs=1)
    job = works.edits.run_now(schedule.id)
    after = works.schedules.get(schedule.id)
    assert (works.by_hand(schedule), after.last_job_id, after.last_run_at) == ([job.id], job.id, works.now)
    works.at(HOUR)
    (fired,) = works.beat.tick().fired
    ended = works.schedules.get(schedule.id)
    assert (ended.runs, ended.last_job_id, ended.state) == (1, fired, ScheduleState.ENDED)


def test_a_run_by_hand_does_not_take_the_place_of_one_that_was_noted_meanwhile(works: Clockwork) -> None:
    before = works.schedule(overlap=Overlap.ALLOW)
    (fired,) = works.beat.tick().fired
    works.schedules.note_run(before, "f" * 32, works.now)
    assert works.schedules.get(before.id).last_job_id == fired


def test_a_run_that_is_asked_for_at_the_very_time_of_an_occurrence_is_not_that_occurrence(works: Clockwork) -> None:
    schedule = works.schedule(overlap=Overlap.ALLOW)
    job = works.edits.run_now(schedule.id)
    assert works.beat.tick().fired == [occurrence(schedule)] != [job.id]
    assert works.book(schedule) == [(FIRED, START, 0)]


def test_a_run_that_was_asked_for_is_never_an_old_revisions(works: Clockwork) -> None:
    schedule = works.schedule(starts_at=START + HOUR, overlap=Overlap.ALLOW)
    kept, taken_back = (job_by_hand(schedule, order(), works.now) for _ in range(2))
    works.occurrences.insert([kept])
    works.edits.edit(schedule.id, {"crawl": crawl(2)})
    assert [(job.id, page(job), job.slot) for job in works.runs(schedule)] == [(kept.id, "2", None)]
    works.occurrences.insert([taken_back])
    works.edits.edit(schedule.id, half_hourly(schedule))
    assert works.occurrences.read([taken_back.id]) == []


def test_a_run_that_was_asked_for_of_a_gateway_that_died_comes_all_the_same(works: Clockwork) -> None:
    schedule = works.schedule(starts_at=START + HOUR)
    job = job_by_hand(schedule, order(), works.now)
    works.occurrences.insert([job])
    works.at(timedelta(seconds=2))
    assert works.new_beat().tick().fired == [job.id]
    assert (works.book(schedule), works.by_hand(schedule)) == ([], [job.id])


def test_it_does_not_overlap_what_must_not_be_overlapped(works: Clockwork) -> None:
    careful, bold = works.schedule(), works.schedule(overlap=Overlap.ALLOW)
    for schedule in (careful, bold):
        works.edits.run_now(schedule.id)
    with pytest.raises(ConflictError, match="has not ended"):
        works.edits.run_now(careful.id)
    works.edits.run_now(bold.id)
    # the next occurrence does not run beside the first run either
    assert works.beat.tick().skipped == [occurrence(careful)]


def test_of_two_who_ask_at_once_one_is_refused(works: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = works.schedule(starts_at=START + HOUR)

    def overtaken(_: object) -> list[EarlierRun]:
        monkeypatch.undo()
        rival = works.edits.run_now(schedule.id)
        assert rival.status is JobStatus.PENDING
        return []

    monkeypatch.setattr(works.occurrences, "live", overtaken)
    with pytest.raises(ConflictError, match="has not ended"):
        works.edits.run_now(schedule.id)
    (rival,) = works.runs(schedule)
    works.jobs.finish(rival, Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "no page"), dead=False)
    assert works.edits.run_now(schedule.id).id != rival.id


def test_a_paused_schedule_runs_when_it_is_asked_to(works: Clockwork) -> None:
    schedule = works.schedule()
    works.edits.pause(schedule.id)
    assert works.edits.run_now(schedule.id).schedule_id == schedule.id


def test_what_has_nothing_to_run_says_why(works: Clockwork) -> None:
    schedule = works.schedule()
    works.orders.skip = "the site is disabled"
    with pytest.raises(ConflictError, match="the site is disabled"):
        works.edits.run_now(schedule.id)
    works.orders.gone = True
    with pytest.raises(ConflictError, match="there is nothing to run"):
        works.edits.run_now(schedule.id)
