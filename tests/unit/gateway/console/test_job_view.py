"""A job in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from jobs import make_job

from gateway.clock import utc_now
from gateway.console.job_view import no_log, parameters, pretty, runs, start_urls, story, today_and_before
from gateway.contract.crawl import CrawlSpec, FetchOptions
from gateway.contract.records import Progress
from gateway.jobs.job import Attempt, Job, JobStatus, Occurrence, PastStep, StepKind, WaitingReason

NOW = utc_now()
LATER = "Scheduled for later"


def ago(seconds: float) -> Any:
    return NOW - timedelta(seconds=seconds)


def test_moments_that_belong_together_are_one_entry() -> None:
    first = Attempt(
        attempt=1, node="n1", dispatched_at=ago(50), started_at=ago(49), ended_at=ago(30),
        status=JobStatus.ERROR, message="killed",
    )  # fmt: skip
    second = Attempt(
        attempt=2, node="n2", dispatched_at=ago(20), started_at=ago(19), ended_at=ago(9), status=JobStatus.FINISHED
    )
    waits = [(59.9, WaitingReason.CAPACITY), (30, WaitingReason.BACKOFF)]
    history = [PastStep(at=ago(seconds), kind=StepKind.WAITS, reason=reason) for seconds, reason in waits]
    job = make_job(
        created_at=ago(60), status=JobStatus.FINISHED, attempts={"1": first, "2": second}, history=history,
        finished_at=ago(9), message="12 pages",
    )  # fmt: skip
    told = [(entry.words, entry.seconds and round(entry.seconds)) for entry in story(job, NOW)]
    assert told == [
        ("Submitted", None),
        ("Waiting for a free slot", 10),
        ("Attempt 1 on node n1", 19),
        ("Waiting to retry", 10),
        ("Attempt 1 ended", None),
        ("Attempt 2 on node n2", 10),
        ("Ended: finished", None),
    ]


def test_what_goes_on_is_told_until_now_and_others_by_their_names() -> None:
    history = [
        PastStep(at=ago(9), kind=StepKind.PAUSED, by="bert"),
        PastStep(at=ago(9), kind=StepKind.WAITS, reason=WaitingReason.NO_NODE),
    ]
    job = make_job(created_at=ago(10), history=history[1:])
    assert [(entry.words, round(entry.seconds or 0)) for entry in story(job, NOW)][1:] == [
        ("Being queued", 1),
        ("Waiting for an available node", 9),
    ]
    paused = make_job(created_at=ago(10), status=JobStatus.PAUSED, history=history[:1])
    assert (story(paused, NOW)[-1].words, story(paused, NOW)[-1].by) == ("Paused", "bert")


def test_a_run_of_a_schedule_says_who_owns_it() -> None:
    slot = Occurrence(rev=1, at=ago(10), due=ago(10), fired_at=ago(10))
    begun, by_hand = (make_job(created_at=ago(10), user_id="anne", slot=one) for one in (slot, None))
    assert [(one.words, one.by) for one in (story(begun, NOW)[0], story(by_hand, NOW)[0])] == [
        ("Started by schedule (owner: anne)", None),
        ("Submitted", "anne"),
    ]


def test_only_what_waits_for_its_time_was_scheduled_for_later() -> None:
    for due, words in (
        (9.99, ["Started by schedule (owner: anne)"]),
        (5, ["Started by schedule (owner: anne)", LATER]),
    ):
        slot = Occurrence(rev=1, at=ago(due), due=ago(due), fired_at=ago(due))
        told = [one.words for one in story(make_job(created_at=ago(10), user_id="anne", slot=slot), NOW)]
        assert told == [*words, "Being queued"]


def test_secrets_are_named_and_not_shown() -> None:
    spec = CrawlSpec(
        spider="seo",
        start_urls=("https://ann:s3cret@site.example/a@b", "javascript:alert(1)"),
        env={"API_KEY": "s3cret"},
        fetch=FetchOptions(headers={"Authorization": "s3cret"}),
        params={"name": "\u202egnp.exe"},
    )
    assert start_urls(spec) == [("https://***@site.example/a@b", True), ("javascript:alert(1)", False)]
    told = dict(parameters(spec))
    assert "s3cret" not in str(told)
    assert "API_KEY" in told["Environment variables"]
    assert "Authorization" in told["Fetch options"]
    assert "\\u202egnp" in told["Parameters"]
    assert pretty({}) == ""


def test_the_longest_bar_is_that_of_the_greatest_value() -> None:
    counts = [(10, 5, 0), (40, 2, 0)]
    jobs = [
        make_job(
            created_at=ago(100), started_at=ago(90), finished_at=ago(80 - 10 * number), status=JobStatus.FINISHED,
            progress=Progress(completed_pages=pages, items_count=items, errors_count=errors),
        )
        for number, (pages, items, errors) in enumerate(counts)
    ]  # fmt: skip
    beside = runs([*jobs, make_job()], NOW)
    assert beside.most[1:] == (20.0, 40, 5, 1)
    assert [row.seconds for row in beside.rows] == [10.0, 20.0, None]


def test_a_job_that_no_attempt_was_made_for_says_what_it_waits_for() -> None:
    waits = make_job(status=JobStatus.PENDING, waiting_reason=WaitingReason.CAPACITY)
    assert no_log(waits) == "No log yet: the job is waiting for a free slot."
    assert "never started" in no_log(make_job(status=JobStatus.CANCELLED, finished_at=NOW))


def test_why_a_log_has_no_lines_is_said_as_far_as_it_is_known() -> None:
    def said(end: int | None, status: JobStatus = JobStatus.FINISHED, **fields: Any) -> str:
        attempt = Attempt(attempt=1, node="n1", dispatched_at=ago(9), log_end=end)
        return no_log(make_job(status=status, attempts={"1": attempt}, **fields))

    assert said(None, JobStatus.RUNNING) == "No log yet."
    # its last lines may still be on their way
    assert said(None, settled=False) == "No log yet."
    assert said(0, settled=True) == "The crawl wrote no log."
    assert said(700, settled=True) == "No log was stored."
    assert said(None, settled=True) == "No log was stored."
    assert "LOG_RETENTION_DAYS" in said(700, settled=True, logs_removed_at=NOW)


def test_a_run_of_today_is_compared_with_that_of_an_earlier_day_of_the_same_schedule() -> None:
    noon = NOW.replace(hour=12)

    def run(hours: float, schedule: str | None = None, status: JobStatus = JobStatus.FINISHED) -> Job:
        return make_job(status=status, schedule_id=schedule, created_at=noon - timedelta(hours=hours))

    today, other, failed, before = run(1, "mine"), run(23, "other"), run(24, "mine", JobStatus.ERROR), run(25, "mine")
    by_hand, older = run(0), run(49, "mine")
    assert today_and_before([today, other, failed, before, older], noon) == (today, before)
    # one that was started by hand has none before it, and a schedule may have rested yesterday
    assert today_and_before([by_hand, today, other, failed, older], noon) == (today, older)
    assert today_and_before([today, other, failed], noon) is None
    assert today_and_before([before, older], noon) is None
