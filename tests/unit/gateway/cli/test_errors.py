from __future__ import annotations

from typing import Any

from unit.gateway.cli.conftest import Answer, Run, StandIn

ID = "2b0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
SEEN = {"job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a", "version": "2.0", "at": "2027-06-01T09:03:41.000Z", "count": 12}
ERROR: dict[str, Any] = {
    "error_id": ID,
    "kind": "exception",
    "name": "ValueError",
    "message": "no price on page <number>",
    "title": "ValueError: no price on page <number>",
    "place": "shop/spiders/prices.py:parse",
    "project": "shop",
    "spider": "prices",
    "state": "open",
    "back": None,
    "runs": 3,
    "count": 36,
    "runs_since": 2,
    "first_seen": SEEN,
    "last_seen": SEEN,
    "example": {**SEEN, "text": "no price on page 7", "url": "https://a.example/7", "position": "1-20480"},
    "recent_runs": [{**SEEN, "mark": "new"}],
}


def test_errors_are_listed_by_filters(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /errors", Answer(200, {"errors": [ERROR], "next": None}))
    done = run("errors", "list", "--spider", "prices", "--state", "open", "--search", "price", "--sort", "count")
    assert done.returncode == 0, done.stderr
    assert "shop/prices" in done.stdout
    # with the values of the last one
    assert "ValueError: no price on page 7" in done.stdout
    assert gateway.asked("/errors")[0].query == "spider=prices&state=open&q=price&sort=count&limit=20"
    assert "no errors" not in run("errors").stderr


def test_one_error_is_shown_with_its_example_and_runs(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /errors", Answer(200, {"errors": [ERROR], "next": None}))
    gateway.says(f"GET /errors/{ID}", Answer(200, {**ERROR, "name": "\x1b[31mbad\x07"}))
    done = run("errors", "show", "2b0c")
    assert done.returncode == 0, done.stderr
    for words in (
        "no price on page 7",
        "2027-06-01 09:03 in 2.0",
        "https://a.example/7",
        "new",
        "36 times in 3 runs, ",
        "discoverybot logs ",
    ):
        assert words in done.stdout
    assert "\x1b" not in done.stdout


def test_errors_are_resolved_reopened_and_ignored(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /errors", Answer(200, {"errors": [ERROR], "next": None}))
    gateway.says(f"PATCH /errors/{ID}", Answer(200, {**ERROR, "state": "resolved"}))
    done = run("errors", "resolve", "2b0c", "--in", "2.1")
    assert done.stdout == f"{ID}: resolved\n", done.stderr
    for command in ("resolve", "reopen", "ignore"):
        assert run("errors", command, ID).returncode == 0
    assert [call.body for call in gateway.asked(f"/errors/{ID}")] == [
        {"state": "resolved", "version": "2.1"},
        {"state": "resolved"},
        {"state": "open"},
        {"state": "ignored"},
    ]


def test_the_first_error_of_last_night_is_found(gateway: StandIn, run: Run) -> None:
    again = {**SEEN, "at": "2027-06-01T03:12:00.000Z"}
    gateway.says("GET /errors", Answer(200, {"errors": [{**ERROR, "first_since": again}], "next": None}))
    done = run("errors", "list", "--since", "last-night", "--sort", "oldest", TZ="UTC")
    assert done.returncode == 0, done.stderr
    assert "FIRST IN RANGE" in done.stdout
    assert "2027-06-01 03:12" in done.stdout
    assert "T18%3A00%3A00%2B00%3A00&sort=oldest" in gateway.asked("/errors")[0].query
    gateway.says("GET /errors", Answer(200, {"errors": [{**ERROR, "first_since": None}], "next": None}))
    assert "FIRST IN RANGE" not in run("errors").stdout


def test_an_id_that_nothing_begins_with_is_refused_in_words(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /errors", Answer(200, {"errors": [ERROR], "next": None}))
    done = run("errors", "show", "abcd1234")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no error begins with 'abcd1234': ")
