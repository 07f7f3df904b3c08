"""What all groups of commands have in common."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from typing import Any

import pytest
from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn
from unit.gateway.cli.test_commands import RECEIPT
from unit.gateway.cli.test_datasets import DATASET
from unit.gateway.cli.test_nodes import UP
from unit.gateway.cli.test_schedules import SCHEDULE
from unit.gateway.cli.test_sites import SITE, TARGET

from gateway.cli import options

OTHER = f"5f0c{JOB[4:][::-1]}"
SUMMARY: dict[str, Any] = {
    "job_id": JOB,
    "status": "running",
    "spider": "seo",
    "start_urls": ["https://example.com"],
    "start_urls_count": 1,
    "completed_pages": 12,
    "items_count": 11,
    "errors_count": 1,
    "project": "default",
    "created_at": "2026-01-01T00:00:00.000Z",
    "started_at": None,
    "finished_at": None,
}
SPIDER = {
    "project": "shop", "version": "1.9", "latest": True, "name": "offers", "description": "Offers.",
    "allowed_domains": [], "own_start": False, "needs_urls": True, "params_schema": None,
}  # fmt: skip
LETTER = {
    "id": JOB,
    "project": "default",
    "spider": "seo",
    "site": None,
    "message": None,
    "created_at": "2026-01-01T00:00:00.000Z",
}
PROJECT = {"name": "shop", "latest": "1.9", "previous": None, "versions": ["1.9", "1.10"]}
ENTRY = {
    "id": "e1", "at": "2027-06-01T09:00:00.000Z", "method": "POST", "route": "/jobs/{job_id}/cancel", "status": 200,
    "user_id": "me", "key_id": None, "resources": {"job_id": JOB}, "address": "127.0.0.1", "count": None,
}  # fmt: skip
#: The group → the address of its list, and an answer.
LISTS: dict[str, tuple[str, Any]] = {
    "jobs": ("/jobs", {"jobs": [SUMMARY], "next": None, "searched_to": None}),
    "schedules": ("/schedules", {"schedules": [SCHEDULE], "next": None}),
    "datasets": ("/datasets", {"datasets": [DATASET], "next": None}),
    "sites": ("/sites", {"sites": [SITE], "next": None}),
    "targets": ("/targets", {"targets": [TARGET], "next": None}),
    "nodes": ("/nodes", {"nodes": [UP], "missing": []}),
    "projects": ("/projects", {"projects": [PROJECT]}),
    "spiders": ("/spiders", {"spiders": [SPIDER], "projects": [PROJECT]}),
    "dead": ("/dead-letters", {"dead_letters": [LETTER], "next": None}),
    "audit": ("/audit", {"entries": [ENTRY], "next": None}),
}


@pytest.mark.parametrize("group", LISTS)
def test_every_list_is_shown_as_a_table_and_on_request_as_the_gateway_gave_it(
    gateway: StandIn, run: Run, group: str
) -> None:
    path, answer = LISTS[group]
    gateway.says(f"GET {path}", Answer(200, answer))
    table = run(group)
    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.splitlines()[0].split()[0].isupper()
    document = run(group, "--json")
    assert (document.returncode, json.loads(document.stdout)) == (0, answer), document.stderr


@pytest.mark.parametrize("group", LISTS)
def test_in_place_of_an_empty_table_there_is_advice(gateway: StandIn, run: Run, group: str) -> None:
    path, answer = LISTS[group]
    gateway.says(
        f"GET {path}", Answer(200, {name: [] if isinstance(one, list) else one for name, one in answer.items()})
    )
    done = run(group)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("no ")


def test_that_nothing_matches_is_another_thing_than_that_there_is_nothing(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [], "next": None}))
    assert run("jobs").stderr.startswith("no jobs: `")
    for filters in (("--status", "error"), ("--project", "shop"), ("--since", "2h")):
        assert run("jobs", *filters).stderr == "no jobs match\n"
    assert "'2x' is not a time such as 2h, " in " ".join(run("jobs", "--since", "2x").stderr.split())


@pytest.mark.parametrize(("now", "since", "begins"), [
    ("2027-06-15T09:00:00Z", "today", "2027-06-15T00:00:00+02:00"),
    ("2027-06-14T22:30:00Z", "Yesterday", "2027-06-14T00:00:00+02:00"),
    # the clocks went forward at two
    ("2027-03-28T09:00:00Z", "today", "2027-03-28T00:00:00+01:00"),
    ("2027-06-15T07:00:00Z", "last-night", "2027-06-14T18:00:00+02:00"),
    ("2027-06-15T07:00:00Z", "yesterday 9:30", "2027-06-14T09:30:00+02:00"),
    ("2027-06-15T07:00:00Z", "today 07:15", "2027-06-15T07:15:00+02:00"),
    ("2027-06-15T07:00:00Z", "08:00", "2027-06-15T08:00:00+02:00"),
    ("2027-06-15T07:00:00Z", "18:00", "2027-06-14T18:00:00+02:00"),
])  # fmt: skip
def test_days_and_times_of_a_day_are_by_this_machines_clock(
    monkeypatch: pytest.MonkeyPatch, now: str, since: str, begins: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    monkeypatch.setattr(options, "utc_now", lambda: datetime.fromisoformat(now))
    try:
        assert options.read_moment(since, "--since") == begins
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("group", LISTS)
def test_no_table_is_wider_than_the_terminal(gateway: StandIn, run: Run, group: str) -> None:
    path, answer = LISTS[group]
    gateway.says(f"GET {path}", Answer(200, answer))
    for columns in (60, 80):
        lines = run(group, COLUMNS=str(columns)).stdout.splitlines()
        assert len(lines) == 2
        assert max(map(len, lines)) <= columns


def test_pages_that_are_read_to_the_end_are_one_document(gateway: StandIn, run: Run) -> None:
    other = {**SITE, "name": "other"}
    pages = ({"sites": [SITE], "next": "board"}, {"sites": [other], "next": None})
    gateway.says("GET /sites", *(Answer(200, page) for page in pages))
    assert json.loads(run("sites", "list", "--json").stdout) == {"sites": [SITE, other], "next": None}


@pytest.mark.parametrize(
    ("command", "route", "answer"),
    [
        (("jobs", "show", JOB), f"GET /jobs/{JOB}", {"job_id": JOB}),
        (("cancel", JOB), f"POST /jobs/{JOB}/cancel", {"status": "cancelled"}),
        (("pause", JOB), f"POST /jobs/{JOB}/pause", {"status": "paused"}),
        (("resume", JOB), f"POST /jobs/{JOB}/resume", {"status": "pending"}),
        (("jobs", "retry", JOB), f"POST /jobs/{JOB}/retry", RECEIPT),
        (("requeue", JOB), f"POST /dead-letters/{JOB}/requeue", RECEIPT),
        (("crawl", "https://a.example", "--no-follow"), "POST /crawl", RECEIPT),
        (("schedules", "pause", JOB), f"POST /schedules/{JOB}/pause", SCHEDULE),
        (("schedules", "run", JOB), f"POST /schedules/{JOB}/run", RECEIPT),
        (("schedules", "next", JOB), f"GET /schedules/{JOB}/next", {"timezone": "UTC", "runs": []}),
        (("sites", "add", "board"), "POST /sites", SITE),
        (("sites", "enable", "board"), "PATCH /sites/board", SITE),
        (("targets", "edit", "7", "-k", "c"), "PATCH /targets/7", TARGET),
        (("nodes", "drain", "n1"), "POST /nodes/n1/drain", UP),
        (("projects", "show", "shop"), "GET /projects/shop/versions", {"project": "shop", "versions": []}),
        (("projects", "rollback", "shop"), "POST /projects/shop/rollback", PROJECT),
        (("undeploy", "shop", "1.9"), "DELETE /projects/shop/versions/1.9", {"nodes": [], "version": "1.9"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_answer_is_printed_as_json_on_request(
    gateway: StandIn, run: Run, command: tuple[str, ...], route: str, answer: Any
) -> None:
    gateway.says(route, Answer(200, answer))
    done = run(*command, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, answer), done.stderr


def test_a_crawl_that_begins_anew_later_is_paused_only_on_request(gateway: StandIn, run: Run) -> None:
    gateway.says(f"POST /jobs/{JOB}/pause", Answer(200, {"status": "running"}))
    assert run("pause", JOB).stdout == f"{JOB}: pause asked for; it is running\n"
    run("pause", JOB, "--begin-anew")
    asked = gateway.asked(f"/jobs/{JOB}/pause")
    assert [request.query for request in asked] == ["begin_anew=False", "begin_anew=True"]


def test_an_empty_answer_is_null_and_an_error_prints_no_document(gateway: StandIn, run: Run) -> None:
    gateway.says("DELETE /sites/board", Answer(204), Answer(404, {"error": {"message": "there is no site 'board'"}}))
    assert run("sites", "delete", "board", "--json").stdout == "null\n"
    refused = run("sites", "delete", "board", "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: there is no site 'board'\n"


def test_json_holds_nothing_that_a_terminal_obeys_and_stays_what_it_was(gateway: StandIn, run: Run) -> None:
    hostile = {"text": "a\x1b]52;c;YQ==\x07\x9b31m\u202e\ud800é"}
    gateway.says("GET /sites/board", Answer(200, hostile))
    done = run("sites", "show", "board")
    assert json.loads(done.stdout) == hostile
    assert r'"a\u001b]52;c;YQ==\u0007\u009b31m\u202e\ud800é"' in done.stdout


# --- ids by their beginnings


def _has(gateway: StandIn, *jobs: str) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [{**SUMMARY, "job_id": job} for job in jobs], "next": None}))
    gateway.says("GET /schedules", Answer(200, {"schedules": [], "next": None}))


def test_the_beginning_of_an_id_is_enough(gateway: StandIn, run: Run) -> None:
    _has(gateway, JOB, OTHER)
    gateway.says(f"POST /jobs/{JOB}/cancel", Answer(200, {"status": "cancelled"}))
    assert run("cancel", JOB[:5]).stdout == f"{JOB}: cancelled\n"
    assert gateway.asked("/jobs")[0].query == f"id_prefix={JOB[:5]}&limit=200"
    run("cancel", JOB[:3])
    assert len(gateway.asked("/jobs")) == 1


@pytest.mark.parametrize("command", [("cancel",), ("jobs", "delete"), ("logs",), ("items",)], ids=" ".join)
def test_of_several_that_begin_so_none_is_taken_and_all_are_named(
    gateway: StandIn, run: Run, command: tuple[str, ...]
) -> None:
    _has(gateway, JOB, OTHER)
    done = run(*command, "5f0c")
    assert (done.returncode, done.stdout) == (2, "")
    assert JOB in done.stderr
    assert OTHER in done.stderr
    assert {request.path for request in gateway.requests} == {"/jobs", "/schedules"}


def test_where_none_begins_so_it_says_that_there_is_none(gateway: StandIn, run: Run) -> None:
    _has(gateway, OTHER)
    done = run("jobs", "show", "5f0e")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no job begins with '5f0e': ")
    assert not gateway.asked("/jobs/5f0e")


def test_an_id_is_looked_for_on_many_pages_but_not_for_ever(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [SUMMARY], "next": "1-2"}))
    done = run("cancel", JOB[:5])
    assert (done.returncode, "give the id in full" in done.stderr) == (2, True)


def test_a_schedule_is_found_by_the_beginning_of_its_id_where_a_job_is_asked_for(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [], "next": None}))
    gateway.says("GET /schedules", Answer(200, {"schedules": [SCHEDULE], "next": None}))
    gateway.says(f"POST /jobs/{JOB}/cancel", Answer(200, {"status": "cancelled"}))
    assert run("cancel", JOB[:4]).returncode == 0
    assert run("jobs", "--schedule", JOB[:4]).returncode == 0
    assert gateway.requests[-1].query == f"schedule_id={JOB}&limit=20"


def test_a_target_is_named_by_its_number_or_the_beginning_of_its_id(gateway: StandIn, run: Run) -> None:
    target = {**TARGET, "id": "7a" * 16}
    gateway.says("GET /targets", Answer(200, {"targets": [target], "next": None}))
    gateway.says("GET /targets/7", Answer(200, target))
    gateway.says(f"GET /targets/{target['id']}", Answer(200, target))
    assert run("targets", "show", "7").returncode == 0
    assert not gateway.asked("/targets")
    assert run("targets", "show", "7a").returncode == 0


def test_a_name_is_no_beginning_of_another(gateway: StandIn, run: Run) -> None:
    gateway.says("DELETE /sites/boa", Answer(404, {"error": {"message": "there is no site 'boa'"}}))
    assert run("sites", "delete", "boa").returncode == 2
    assert not gateway.asked("/sites")


def test_one_without_an_address_is_shown_out_of_the_list(gateway: StandIn, run: Run) -> None:
    path, answer = LISTS["nodes"]
    gateway.says(f"GET {path}", Answer(200, answer))
    assert json.loads(run("nodes", "show", "n1").stdout) == answer["nodes"][0]
    done = run("nodes", "show", "other")
    assert (done.returncode, done.stderr) == (2, "error: there is no node 'other'\n")


def test_the_latest_version_is_marked_and_another_is_made_it_by_one_command(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /projects", Answer(200, {"projects": [PROJECT]}))
    assert run("projects").stdout.splitlines()[1].split() == ["shop", "1.9", "1.9*", "1.10"]
    gateway.says("POST /projects/shop/rollback", Answer(200, PROJECT))
    assert run("projects", "rollback", "shop").stdout == "shop: 1.9 is the latest\n"
    gateway.says("POST /projects/shop/versions/1.9/activate", Answer(200, PROJECT))
    assert run("projects", "activate", "shop", "1.9").stdout == "shop: 1.9 is the latest\n"


def test_a_dead_letter_is_taken_off_the_list(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /dead-letters", Answer(200, {"dead_letters": [LETTER], "next": None}))
    gateway.says(f"DELETE /dead-letters/{JOB}", Answer(204))
    assert run("dead", "delete", JOB[:6]).stdout == f"{JOB}: deleted\n"


# --- shells and pipes


def _completed(run: Run, *words: str) -> list[str]:
    line = " ".join(("discoverybot", *words))
    asked = {"_DISCOVERYBOT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    done = run(**asked)
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_commands_ids_and_names(gateway: StandIn, run: Run) -> None:
    _has(gateway, JOB, OTHER)
    gateway.says("GET /sites", Answer(200, {"sites": [SITE, {**SITE, "name": "\x1b[2J"}], "next": None}))
    assert {"list", "show", "cancel"} <= set(_completed(run, "jobs", ""))
    assert _completed(run, "jobs", "show", JOB[:6]) == [JOB]
    assert _completed(run, "sites", "edit", "") == ["board"]
    assert _completed(run, "scrape", "b") == ["board"]


def test_a_shell_completes_spiders_statuses_and_projects(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /spiders", Answer(200, {"spiders": [SPIDER, {**SPIDER, "version": "1.8"}]}))
    gateway.says("GET /projects", Answer(200, {"projects": [PROJECT]}))
    assert _completed(run, "crawl", "of") == ["offers"]
    assert _completed(run, "crawl", "--spider", "of") == ["offers"]
    assert _completed(run, "jobs", "list", "--status", "c") == ["cancelled"]
    assert _completed(run, "jobs", "list", "--project", "s") == ["shop"]
    assert _completed(run, "env", "set", "A", "--project", "s") == ["shop"]


def test_a_shell_is_offered_nothing_where_no_gateway_answers(run: Run) -> None:
    assert _completed(run, "jobs", "show", "--url", "http://127.0.0.1:1", "") == []


def test_the_script_for_a_shell_is_shown() -> None:
    # without it typer looks for the shell that has started it; no fork, whose commands were made before
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "gateway.cli.main", "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, check=False, env=env, text=True)
    assert (done.returncode, "_DISCOVERYBOT_COMPLETE" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    "command", [("jobs",), ("jobs", "--json"), ("items", JOB), ("logs", JOB), ("--help",)], ids=" ".join
)
def test_a_reader_that_has_seen_enough_is_no_error(gateway: StandIn, command: tuple[str, ...]) -> None:
    line = {"ts": "2027-06-01T09:00:01.250Z", "level": "INFO", "logger": "seo", "msg": "x" * 80}
    gateway.says("GET /jobs", Answer(200, {"jobs": [SUMMARY] * 1500, "next": None}))  # more than a pipe takes
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b'{"a": 1}\n' * 200_000))
    gateway.says(f"GET /jobs/{JOB}/status", Answer(200, {}))
    gateway.says(f"GET /jobs/{JOB}/logs", Answer(200, f"{json.dumps(line)}\n".encode() * 3000))
    where = () if command == ("--help",) else ("--url", gateway.url)
    module = [sys.executable, "-m", "gateway.cli.main"]
    with subprocess.Popen([*module, *command, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        if where:
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_waiting_jobs_are_listed_with_their_place_and_what_they_wait_for(gateway: StandIn, run: Run) -> None:
    path, answer = LISTS["jobs"]
    waiting = {**answer["jobs"][0], "status": "pending", "queue_position": 8, "waiting_reason": "capacity"}
    gateway.says(f"GET {path}", Answer(200, {**answer, "jobs": [waiting]}))
    head, line = run("jobs", "--status", "pending").stdout.splitlines()[:2]
    assert "PLACE  WAITS FOR" in head
    assert "8  a free slot" in line
