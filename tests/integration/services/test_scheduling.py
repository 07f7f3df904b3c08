from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from clockwork import HOUR, START, Clockwork, crawl, occurrence
from jobs import make_job

from gateway.jobs.admission import Quotas
from gateway.jobs.job import Decision, JobStatus
from gateway.schedules.firing import TICK_BUDGET
from gateway.schedules.schedule import CatchUp, LedgerKind, Overlap, ScheduleState

SECOND = timedelta(seconds=1)
FIRED, SKIPPED, MISSED = LedgerKind.FIRED, LedgerKind.SKIPPED, LedgerKind.MISSED


def test_an_occurrence_that_is_due_becomes_a_pending_job_and_its_schedule_goes_on(works: Clockwork) -> None:
    schedule = works.schedule(crawl=crawl(priority=3, tags=("a",), webhooks=("http://hook.example/",), max_retries=1))
    report = works.beat.tick()
    (job,) = works.runs(schedule)
    assert report.fired == works.woken == [job.id] == [occurrence(schedule)]
    assert (job.status, job.held, job.noted, job.not_before) == (JobStatus.PENDING, None, None, START)
    assert (job.spec.start_urls, job.priority, job.tags) == (("http://site.example/1",), 3, ["a"])
    assert (job.webhooks, job.max_retries, job.user_id) == (["http://hook.example/"], 1, "ada")
    after = works.schedules.get(schedule.id)
    assert (after.next_at, after.runs, after.last_job_id, after.last_run_at) == (START + HOUR, 1, job.id, START)
    assert (report.due_left, report.next_due) == (0, START + HOUR)
    assert works.book(schedule) == [(FIRED, START, 0)]


def test_nothing_is_fired_before_it_is_due(works: Clockwork) -> None:
    works.schedule(starts_at=START + HOUR)
    works.at(HOUR - timedelta(milliseconds=1))
    report = works.beat.tick()
    assert (report.fired, report.next_due) == ([], START + HOUR)
    works.at(HOUR)
    assert len(works.beat.tick().fired) == 1


def test_an_occurrence_that_is_a_little_late_is_fired_and_the_ledger_says_how_late(works: Clockwork) -> None:
    schedule = works.schedule()
    works.at(timedelta(seconds=2.5))
    works.beat.tick()
    (entry,), _ = works.ledger.page(schedule.id, 10)
    assert (entry.kind, entry.late_by_seconds, entry.rev) == (FIRED, 2.5, 1)


def test_two_beats_at_once_fire_each_occurrence_once(works: Clockwork) -> None:
    schedules = [works.schedule("every 1s", overlap=Overlap.ALLOW) for _ in range(40)]
    for number in range(5):
        works.at(number * SECOND)
        beats = [threading.Thread(target=works.new_beat().tick) for _ in range(3)]
        for beat in beats:
            beat.start()
        for beat in beats:
            beat.join()
    works.at(7 * SECOND)
    works.new_beat().tick()
    for schedule in schedules:
        at = [START + number * SECOND for number in range(8)]
        assert [job.slot and job.slot.at for job in works.runs(schedule)] == at
        assert works.book(schedule) == [(FIRED, moment, 0) for moment in at]
        assert works.schedules.get(schedule.id).runs == len(at)
        assert not works.held(schedule)


def test_more_than_a_batch_is_fired_in_one_tick(works: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.schedules.firing.BATCH", 7)
    ids = {occurrence(works.schedule()) for _ in range(30)}
    assert set(works.beat.tick().fired) == ids


def test_a_tick_gives_others_their_turn(works: Clockwork) -> None:
    ids = {occurrence(works.schedule()) for _ in range(9)}
    works.slowness = TICK_BUDGET * 0.4
    first = works.beat.tick()
    assert 0 < len(first.fired) < 9
    assert first.due_left == 9 - len(first.fired)
    assert first.next_due == START
    fired = set(first.fired)
    while len(fired) < 9:
        fired.update(works.beat.tick().fired)
    assert fired == ids


def test_schedules_of_one_user_for_which_a_tick_has_no_time_keep_nobody_elses_waiting(
    works: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.schedules.firing.BATCH", 7)
    ids = {occurrence(works.schedule(user_id="anne")) for _ in range(40)}
    other = works.schedule(user_id="bert", starts_at=START + SECOND)
    works.at(2 * SECOND)
    works.slowness = TICK_BUDGET * 0.3
    fired = [*works.beat.tick().fired, *works.beat.tick().fired]
    assert len(works.runs(other)) == 1
    while len(fired) < 41:
        fired += works.beat.tick().fired
    assert ids < set(fired)


def test_a_tick_reads_no_more_large_schedules_than_it_needs(works: Clockwork) -> None:
    urls = tuple(f"http://site.example/{number:040}" for number in range(3000))
    large = crawl().with_spec(crawl().spec.model_copy(update={"start_urls": urls}))
    for _ in range(60):
        works.schedule(crawl=large)
    found = works.schedules.due(START, 500).schedules
    assert 4 < len(found) < 40
    assert len(works.schedules.due(START, 500, users=["ada"]).schedules) == 0


# --- catching up


@pytest.mark.parametrize(
    ("catch_up", "book"),
    [
        (CatchUp.ONE, [(FIRED, START, 10)]),
        (CatchUp.NONE, [(MISSED, START, 10)]),
        (CatchUp.ALL, [(FIRED, START + number * HOUR, 0) for number in range(11)]),
    ],
)
def test_what_was_missed_is_made_up_for_as_the_schedule_says(
    works: Clockwork, catch_up: CatchUp, book: list[Any]
) -> None:
    schedule = works.schedule(catch_up=catch_up, overlap=Overlap.ALLOW)
    works.at(10 * HOUR + 10 * SECOND)
    works.beat.tick()
    assert works.book(schedule) == book
    assert len(works.runs(schedule)) == sum(kind is FIRED for kind, _, _ in book)
    assert works.schedules.get(schedule.id).next_at == START + 11 * HOUR
    assert not works.held(schedule)


def test_ten_missed_occurrences_of_a_second_are_one_run(works: Clockwork) -> None:
    schedule = works.schedule("every 1s")
    works.at(SECOND * 9.5)
    works.beat.tick()
    assert [job.slot and job.slot.missed for job in works.runs(schedule)] == [9]


def test_what_was_missed_is_told_with_its_reason(works: Clockwork) -> None:
    schedule = works.schedule(catch_up=CatchUp.NONE)
    works.at(HOUR)
    report = works.beat.tick()
    # the occurrence of this moment is not missed
    assert (len(report.missed), len(report.fired)) == (1, 1)
    (_, entry), _ = works.ledger.page(schedule.id, 10)
    assert (entry.kind, entry.reason) == (MISSED, "found 3600 s late, and catch_up is none")


# --- overlap


def test_an_occurrence_is_skipped_while_the_run_before_it_is_not_over(works: Clockwork) -> None:
    schedule = works.schedule()
    works.beat.tick()
    works.at(HOUR)
    report = works.beat.tick()
    assert (report.fired, report.skipped) == ([], [occurrence(schedule, 1)])
    (entry, _), _ = works.ledger.page(schedule.id, 10)
    assert (entry.kind, entry.reason) == (
        SKIPPED,
        f"the previous run, {occurrence(schedule)}, has not ended (pending)",
    )
    assert (works.schedules.get(schedule.id).runs, len(works.runs(schedule)), works.held(schedule)) == (1, 1, [])
    works.finish(works.runs(schedule)[0])
    works.at(2 * HOUR)
    assert works.beat.tick().fired == [occurrence(schedule, 2)]


def test_an_occurrence_is_skipped_also_while_the_one_before_it_is_only_held(works: Clockwork) -> None:
    schedule = works.schedule()
    works.insert_occurrence(schedule)
    works.database["schedules"].update_one({}, {"$set": {"next_at": START + HOUR, "next_run": START + HOUR}})
    works.at(HOUR)
    beat = works.new_beat()
    (job,) = beat.decide([works.schedules.get(schedule.id)])[0]
    assert job.held is Decision.SKIP


def test_queued_runs_share_a_lease_and_allowed_ones_do_not(works: Clockwork) -> None:
    queued, allowed = works.schedule(overlap=Overlap.QUEUE), works.schedule(overlap=Overlap.ALLOW)
    for number in range(2):
        works.at(number * HOUR)
        works.beat.tick()
    assert [job.exclusive for job in works.runs(queued)] == [f"schedule:{queued.id}"] * 2
    assert [job.exclusive for job in works.runs(allowed)] == [None] * 2


def test_what_has_nothing_to_run_says_so_in_the_ledger(works: Clockwork) -> None:
    schedule = works.schedule()
    works.orders.skip = "the site is disabled"
    works.beat.tick()
    works.orders.gone = True
    works.at(HOUR)
    works.beat.tick()
    entries, _ = works.ledger.page(schedule.id, 10)
    reasons = ["there is nothing to run: its site or target is gone", "the site is disabled"]
    assert [entry.reason for entry in entries] == reasons
    assert not works.runs(schedule)


# --- the end


def test_it_ends_after_the_runs_it_may_have(works: Clockwork) -> None:
    schedule = works.schedule(max_runs=2, overlap=Overlap.ALLOW)
    for number in range(4):
        works.at(number * HOUR)
        works.beat.tick()
    after = works.schedules.get(schedule.id)
    assert (after.state, after.message, after.next_run, after.live_key) == (
        ScheduleState.ENDED, "max runs reached (2)", None, None,
    )  # fmt: skip
    assert len(works.runs(schedule)) == 2


def test_skipped_occurrences_are_no_runs(works: Clockwork) -> None:
    schedule = works.schedule(max_runs=2)
    for number in range(3):
        works.at(number * HOUR)
        works.beat.tick()
    assert works.schedules.get(schedule.id).state is ScheduleState.ACTIVE


def test_no_occurrence_comes_after_the_end_date(works: Clockwork) -> None:
    schedule = works.schedule(ends_at=START + 2 * HOUR, overlap=Overlap.ALLOW)
    for number in range(5):
        works.at(number * HOUR)
        works.beat.tick()
    assert [job.id for job in works.runs(schedule)] == [occurrence(schedule, number) for number in range(3)]
    after = works.schedules.get(schedule.id)
    assert (after.state, after.message) == (ScheduleState.ENDED, "no runs left before its end date")


# --- one-off jobs


def test_a_job_whose_time_has_come_waits_for_a_node(works: Clockwork) -> None:
    job = make_job(status=JobStatus.SCHEDULED, not_before=START + HOUR)
    works.jobs.insert(job)
    report = works.beat.tick()
    assert (report.promoted, report.next_due) == ([], START + HOUR)
    works.at(HOUR)
    assert works.beat.tick().promoted == works.woken == [job.id]
    assert works.jobs.get(job.id).status is JobStatus.PENDING


def test_more_one_off_jobs_than_a_batch_are_promoted_by_the_next_ticks(
    works: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.schedules.firing.BATCH", 2)
    for _ in range(5):
        works.jobs.insert(make_job(status=JobStatus.SCHEDULED, not_before=START))
    reports = [works.beat.tick() for _ in range(3)]
    assert [len(report.promoted) for report in reports] == [2, 2, 1]
    assert [report.next_due for report in reports] == [START, START, None]


def test_the_ledger_comes_in_pages_newest_first(works: Clockwork) -> None:
    schedule, other = works.schedule("every 1s", overlap=Overlap.ALLOW), works.schedule()
    works.at(4 * SECOND)
    works.beat.tick()
    first, cursor = works.ledger.page(schedule.id, 3)
    second, end = works.ledger.page(schedule.id, 3, cursor)
    assert [entry.at for entry in first + second] == [START + SECOND * number for number in (4, 3, 2, 1, 0)]
    assert end is None
    assert {entry.schedule_id for entry in works.ledger.latest(10)} == {schedule.id, other.id}


# --- what a user may have


def test_an_occurrence_that_finds_no_room_is_skipped_and_the_ledger_says_why(works: Clockwork) -> None:
    beat = works.new_beat(Quotas(waiting=3))
    greedy = [works.schedule("every 1s", user_id="greedy", overlap=Overlap.ALLOW) for _ in range(5)]
    other = works.schedule("every 1s", user_id="other")
    report = beat.tick()
    assert (len(report.fired), len(report.skipped)) == (4, 2)
    assert len(works.runs(other)) == 1
    refused = [schedule for schedule in greedy if not works.runs(schedule)]
    (entry,), _ = works.ledger.page(refused[0].id, 10)
    assert entry.reason == "user_quota: 3 crawls of 'greedy' wait, and the limit is 3 (CRAWL_USER_WAITING_MAX)"
    # the entry stands for the occurrences of the next five seconds, too; the one after them is tried again
    assert (entry.kind, entry.missed) == (SKIPPED, 5)
    after = works.schedules.get(refused[0].id)
    assert (after.next_at, after.runs, after.state) == (START + 6 * SECOND, 0, ScheduleState.ACTIVE)
    assert not works.held(refused[0])
    for schedule in greedy:
        for job in works.runs(schedule):
            works.finish(job)
            works.edits.pause(schedule.id)
    works.at(6 * SECOND)
    beat.tick()
    assert len(works.runs(refused[0])) == 1


def test_jobs_that_wait_for_their_time_and_those_of_other_beats_count(works: Clockwork) -> None:
    schedule = works.schedule(user_id="greedy")
    for status in (JobStatus.PENDING, JobStatus.SCHEDULED):
        works.jobs.insert(make_job(status=status, user_id="greedy", not_before=START + HOUR))
    assert len(works.new_beat(Quotas(waiting=2)).tick().skipped) == 1
    works.at(HOUR)
    assert len(works.new_beat(Quotas(waiting=3)).tick().fired) == len(works.runs(schedule)) == 1


def test_a_users_schedules_begin_so_many_runs_a_minute_and_no_more(works: Clockwork) -> None:
    beat = works.new_beat(Quotas(begun=10))
    schedules = [works.schedule("every 1s", user_id="greedy", overlap=Overlap.ALLOW) for _ in range(4)]
    other = works.schedule("every 1s", user_id="other", overlap=Overlap.ALLOW)
    for second in range(59):
        works.at(second * SECOND)
        beat.tick()
    assert sum(len(works.runs(schedule)) for schedule in schedules) == 10
    assert len(works.runs(other)) == 10
    works.at(66 * SECOND)
    beat.tick()
    assert sum(len(works.runs(schedule)) for schedule in schedules) == 20
    entries, _ = works.ledger.page(schedules[0].id, 100)
    (reason,) = {entry.reason for entry in entries if entry.kind is SKIPPED}
    assert reason is not None
    assert reason.startswith("user_quota: schedules of 'greedy' began 10 runs a minute, the limit is 10 (CRAWL_USER_")


@pytest.mark.parametrize("catch_up", CatchUp)
def test_what_was_missed_is_not_made_up_for_beyond_what_a_user_may_have(works: Clockwork, catch_up: CatchUp) -> None:
    schedule = works.schedule("every 1s", user_id="greedy", overlap=Overlap.ALLOW, catch_up=catch_up)
    works.at(50 * SECOND)
    beat = works.new_beat(Quotas(waiting=2))
    for _ in range(3):
        beat.tick()
    assert len(works.runs(schedule)) <= 2
    told = works.book(schedule)
    # each occurrence is in the ledger exactly once
    covered = sum(1 + missed for _, _, missed in told)
    after = works.schedules.get(schedule.id).next_at
    assert after is not None
    assert covered == (after - START) / SECOND
