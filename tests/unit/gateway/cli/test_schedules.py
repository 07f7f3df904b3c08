from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from unit.gateway.cli.conftest import END, JOB, Answer, Run, StandIn, log, stream

from gateway.cli.options import timing
from gateway.cli.terminal import until_then

SCHEDULE = {
    "schedule_id": JOB,
    "name": None,
    "state": "active",
    "interval": "0 9 * * *",
    "timezone": "Europe/Paris",
    "next_run": "2027-06-02T07:00:00.000Z",
    "runs": 32,
    "spider": "seo",
    "start_urls": ["https://example.com/"],
    "start_urls_count": 3,
    "site": None,
}
RECEIPT = {"job_id": JOB, "scheduled": True, "cached": False, "next_run": "2127-06-02T07:00:00.000Z"}
HERE = {"TZ": "Europe/Paris"}


def test_a_crawl_for_later_is_told_and_not_watched(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /crawl", Answer(202, RECEIPT))
    done = run("crawl", "https://example.com", "--at", "2127-06-02T09:00", **HERE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"scheduled {JOB}\nnext run: 2127-06-02 09:00:00 +0200 (in ")
    assert f"logs -f {JOB}" in done.stdout
    assert gateway.asked("/crawl")[0].body["schedule_at"] == "2127-06-02T09:00:00+02:00"
    assert "interval" not in gateway.asked("/crawl")[0].body
    assert run("crawl", "https://example.com", "--every", "1h", "--no-follow").stdout == f"{JOB}\n"


def test_a_crawl_again_and_again_is_asked_for_as_the_options_say(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /crawl", Answer(202, RECEIPT))
    cron = ("--cron", "0 9 * * *", "--timezone", "Europe/Paris", "--jitter", "0.2", "--overlap", "queue")
    run("crawl", "https://a.example", "--user", "me", *cron, "--until", "2127-06-01T09:00Z", "--max-runs", "3")
    run("crawl", "https://a.example", "--every", "15m")
    first, second = (request.body for request in gateway.asked("/crawl"))
    assert first == {
        "user_id": "me",
        "spider": "seo",
        "start_urls": ["https://a.example"],
        "interval": "0 9 * * *",
        "timezone": "Europe/Paris",
        "jitter": 0.2,
        "overlap": "queue",
        "ends_at": first["ends_at"],
        "max_runs": 3,
    }
    assert datetime.fromisoformat(first["ends_at"]) == datetime(2127, 6, 1, 9, tzinfo=UTC)
    assert second["interval"] == "every 15m"


def test_a_crawl_for_later_may_be_watched_all_the_same(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /crawl", Answer(202, RECEIPT))
    waiting = {"status": "scheduled", "attempt": 0, "next_run": "2127-06-02T07:00:00.000Z"}
    events = (("status", None, waiting), ("log", f"{JOB}.1-10", log("hello")), ("end", f"{JOB}.1-11", END))
    gateway.says(f"GET /jobs/{JOB}/logs", stream(*events))
    done = run("crawl", "https://example.com", "--every", "1h", "--follow", **HERE)
    assert (done.returncode, "hello" in done.stdout) == (0, True)
    assert "scheduled: next run 2127-06-02 09:00:00 +0200" in done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--every", "1h", "--cron", "@daily"),
        ("--at", "tomorrow"),
        ("--at", "0001-01-01"),
        ("--every", "1h", "--until", "never"),
        ("--every", "1h", "--output", "items.csv"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    gateway: StandIn, run: Run, options: tuple[str, ...]
) -> None:
    assert run("crawl", "https://example.com", *options).returncode == 2
    assert gateway.requests == []


def test_schedules_are_listed(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /schedules", Answer(200, {"schedules": [SCHEDULE], "next": "1-2"}))
    for arguments in ((), ("list", "--user", "me", "--state", "active", "--site", "x", "--limit", "5")):
        done = run("schedules", *arguments, **HERE)
        line = done.stdout.splitlines()[1].split()
        assert line == [
            *(JOB[:8], "active", "0", "9", "*", "*", "*", "Europe/Paris", "2027-06-02", "09:00", "CEST", "32"),
            *("seo", "example.com/", "+2"),
        ]
        assert "more: --limit" in done.stdout
    assert gateway.requests[-1].query == "user_id=me&state=active&site=x&limit=5"


def test_what_others_have_named_is_shown_as_they_named_it(gateway: StandIn, run: Run) -> None:
    named = {**SCHEDULE, "name": "[/red] [bold]a[/bold] :key:"}
    gateway.says("GET /schedules", Answer(200, {"schedules": [named], "next": None}))
    done = run("schedules")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].endswith("[/red] [bold]a[/bold] :key:")


def test_the_coming_runs_are_shown_in_both_times(gateway: StandIn, run: Run) -> None:
    coming = {
        "at": "2127-03-30T07:00:00.000Z",
        "due": "2127-03-30T07:00:00.000Z",
        "local": "2127-03-30T09:00:00+02:00",
    }
    gateway.says(f"GET /schedules/{JOB}/next", Answer(200, {"timezone": "Europe/Paris", "runs": [coming]}))
    done = run("schedules", "next", JOB, "-n", "1")
    assert done.stdout.splitlines()[0].split() == ["Europe/Paris", "UTC"]
    assert done.stdout.splitlines()[1].split() == ["2127-03-30", "09:00:00+02:00", "2127-03-30T07:00:00.000Z"]


def test_the_history_says_why(gateway: StandIn, run: Run) -> None:
    base = {"due": "2027-06-02T07:00:00.000Z", "late_by_seconds": 0.04, "missed": 0, "reason": None, "job_id": None}
    entries = [
        {**base, "kind": "fired", "job_id": JOB, "missed": 9},
        {**base, "kind": "skipped", "reason": "the previous run has not ended"},
    ]
    gateway.says(f"GET /schedules/{JOB}/history", Answer(200, {"entries": entries, "next": None}))
    gateway.says(f"GET /schedules/{JOB}", Answer(200, SCHEDULE))
    _, fired, skipped = run("schedules", "history", JOB, TZ="Asia/Tokyo").stdout.splitlines()
    assert fired.startswith("2027-06-02 09:00 CEST  fired")
    assert f"0.0s  {JOB[:8]}  for 9 more that were missed" in fired
    assert skipped.rstrip().endswith("skipped  0.0s  -         the previous run has not ended")


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_a_schedule_is_paused_and_resumed(gateway: StandIn, run: Run, action: str) -> None:
    gateway.says(f"POST /schedules/{JOB}/{action}", Answer(200, {**SCHEDULE, "state": "paused", "next_run": None}))
    assert run("schedules", action, JOB).stdout == f"{JOB}: paused, next run: -\n"


def test_a_schedule_is_changed_as_the_options_say(gateway: StandIn, run: Run) -> None:
    gateway.says(f"PATCH /schedules/{JOB}", Answer(200, SCHEDULE))
    assert run("schedules", "edit", JOB, "--every", "2h", "--name", "often").returncode == 0
    assert gateway.requests[-1].body == {"interval": "every 2h", "name": "often"}
    assert run("schedules", "edit", JOB).returncode == 2


def test_a_schedule_is_run_now_and_followed_if_asked_to(gateway: StandIn, run: Run) -> None:
    gateway.says(f"POST /schedules/{JOB}/run", Answer(200, {"job_id": JOB}))
    gateway.says(f"GET /jobs/{JOB}/logs", stream(("end", "1-1", {**END, "status": "partial"})))
    assert run("schedules", "run", JOB).stdout == f"{JOB}\n"
    assert run("schedules", "run", JOB, "-f").returncode == 3


def test_a_schedule_is_shown_ended_and_deleted(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /schedules/{JOB}", Answer(200, SCHEDULE))
    gateway.says(f"POST /jobs/{JOB}/cancel", Answer(200, {"status": "cancelled"}))
    gateway.says(f"DELETE /schedules/{JOB}", Answer(204))
    assert '"timezone": "Europe/Paris"' in run("schedules", "show", JOB).stdout
    assert run("schedules", "end", JOB).stdout == f"{JOB}: ended\n"
    assert run("schedules", "delete", JOB).stdout == f"{JOB}: deleted\n"


def test_its_runs_are_listed_among_the_jobs(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [], "next": None}))
    assert run("jobs", "--schedule", JOB, "--site", "board").returncode == 0
    assert gateway.requests[-1].query == f"schedule_id={JOB}&site=board&limit=20"


def test_a_refusal_is_one_line(gateway: StandIn, run: Run) -> None:
    error: dict[str, Any] = {"error": {"code": "schedule_not_found", "message": "there is no schedule 'x'"}}
    gateway.says("GET /schedules/x", Answer(404, error))
    done = run("schedules", "show", "x")
    assert (done.returncode, done.stderr) == (2, "error: there is no schedule 'x'\n")


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        ("2027-06-01T09:00:42Z", "in 42s"),
        ("2027-06-01T09:05:00Z", "in 5m"),
        ("2027-06-04T09:00:00Z", "in 3d"),
        ("2027-06-01T08:00:00Z", "in 0s"),
    ],
)
def test_a_time_ahead_is_told_by_its_largest_unit(moment: str, told: str) -> None:
    assert until_then(moment, datetime(2027, 6, 1, 9, tzinfo=UTC)) == told


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"every": "1d", "at": "09:00", "timezone": "Paris"}, {"interval": "0 9 * * *", "timezone": "Europe/Paris"}),
        ({"cron": "@daily", "timezone": "new york"}, {"interval": "@daily", "timezone": "America/New_York"}),
        ({"cron": "@daily", "timezone": "UTC"}, {"interval": "@daily", "timezone": "UTC"}),
        # the gateway refuses it
        ({"cron": "@daily", "timezone": "Nowhere"}, {"interval": "@daily", "timezone": "Nowhere"}),
    ],
)
def test_a_city_is_a_time_zone_and_a_time_one_of_every_day(given: dict[str, str], fields: dict[str, str]) -> None:
    assert timing(**given) == fields


@pytest.mark.parametrize("given", [{"at": "09:00"}, {"every": "2h", "at": "09:00"}])
def test_a_time_without_a_day_is_refused_where_no_day_is_meant(given: dict[str, str]) -> None:
    with pytest.raises(typer.BadParameter, match="--every 1d"):
        timing(**given)


def test_runs_by_hand_are_among_the_runs_of_a_list(gateway: StandIn, run: Run) -> None:
    by_hand = {**SCHEDULE, "runs": 30, "runs_by_hand": 17}
    gateway.says("GET /schedules", Answer(200, {"schedules": [by_hand], "next": None}))
    head, line = run("schedules", COLUMNS="200").stdout.splitlines()
    place = head.index("RUNS")
    assert line[place : place + 4].strip() == "47"
