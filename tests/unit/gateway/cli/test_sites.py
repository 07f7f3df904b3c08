from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unit.gateway.cli.conftest import Answer, Run, StandIn

SITE: dict[str, Any] = {
    "name": "board",
    "enabled": True,
    "spider": "jobs",
    "interval_minutes": 60,
    "search_url": "https://jobs.example.com/?q={keywords}&x[]=1",
    "last_run_at": None,
    "next_run_at": "2027-06-01T09:00:00.000Z",
}
TARGET: dict[str, Any] = {
    "number": 7,
    "site": "board",
    "keywords": "c++ [senior]",
    "location": "Paris",
    "frequency": 30,
    "enabled": False,
    "last_scheduled": None,
    "next_run": None,
}
HERE = {"TZ": "Europe/Paris"}


def test_sites_are_listed_page_by_page(gateway: StandIn, run: Run) -> None:
    pages = [{"sites": [SITE], "next": "board"}, {"sites": [{**SITE, "name": "other"}], "next": None}]
    gateway.says("GET /sites", *(Answer(200, page) for page in pages))
    done = run("sites", **HERE)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["SITE", "board", "other"]
    assert SITE["search_url"].removeprefix("https://") in done.stdout
    assert "60m    -         2027-06-01 11:00  jobs" in done.stdout
    assert gateway.asked("/sites")[1].query == "limit=200&after=board"


def test_a_site_is_made_from_a_file_and_options(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    record = {"search_url": "https://a.example/", "spider": "seo", "selectors": {"title": "h1"}}
    (tmp_path / "board.json").write_text(json.dumps(record))
    gateway.says("POST /sites", Answer(201, SITE))
    options = ("--spider", "jobs", "--every", "30", "--rate-limit", "30/m", "--min-pause", "1", "--browser")
    more = ("-s", "title=h2 > a::text", "--payload", '{"first_page": 0}')
    done = run("sites", "add", "board", "--file", "board.json", *options, *more, **HERE)
    assert (done.returncode, done.stdout) == (0, "board: next run 2027-06-01 11:00:00 +0200\n"), done.stderr
    assert gateway.asked("/sites")[0].body == {
        "name": "board",
        "search_url": "https://a.example/",
        "spider": "jobs",
        "selectors": {"title": "h2 > a::text"},
        "interval_minutes": 30,
        "rate_limit": "30/m",
        "min_pause_seconds": 1.0,
        "requires_playwright": True,
        "payload": {"first_page": 0},
    }


def test_a_site_is_changed_disabled_shown_and_deleted(gateway: StandIn, run: Run) -> None:
    gateway.says("PATCH /sites/board", Answer(200, {**SITE, "next_run_at": None}))
    gateway.says("GET /sites/board", Answer(200, SITE))
    gateway.says("DELETE /sites/board", Answer(409, {"error": {"message": "2 targets name it"}}), Answer(204))
    assert run("sites", "edit", "board", "--every", "5").stdout == "board: not run by itself\n"
    run("sites", "disable", "board")
    bodies = [request.body for request in gateway.asked("/sites/board")]
    assert bodies == [{"interval_minutes": 5}, {"enabled": False}]
    assert json.loads(run("sites", "show", "board").stdout) == SITE
    refused = run("sites", "delete", "board")
    assert (refused.returncode, refused.stderr) == (2, "error: 2 targets name it\n")
    assert run("sites", "delete", "board", "--force").stdout == "board: deleted\n"
    assert gateway.asked("/sites/board")[-1].query == "force=true"


def test_what_cannot_be_read_is_refused_before_anything_is_asked(gateway: StandIn, run: Run) -> None:
    for options in (("--file", "no.json"), ("-s", "title")):
        done = run("sites", "add", "board", *options)
        assert (done.returncode, done.stderr.startswith("error: ")) == (2, True)
    assert run("targets", "edit", "7").returncode == 2
    assert not gateway.requests


def test_targets_are_made_listed_changed_and_deleted(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /targets", Answer(201, {**TARGET, "next_run": "2027-06-01T09:00:00.000Z"}))
    gateway.says("GET /targets", Answer(200, {"targets": [TARGET], "next": None}))
    gateway.says("GET /targets/7", Answer(200, TARGET))
    gateway.says("PATCH /targets/7", Answer(200, TARGET))
    gateway.says("DELETE /targets/7", Answer(204))
    options = ("-k", "c++", "-l", "Paris", "--frequency", "30", "--results", "9", "--remote")
    done = run("targets", "add", "board", *options, **HERE)
    assert done.stdout == "target 7 of board: next run 2027-06-01 11:00:00 +0200\n", done.stderr
    assert gateway.asked("/targets")[0].body == {
        "site": "board",
        "keywords": "c++",
        "location": "Paris",
        "frequency": 30,
        "results_wanted": 9,
        "is_remote": True,
    }
    listed = run("targets", "list", "--site", "board")
    assert "c++ [senior]" in listed.stdout
    assert "30m" in listed.stdout
    run("targets", "edit", "7", "--frequency", "@daily", "--disable")
    assert gateway.asked("/targets/7")[0].body == {"frequency": "@daily", "enabled": False}
    assert json.loads(run("targets", "show", "7").stdout) == TARGET
    assert run("targets", "delete", "7").stdout == "target 7: deleted\n"
