"""`jobs show`: why a job waits, why it failed, what to do next."""

from __future__ import annotations

from typing import Any

import pytest
from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn

from gateway.cli import explain
from gateway.cli.terminal import out
from gateway.jobs.job import JobStatus, WaitingReason

DETAIL: dict[str, Any] = {
    "job_id": JOB, "status": "pending", "waiting_reason": None, "queue_position": None, "not_before": None,
    "next_run": None, "schedule_id": "0d4f", "site": "board", "version": "1.4", "message": None, "dead": False,
    "user_id": "anne", "created_at": "2026-01-01T00:00:00.000Z", "completed_pages": 0, "items_count": 0,
    "errors_count": 0, "attempts": [], "webhook_message": None, "cancel_requested_at": None,
    "pause_requested_at": None, "expires_at": None,
    "spec": {"project": "shop", "spider": "offers", "start_urls": ["https://a.example", "https://b.example"]},
}  # fmt: skip
LOST = {"items": 10, "fields": [{"name": "price", "lower": True, "share": 0.7, "share_before": 1.0}]}
ATTEMPT = {
    "attempt": 1,
    "node": "n1",
    "status": "error",
    "message": "2 of 2 requests failed",
    "exit": {
        "errors": [{"url": "https://a.example", "reason": "500"}],
        "log_tail": "Traceback\n\x1b[2JValueError: no price",
        "items_lost": None,
        "log_lost": "not a file",
    },
}


def shown(gateway: StandIn, run: Run, **fields: Any) -> str:
    gateway.says(f"GET /jobs/{JOB}", Answer(200, {**DETAIL, **fields}))
    done = run("jobs", "show", JOB)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("reason", "why", "todo"),
    [
        (None, "it is being queued", "doctor"),
        ("capacity", "every slot that it could use is taken", "nodes"),
        ("site_busy", "another run of site board has not ended", "jobs --site board"),
        ("previous_run", "the previous run of its schedule has not ended", "jobs --schedule 0d4f"),
        ("user_quota", "user anne has as many crawls running as one user may have", "jobs --user anne"),
        ("no_node", "no node takes work", "nodes"),
        ("no_such_project", "no node has version 1.4 of project shop", "deploy FOLDER --project shop --version 1.4"),
        ("disk_full", "the disks of the nodes that could run it are full", "nodes"),
        ("backoff", "the next one is at 2127-06-02", f"logs {JOB}"),
    ],
)
def test_a_waiting_job_says_what_it_waits_for_and_what_to_do(
    gateway: StandIn, run: Run, reason: str | None, why: str, todo: str
) -> None:
    text = shown(gateway, run, waiting_reason=reason, queue_position=3, not_before="2127-06-02T07:00:00.000Z")
    assert "pending: 0 pages, 0 items, 0 errors" in text
    assert f"page {gateway.url}/console/jobs/{JOB}" in text
    assert "spider offers of project shop, from https://a.example +1" in text
    assert "place 3" in text
    assert why in text
    assert f"discoverybot {todo}" in text


def test_no_reason_for_waiting_and_no_status_is_left_without_words() -> None:
    assert set(explain._WAITING) == set(WaitingReason)
    assert set(explain._NEXT) == set(JobStatus) - {JobStatus.PENDING}


def test_a_failed_job_says_why_and_how_to_run_it_again(gateway: StandIn, run: Run) -> None:
    advice = {"what": "Too many failed.", "steps": ["Look at them", "Run it again"], "reference": "docs/x.md"}
    message = "2 of 2 requests failed"
    text = shown(gateway, run, status="error", message=message, attempts=[ATTEMPT], dead=True, advice=advice)
    assert "advice Too many failed. - Look at them - Run it again more in docs/x.md" in text
    assert "attempt 1 on node n1: error: 2 of 2 requests failed https://a.example: 500 Traceback" in text
    assert r"\x1b[2JValueError: no price" in text
    assert "log lost: not a file" in text
    assert "why 2 of 2 requests failed" in text
    assert f"discoverybot requeue {JOB}" in text
    assert f"discoverybot jobs retry {JOB}" in shown(gateway, run, status="error")


@pytest.mark.parametrize(
    ("status", "todo"),
    [
        ("running", "logs -f"),
        ("finished", "items"),
        ("partial", "items"),
        ("scheduled", "cancel"),
        ("cancelled", "jobs"),
        ("paused", "resume"),
    ],
)
def test_a_job_in_any_other_state_says_what_can_be_done(gateway: StandIn, run: Run, status: str, todo: str) -> None:
    going_on = {**ATTEMPT, "status": None, "message": None, "exit": None}
    asked = {"cancel_requested_at": "2027-06-01T09:00:00.000Z", "message": "12 pages"}
    text = shown(gateway, run, status=status, attempts=[going_on], **asked)
    assert f"discoverybot {todo}" in text
    assert "attempt 1 on node n1: not over yet" in text
    assert "cancel asked for at 2027-06-01" in text
    assert ("result 12 pages" if status == "finished" else "why 12 pages") in text


def test_a_schedule_is_shown_where_a_job_is_asked_for(gateway: StandIn, run: Run) -> None:
    last = {"job_id": "8a7b", "status": "finished"}
    text = shown(gateway, run, status="scheduled", schedule={}, state="active", last_run=last)
    assert f"{JOB} is a schedule: active, next run: -, last run: 8a7b, finished" in text
    assert f"discoverybot schedules show {JOB}" in text
    assert "no run yet" in shown(gateway, run, schedule={}, state="active", last_run=None)


def test_a_crawl_without_start_urls_is_not_from_anywhere(gateway: StandIn, run: Run) -> None:
    text = shown(gateway, run, spec={**DETAIL["spec"], "start_urls": []})
    assert "spider offers of project shop asked for" in text


def test_why_a_retry_waits_is_not_how_the_attempt_before_failed(gateway: StandIn, run: Run) -> None:
    text = shown(gateway, run, waiting_reason="capacity", message=ATTEMPT["message"], attempts=[ATTEMPT])
    assert "why every slot that it could use is taken to do" in text
    assert text.count(str(ATTEMPT["message"])) == 1


def test_a_long_line_goes_on_below_its_beginning_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"https://a.example/{'x' * 60}"
    why = f"3 of 3 requests failed, the first of them with a time-out ({address}: no answer within 30 s)"
    assert explain._headed("why", why).plain == f"why        {why}"
    monkeypatch.setattr(out, "_force_terminal", True)
    monkeypatch.setattr(out, "width", 60)
    first, *further = explain._headed("why", why).plain.splitlines()
    assert first == "why        3 of 3 requests failed, the first of them with a"
    assert all(line.startswith(" " * 11) and (len(line) <= 60 or address in line) for line in further)
    assert " ".join(line.strip() for line in further) == why.removeprefix(
        "3 of 3 requests failed, the first of them with a "
    )


def test_a_job_that_is_over_says_what_is_notable(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/fields", Answer(200, LOST))
    slowest = {"ms": 900, "url": "https://a.example/slow"}
    gateway.says(f"GET /jobs/{JOB}/requests", Answer(200, {"requests": [slowest], "next": None}))
    text = shown(gateway, run, status="finished")
    for words in ("version 1.4", "price: filled in 70% of the items, before 100%", "900 ms: https://a.example/slow"):
        assert words in text
