"""A job's history: its counts over time, its steps, and the runs of the same schedule or spider."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
from integration.web.board import Serve, open_board
from jobs import make_job
from pymongo.database import Database

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import to_iso, utc_now
from gateway.contract.outbox import AttemptId
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.progress import Point, ProgressStore
from gateway.settings import Settings

Keep = Callable[[Job], Job]
ENDED = {"status": JobStatus.FINISHED, "settled": True, "live_key": None}


def test_progress_is_a_curve_of_each_attempt_and_an_estimate_while_it_runs(
    gateway: httpx2.Client, keep: Keep, database: Database[dict[str, Any]]
) -> None:
    now = utc_now()
    began = now - timedelta(seconds=30)
    attempt = Attempt(attempt=2, node="n1", dispatched_at=began, started_at=began)
    job = keep(make_job(status=JobStatus.RUNNING, attempt=2, attempts={"2": attempt}))
    store = ProgressStore(database)
    for number, counts in ((1, (5, 4, 4, 1, 5)), (2, (300, 90, 80, 10, 90))):
        series = store.get(AttemptId(job.id, number))
        for point in (Point(began), Point(now, *counts)):
            assert series.add(point)
        store.save(series)
    answer = gateway.get(f"/jobs/{job.id}/progress").json()
    assert [one["attempt"] for one in answer["attempts"]] == [1, 2]
    second = answer["attempts"][1]
    assert (second["at"], second["requested_pages"]) == ([to_iso(began), to_iso(now)], [0, 300])
    assert (second["completed_pages"], second["errors_count"], second["answered_2xx"]) == ([0, 90], [0, 10], [0, 90])
    found = answer["estimate"]
    assert (found["reckoned_by"], found["queued"]) == ("timeout", 200), "its queue grows"


def test_a_job_without_any_progress_says_so(gateway: httpx2.Client, keep: Keep) -> None:
    job = keep(make_job(**ENDED))
    assert gateway.get(f"/jobs/{job.id}/progress").json() == {"attempts": [], "estimate": None}
    assert gateway.get(f"/jobs/{'0' * 32}/progress").status_code == 404


def test_progress_goes_with_its_job(gateway: httpx2.Client, keep: Keep, database: Database[dict[str, Any]]) -> None:
    job, other = keep(make_job(**ENDED)), keep(make_job(**ENDED))
    store = ProgressStore(database)
    for one in (job, other):
        series = store.get(AttemptId(one.id, 1))
        series.add(Point(utc_now()))
        store.save(series)
    assert gateway.delete(f"/jobs/{job.id}").status_code == 204
    assert (store.of_job(job.id, 9), len(store.of_job(other.id, 9))) == ({}, 1)


def test_pauses_and_a_cancellation_are_in_the_timeline(gateway: httpx2.Client, keep: Keep) -> None:
    job = keep(make_job())
    for act in ("pause", "resume", "cancel"):
        assert gateway.post(f"/jobs/{job.id}/{act}").is_success
    moments = gateway.get(f"/jobs/{job.id}/timeline").json()["moments"]
    kinds = [moment["kind"] for moment in moments]
    assert kinds == ["submitted", "waiting", "paused", "resumed", "cancel_requested", "ended"]
    assert (moments[0]["by"], moments[-1]["status"]) == (job.user_id, "cancelled")
    assert moments[2]["until"] == moments[3]["at"]


def test_runs_are_those_of_the_schedule_or_of_the_same_request(gateway: httpx2.Client, keep: Keep) -> None:
    hour = timedelta(hours=1)
    times = [utc_now() - number * hour for number in range(3)]
    same = [keep(make_job(fingerprint="same", created_at=time, **ENDED)) for time in times]
    of_schedule = [keep(make_job(schedule_id="5c" * 16, created_at=time, **ENDED)) for time in times]
    keep(make_job(**ENDED))
    for runs, word in ((same, "request"), (of_schedule, "schedule")):
        answer = gateway.get(f"/jobs/{runs[1].id}/runs", params={"limit": 2}).json()
        assert (answer["same"], [run["job_id"] for run in answer["runs"]]) == (word, [one.id for one in runs[:2]])
    assert gateway.get(f"/jobs/{same[0].id}/runs", params={"limit": 0}).status_code == 422


def test_the_timeline_names_those_who_have_asked(serve: Serve, settings: Settings) -> None:
    with open_board(serve, settings, "life") as board:
        issued = KeyIssue(KeyStore(board.jobs._jobs.database)).issue("anne", [Scope.CRAWL])
        board.http.headers["Authorization"] = f"Bearer {issued.token}"
        by_hand, in_bulk = make_job(user_id="anne"), make_job(user_id="anne", tags=["bulk"])
        for job in (by_hand, in_bulk):
            board.jobs.insert(job)
        assert board.http.post(f"/jobs/{by_hand.id}/cancel").is_success
        wanted = {"filter": {"tag": "bulk"}, "action": "cancel", "expect": 1}
        assert board.http.post("/jobs/bulk", json=wanted).json()["done"] == 1
        for job in (by_hand, in_bulk):
            moments = board.http.get(f"/jobs/{job.id}/timeline").json()["moments"]
            assert [moment["by"] for moment in moments if moment["kind"] == "cancel_requested"] == ["anne"]


def test_a_job_says_what_to_do_next(gateway: httpx2.Client, keep: Keep) -> None:
    failed = keep(make_job(**{**ENDED, "status": JobStatus.ERROR, "reason": "memory_limit"}))
    advice = gateway.get(f"/jobs/{failed.id}").json()["advice"]
    assert "CRAWL_MEMORY_LIMIT" in advice["what"]
    assert advice["steps"]
    assert advice["reference"] == "docs/reference/limits.md"
    good = keep(make_job(**ENDED, reason="completed"))
    assert gateway.get(f"/jobs/{good.id}").json()["advice"] is None
