from __future__ import annotations

from typing import Any

import pytest
from unit.gateway.cli.conftest import END, JOB, Answer, Run, StandIn, log, stream

RUN = {"task_id": JOB, "run_id": f"manual_{JOB}", "status": "queued", "execution_mode": "async"}
RESULTS = [
    {
        "title": "Beekeeper",
        "company": "O'Brien [Ltd]",
        "location": {"text": None, "city": "Lyon", "country": "FR"},
        "salary": {"text": "€20 an hour", "min": 20},
        "url": "https://board.example/1",
    }
]


def outcome(**fields: Any) -> dict[str, Any]:
    counts = {"completed_pages": 2, "errors_count": 0, "message": "2 pages"}
    return {**RUN, "status": "succeeded", **counts, "results": RESULTS, "next": None, **fields}


def starts(gateway: StandIn, **end: Any) -> None:
    gateway.says("POST /jobs/scrape", Answer(200, {"status": "success", "data": RUN}))
    gateway.says(f"GET /jobs/{JOB}/logs", stream(("log", "1-10", log("hello")), ("end", "1-11", {**END, **end})))
    gateway.says(f"GET /jobs/scrape/manual_{JOB}", Answer(200, outcome(next="1-9")))
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b'{"title":"Beekeeper"}\n'))


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("partial", 3), ("error", 1)])
def test_a_run_is_followed_and_its_results_are_shown(gateway: StandIn, run: Run, status: str, code: int) -> None:
    starts(gateway, status=status)
    done = run("scrape", "board", "bees")
    assert done.returncode == code, done.stderr
    assert "INFO     seo hello" in done.stdout
    assert "Beekeeper" in done.stdout
    for shown in ("O'Brien [Ltd]", "Lyon, FR", "€20 an hour"):
        assert shown in done.stdout
    assert f"items {JOB}" in done.stdout


@pytest.mark.parametrize(
    ("salary", "shown"),
    [
        ({"min": 46000, "max": 56000, "currency": "EUR", "period": "year", "text": None}, "46000–56000 EUR per year"),
        ({"min": 20, "max": 20, "currency": "GBP", "period": None, "text": None}, "20 GBP"),
        ({"min": None, "max": 0.5, "currency": None, "period": "hour", "text": None}, "0.5 per hour"),
    ],
)
def test_a_salary_without_words_is_put_into_words(
    gateway: StandIn, run: Run, salary: dict[str, Any], shown: str
) -> None:
    results = [{"title": "Beekeeper", "salary": salary, "url": None}]
    gateway.says("POST /jobs/scrape", Answer(200, {"status": "success", "data": outcome(results=results)}))
    table = run("scrape", "board", "bees", "--sync").stdout.splitlines()
    assert table[1].split(None, 1) == ["Beekeeper", shown]


def test_a_run_asks_for_what_the_options_say(gateway: StandIn, run: Run) -> None:
    starts(gateway)
    options = ("--location", "Lyon", "--results", "7", "--on-site", "--user", "me", "--no-follow")
    done = run("scrape", "board", "bees", *options)
    assert (done.returncode, done.stdout) == (0, f"manual_{JOB}\n")
    assert gateway.asked("/jobs/scrape")[0].body == {
        "site_name": "board",
        "search_term": "bees",
        "location": "Lyon",
        "results_wanted": 7,
        "is_remote": False,
        "user_id": "me",
    }


def test_results_go_to_stdout_alone_where_a_format_is_chosen(gateway: StandIn, run: Run) -> None:
    starts(gateway)
    done = run("scrape", "board", "--json")
    assert (done.returncode, done.stdout) == (0, '{"title":"Beekeeper"}\n')
    assert "hello" in done.stderr
    assert gateway.asked(f"/jobs/{JOB}/items")[0].query == "format=jsonl"
    assert run("scrape", "board", "--json", "--csv").returncode == 2


@pytest.mark.parametrize(("status", "code"), [("succeeded", 0), ("partial", 3), ("failed", 1)])
def test_a_run_in_one_request_shows_its_results_and_how_it_ended(
    gateway: StandIn, run: Run, status: str, code: int
) -> None:
    gateway.says("POST /jobs/scrape", Answer(200, {"status": "success", "data": outcome(status=status)}))
    done = run("scrape", "board", "bees", "--sync")
    assert done.returncode == code
    assert "Beekeeper" in done.stdout
    assert f"{status}: 2 pages, 0 errors" in done.stderr
    assert ("\n2 pages" in done.stderr) is (status != "succeeded")
    assert gateway.asked("/jobs/scrape")[0].query == "mode=sync"


def test_a_run_that_takes_longer_is_named(gateway: StandIn, run: Run) -> None:
    told = {"code": "run_goes_on", "message": "it goes on", "detail": {"task_id": JOB}}
    gateway.says("POST /jobs/scrape", Answer(504, {"error": told}))
    done = run("scrape", "board", "--sync")
    assert done.returncode == 1
    assert f"logs -f {JOB}" in done.stderr


def test_of_an_unknown_site_those_that_there_are_are_named(gateway: StandIn, run: Run) -> None:
    told = {"code": "site_not_found", "message": "none of 'x'", "detail": {"field": "site_name", "known": ["a", "b"]}}
    gateway.says("POST /jobs/scrape", Answer(404, {"error": told}))
    done = run("scrape", "x")
    assert (done.returncode, done.stderr) == (2, "error: none of 'x'; there is a, b\n")


def test_dead_letters_are_listed_and_run_again(gateway: StandIn, run: Run) -> None:
    letter = {"id": JOB, "spider": "seo", "site": None, "message": "nothing [was] fetched"}
    page = {"dead_letters": [{**letter, "created_at": "2026-01-01T00:00:00.000Z"}], "next": None}
    gateway.says("GET /dead-letters", Answer(200, page))
    gateway.says(f"POST /dead-letters/{JOB}/requeue", Answer(200, {"job_id": "new", "retry_of": JOB}))
    listed = run("dead", "--spider", "seo")
    assert JOB[:8] in listed.stdout
    assert "nothing [was] fetched" in listed.stdout
    assert gateway.asked("/dead-letters")[0].query == "spider=seo&limit=20"
    assert run("requeue", JOB).stdout == "new\n"
