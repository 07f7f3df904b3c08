from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from unit.gateway.cli.conftest import END, JOB, Answer, Run, StandIn, free_ports, log, stream

RECEIPT = {"job_id": JOB, "scheduled": False, "cached": False}
LOGS = f"GET /jobs/{JOB}/logs"


def _crawls(gateway: StandIn, **end: Any) -> None:
    gateway.says("POST /crawl", Answer(200, RECEIPT))
    events = (("log", "1-10", log("hello")), ("end", "1-11", {**END, **end}))
    gateway.says(LOGS, stream(*events))


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("partial", 3)])
def test_the_exit_code_is_the_outcome(gateway: StandIn, run: Run, status: str, code: int) -> None:
    _crawls(gateway, status=status, message="why")
    done = run("crawl", "https://example.com")
    assert done.returncode == code
    assert "INFO     seo hello" in done.stdout
    assert f"{status}: 3 pages, 2 items, 0 errors\nwhy" in done.stdout


def test_a_crawl_asks_for_what_the_options_say(gateway: StandIn, run: Run) -> None:
    _crawls(gateway)
    schema = {"properties": {"deep": {"type": "boolean"}, "text": {"type": "string"}}}
    gateway.says(
        "GET /spiders",
        Answer(200, {"spiders": [{"project": "default", "name": "seo", "latest": True, "params_schema": schema}]}),
    )
    options = ("--depth", "2", "--max-pages", "9", "--max-items", "5", "--user", "me", "--ignore-cache", "--render")
    limits = ("--timeout", "60", "--max-retries", "0", "--priority", "-1", "--tag", "nightly", "--tag", "eu")
    expect = ("--expect", '{"fields": {"title": 0.9}, "min_items": 1}', "--min-items", "3")
    params = ("--params", '{"text": "0", "list": [1]}', "-p", "deep=true", "-p", "text=1")
    done = run("crawl", "https://a.example", "https://b.example", *options, *limits, *expect, *params)
    assert done.returncode == 0, done.stderr
    assert gateway.asked("/crawl")[0].body == {
        "user_id": "me",
        "spider": "seo",
        "start_urls": ["https://a.example", "https://b.example"],
        "depth": 2,
        "max_pages": 9,
        "max_items": 5,
        "timeout": 60,
        "max_retries": 0,
        "priority": -1,
        "tags": ["nightly", "eu"],
        "expect": {"fields": {"title": 0.9}, "min_items": 3},
        "ignore_cache": True,
        "params": {"text": "1", "list": [1], "deep": True, "render": True},
    }
    assert gateway.asked("/spiders")[0].query == "name=seo"


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--project", "quotesbot", "toscrape-css"), {"project": "quotesbot", "spider": "toscrape-css"}),
        (("offers", "a.example/x"), {"spider": "offers", "start_urls": ["https://a.example/x"]}),
        (("a.example", "-s", "seo"), {"spider": "seo", "start_urls": ["https://a.example"]}),
        (("a.example", "b.example"), {"spider": "seo", "start_urls": ["https://a.example", "https://b.example"]}),
        (("localhost:8000/x",), {"spider": "seo", "start_urls": ["http://localhost:8000/x"]}),
        (
            ("books.example.com", "https://a.example"),
            {"spider": "books.example.com", "start_urls": ["https://a.example"]},
        ),
        (("--spider", "theirs"), {"spider": "theirs"}),
        (("https://a.example",), {"spider": "seo", "start_urls": ["https://a.example"]}),
    ],
)
def test_a_spider_is_named_before_the_urls_if_it_needs_any(
    gateway: StandIn, run: Run, words: tuple[str, ...], asked: dict[str, Any]
) -> None:
    _crawls(gateway)
    known = {"project": "default", "name": "books.example.com", "latest": True}
    gateway.says("GET /spiders", Answer(200, {"spiders": [known] if "books.example.com" in words else []}))
    assert run("crawl", *words, "--no-follow").returncode == 0
    assert run("crawl", *words, "--no-follow", DISCOVERYBOT_KEY="db_1_2").returncode == 0
    first, with_key = (request.body for request in gateway.asked("/crawl"))
    assert first.pop("user_id")
    assert first == with_key == asked


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name a spider, or where to start"),
        (("https://a.example", "offers", "-s", "seo"), "'offers' is no URL"),
        (("https://a.example", "offers"), "A spider's name comes before the URLs"),
    ],
)
def test_what_names_neither_spider_nor_url_is_refused_before_anything_is_sent(
    gateway: StandIn, run: Run, words: tuple[str, ...], why: str
) -> None:
    done = run("crawl", *words)
    assert done.returncode == 2
    assert why in " ".join(done.stderr.split())
    assert not gateway.requests


def test_params_of_a_spider_without_a_schema_stay_text(gateway: StandIn, run: Run) -> None:
    _crawls(gateway)
    gateway.says(
        "GET /spiders",
        Answer(200, {"spiders": [{"project": "shop", "name": "theirs", "latest": True, "params_schema": None}]}),
    )
    which = ("--project", "shop", "--version", "2", "--spider", "theirs")
    run("crawl", "https://a.example", *which, "--param", "pages=5")
    body = gateway.asked("/crawl")[0].body
    assert (body["params"], body["project"], body["version"]) == ({"pages": "5"}, "shop", "2")
    assert gateway.asked("/spiders")[0].query == "project=shop&version=2&name=theirs"


def test_parameters_are_read_from_a_file(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    _crawls(gateway)
    (tmp_path / "rules.json").write_text('{"fields": {"price": ".price"}}')
    assert run("crawl", "https://a.example", "--params", "@rules.json", "--no-follow").returncode == 0
    assert gateway.asked("/crawl")[0].body["params"] == {"fields": {"price": ".price"}}


def test_without_following_the_id_is_all_that_is_said(gateway: StandIn, run: Run) -> None:
    _crawls(gateway)
    done = run("crawl", "https://example.com", "--no-follow")
    assert (done.returncode, done.stdout) == (0, f"{JOB}\n")


def test_items_go_to_the_file_in_the_format_of_its_name(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    _crawls(gateway)
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b"url\nhttps://example.com\n", content_type="text/csv"))
    done = run("crawl", "https://example.com", "--output", "pages.csv")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pages.csv").read_text() == "url\nhttps://example.com\n"
    assert gateway.asked(f"/jobs/{JOB}/items")[0].query == "format=csv&bom=true"


def test_items_on_stdout_stand_alone(gateway: StandIn, run: Run) -> None:
    _crawls(gateway)
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b'{"a": 1}\n'))
    done = run("crawl", "https://example.com", "-o", "-")
    assert done.stdout == '{"a": 1}\n'
    assert "hello" in done.stderr


def test_a_broken_download_leaves_no_file(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b'{"a": 1}\n', broken=True))
    assert run("items", JOB, "-o", "x.jsonl").returncode == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("crawl",),
        ("crawl", "u", "-o", "x.pdf"),
        ("crawl", "u", "-o", "nowhere/x.csv"),
        ("crawl", "u", "-o", "folder.csv"),
        ("crawl", "u", "--no-follow", "-o", "x.csv"),
        ("crawl", "u", "--level", "foo"),
        ("crawl", "u", "--params", "{"),
        ("crawl", "u", "--params", "[]"),
        ("crawl", "u", "--params", "@nowhere.json"),
        ("logs", JOB, "--level", "foo"),
        ("items", JOB, "-o", "nowhere/x.csv"),
        ("fly",),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_refused_before_anything_is_asked(
    gateway: StandIn, run: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert run(*arguments).returncode == 2
    assert not gateway.requests


@pytest.mark.parametrize(("status", "code"), [("finished", 1), ("partial", 3), ("cancelled", 4)])
def test_items_that_cannot_be_saved_cost_no_crawl_and_can_be_fetched_later(
    gateway: StandIn, run: Run, status: str, code: int
) -> None:
    _crawls(gateway, status=status)
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b"url\n", broken=True))
    done = run("crawl", "https://example.com", "-o", "my pages.csv")
    assert done.returncode == code
    assert f"{status}: 3 pages" in done.stdout
    assert f"discoverybot items {JOB} -o 'my pages.csv'" in done.stderr


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").stdout == f"discoverybot {version('discoverybot')}\n"


def test_hints_name_the_command_where_it_is(run: Run, tmp_path: Path) -> None:
    installed = Path(sys.executable).with_name("discoverybot")
    by_path = run("jobs", "--url", "http://127.0.0.1:1", PATH=str(tmp_path))
    by_name = run("jobs", "--url", "http://127.0.0.1:1", PATH=str(installed.parent))
    assert f"`{installed} up`" in by_path.stderr
    assert "`discoverybot up`" in by_name.stderr


def test_hints_name_what_uv_was_told() -> None:
    installed = Path(sys.executable).with_name("discoverybot")
    by_uv = ("run", "--no-project", "--offline", "--python", sys.executable, str(installed))
    asked = (str(installed.with_name("uv")), *by_uv, "jobs", "--url", "http://127.0.0.1:1")
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert f"`uv {' '.join(by_uv)} up`" in done.stderr


def test_one_of_a_thing_is_no_plural(gateway: StandIn, run: Run) -> None:
    _crawls(gateway, completed_pages=1, items_count=1, errors_count=1)
    assert "finished: 1 page, 1 item, 1 error\n" in run("crawl", "https://example.com").stdout


@pytest.mark.parametrize(
    ("field", "options", "named"),
    [
        ("max_pages", ("--max-pages", "0"), "--max-pages"),
        ("start_urls.0", (), "URL"),
        ("spider", (), "SPIDER"),
        ("spider", ("--spider", "seo"), "--spider"),
        ("interval", ("--every", "1s"), "--every"),
        ("interval", ("--cron", "x"), "--cron"),
        ("ends_at", (), "--until"),
        ("params.deep", ("-p", "deep=1"), "--param deep"),
        ("fetch.proxy", ("--proxy", "ftp://x"), "--proxy"),
        ("fetch.headers.Host", ("--header", "Host: x"), "--header Host"),
        ("user_id", (), "--user"),
        ("unheard_of", (), "unheard_of"),
    ],
)
def test_a_refusal_names_the_option(
    gateway: StandIn, run: Run, field: str, options: tuple[str, ...], named: str
) -> None:
    error = {"code": "invalid_request", "message": f"{field}: is wrong", "detail": {"field": field}}
    gateway.says("GET /spiders", Answer(200, {"spiders": []}))
    gateway.says("POST /crawl", Answer(422, {"error": error, "request_id": "1"}))
    done = run("crawl", "https://a.example", *options)
    assert (done.returncode, done.stderr) == (2, f"error: {named}: is wrong\n")


def test_a_missing_gateway_is_said_in_one_word_and_how_to_start_it(run: Run) -> None:
    done = run("jobs", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no gateway at http://127.0.0.1:1: ")
    assert "discoverybot up" in done.stderr


def test_a_lost_answer_is_asked_for_again_under_the_same_key(gateway: StandIn, run: Run) -> None:
    _crawls(gateway)
    gateway.says("POST /crawl", Answer(200, RECEIPT, broken=True), Answer(200, RECEIPT))
    assert run("crawl", "https://example.com", "--no-follow").returncode == 0
    assert len({request.headers["idempotency-key"] for request in gateway.asked("/crawl")}) == 1


def test_jobs_are_listed(gateway: StandIn, run: Run) -> None:
    job = {
        "job_id": JOB, "status": "running", "spider": "seo", "start_urls": ["https://example.com"],
        "start_urls_count": 3, "completed_pages": 12, "items_count": 11, "errors_count": 1, "project": "shop",
        "created_at": "2026-01-01T00:00:00.000Z", "started_at": "2026-01-01T00:00:01.000Z",
        "finished_at": "2026-01-01T00:03:06.500Z",
    }  # fmt: skip
    gateway.says("GET /jobs", Answer(200, {"jobs": [job], "next": None}))
    wanted = ("--status", "running", "--status", "error", "--project", "shop", "--since", "2026-01-01T00:00Z")
    done = run("jobs", *wanted, TZ="UTC")
    assert done.returncode == 0, done.stderr
    head, line = done.stdout.splitlines()
    assert head == "JOB       STATUS   PROJECT  SPIDER  PAGES  ITEMS  ERRORS  DURATION   AGE  START"
    *columns, _, start, more = line.split()
    assert columns == [JOB[:8], "running", "shop", "seo", "12", "11", "1", "3m", "5s"]
    assert (start, more) == ("example.com", "+2")
    assert gateway.asked("/jobs")[0].query == (
        "status=running&status=error&project=shop&since=2026-01-01T00%3A00%3A00%2B00%3A00&limit=20"
    )


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_each_job_has_one_line_on_any_terminal(gateway: StandIn, run: Run, columns: int) -> None:
    job = {
        "job_id": JOB, "status": "cancelled", "spider": "a-rather-long-spider-name" * 4, "project": "project" * 9,
        "start_urls": [f"https://example.com/{'very/' * 60}"], "start_urls_count": 1, "completed_pages": 123456,
        "items_count": 123456, "errors_count": 12345, "created_at": "2026-01-01T00:00:00.000Z",
        "started_at": "2026-01-01T00:00:01.000Z", "finished_at": "2026-01-05T01:03:06.500Z",
    }  # fmt: skip
    gateway.says("GET /jobs", Answer(200, {"jobs": [job] * 3, "next": None}))
    lines = run("jobs", COLUMNS=str(columns)).stdout.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= columns
    assert all(line.startswith(f"{JOB[:8]}  cancelled  ") for line in lines[1:])
    # what is piped somewhere is not cut
    assert job["start_urls"][0].removeprefix("https://") in run("jobs", COLUMNS="").stdout


def test_a_list_of_jobs_says_how_it_goes_on_and_how_far_a_search_came(gateway: StandIn, run: Run) -> None:
    searched = {"jobs": [], "next": f"17-{JOB}", "searched_to": "2026-01-01T00:00:00.000Z"}
    gateway.says("GET /jobs", Answer(200, searched))
    done = run("jobs", "--tag", "daily", "--search", "shop", "--after", f"18-{JOB}")
    assert done.stdout.splitlines()[-1] == f"searched back to 2026-01-01T00:00:00.000Z; more: --after 17-{JOB}"
    assert gateway.asked("/jobs")[0].query == f"tag=daily&q=shop&limit=20&after=18-{JOB}"


def test_a_log_so_far_is_printed_line_by_line(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/status", Answer(200, END))
    lines = [log("boom", "ERROR"), {"level": "ERROR", "msg": "Traceback", "cont": True}]
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    gateway.says(LOGS, Answer(200, body, content_type="application/x-ndjson"))
    done = run("logs", JOB, "--level", "ERROR")
    assert done.stdout == "09:00:01.250 ERROR    seo boom\n  Traceback\n"
    assert gateway.asked(f"/jobs/{JOB}/logs")[0].query == "level=ERROR"


def test_cancelling_says_what_became_of_it(gateway: StandIn, run: Run) -> None:
    gateway.says(f"POST /jobs/{JOB}/cancel", Answer(200, {"status": "cancelled"}))
    assert run("cancel", JOB).stdout == f"{JOB}: cancelled\n"


def test_ctrl_c_stops_the_watching_and_not_the_crawl(gateway: StandIn) -> None:
    # no end ever comes: each connection closes, and is made again
    gateway.says(f"GET /jobs/{JOB}/status", Answer(200, END))
    gateway.says(LOGS, stream(("log", "1-10", log("hello"))))
    command = [sys.executable, "-m", "gateway.cli.main", "logs", "-f", JOB, "--url", gateway.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(gateway.asked(f"/jobs/{JOB}/logs")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"discoverybot cancel {JOB}" in errors
    assert not gateway.asked(f"/jobs/{JOB}/cancel")


def test_a_misspelt_setting_stops_doctor_with_its_name(run: Run) -> None:
    done = run("doctor", GATEWAY_PROT="1")
    assert done.returncode == 1
    assert "unknown setting: GATEWAY_PROT" in done.stdout


def test_a_platform_that_is_starting_is_waited_for(gateway: StandIn, run: Run) -> None:
    _crawls(gateway)
    starting = Answer(503, {"error": {"code": "starting", "message": "no node yet", "detail": None}})
    gateway.says("POST /crawl", starting, Answer(200, RECEIPT))
    assert run("crawl", "https://example.com").returncode == 0
    assert len({request.headers["idempotency-key"] for request in gateway.asked("/crawl")}) == 1
    gateway.says("POST /crawl", Answer(503, {"error": {"code": "unavailable", "message": "away", "detail": None}}))
    assert run("crawl", "https://example.com").returncode == 1


def test_doctor_shows_what_the_gateway_finds_broken_and_how_to_mend_it(gateway: StandIn, run: Run) -> None:
    checks = {
        "mongo": {"status": "ok", "message": "answers", "todo": None},
        "beat": {"status": "down", "message": "silent for 60 s", "todo": "start a beat"},
    }
    gateway.says("GET /health", Answer(200, {"status": "degraded", "checks": checks}))
    done = run("doctor")
    assert done.returncode == 1
    assert "✗   beat        silent for 60 s\n" in done.stdout
    assert "→ start a beat\n" in done.stdout
    assert done.stdout.endswith("1 broken\n")


def test_doctor_takes_a_machine_on_which_nothing_runs_for_healthy(run: Run) -> None:
    gateway_port, scrapyd_port = free_ports()
    done = run("doctor", DISCOVERYBOT_URL="", GATEWAY_PORT=gateway_port, SCRAPYD_PORT=scrapyd_port)
    assert done.returncode == 0, done.stdout
    assert "discoverybot up" in done.stdout


@pytest.mark.parametrize("setting", ["GATEWAY_PORT", "SCRAPYD_PORT"])
def test_doctor_calls_a_port_that_somebody_else_has_broken(run: Run, setting: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as somebody:
        thread = threading.Thread(target=somebody.serve_forever, args=(0.05,))
        thread.start()
        ports = dict(zip(("GATEWAY_PORT", "SCRAPYD_PORT"), free_ports(), strict=True))
        taken = somebody.server_address[1]
        done = run("doctor", **{**ports, "DISCOVERYBOT_URL": "", setting: str(taken)})
        somebody.shutdown()
        thread.join()
    assert done.returncode == 1
    assert f"{taken} is taken\n" in done.stdout
    assert f"set {setting}={taken + 1}\n" in done.stdout
    assert done.stdout.endswith("1 broken\n")


def test_doctor_lets_a_gateway_that_runs_without_a_stack_have_its_port(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /health", Answer(200, {"status": "ok", "checks": {"mongo": {"status": "ok", "message": "up"}}}))
    scrapyd_port, _ = free_ports()
    own = {"GATEWAY_PORT": gateway.url.rpartition(":")[2], "SCRAPYD_PORT": scrapyd_port}
    done = run("doctor", DISCOVERYBOT_URL="", **own)
    assert done.returncode == 0, done.stdout


def test_doctor_says_of_a_stranger_that_it_is_no_gateway(gateway: StandIn, run: Run) -> None:
    done = run("doctor", "--url", gateway.url)
    assert done.returncode == 1
    assert f"{gateway.url} answers, but it is not a gateway\n" in done.stdout


def test_doctor_says_of_a_gateway_for_others_that_it_takes_keys(run: Run) -> None:
    done = run("doctor", GATEWAY_HOST="0.0.0.0")
    assert "0.0.0.0: others can reach the gateway, so every call takes a key" in done.stdout


#: To the clipboard (OSC 52), red (C0 and C1), back to the begin of the line, and the other way round.
_HOSTILE = "a\x1b]52;c;ZWNobw==\x07b\x1b[31m\x9b31m\r\x08c\u202ed\x7f"
_SHOWN = r"a\x1b]52;c;ZWNobw==\x07b\x1b[31m\x9b31m\r\x08c\u202ed\x7f"


def _obeyed(text: str) -> set[str]:
    """What of it a terminal would not just show, but for rich's own colours and the end of a line."""
    plain = re.sub(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r\n", "", text)
    return {letter for letter in plain if letter != "\n" and unicodedata.category(letter) in {"Cc", "Cf", "Cs"}}


@pytest.mark.parametrize("forced", [{}, {"FORCE_COLOR": "1"}], ids=["piped", "terminal"])
def test_what_a_log_holds_is_shown_and_not_obeyed(gateway: StandIn, run: Run, forced: dict[str, str]) -> None:
    line, more = {**log(_HOSTILE), "logger": _HOSTILE}, {**log(_HOSTILE), "cont": True}
    events = (("log", "1-10", line), ("log", "1-12", more), ("end", "1-20", {**END, "message": _HOSTILE}))
    gateway.says("POST /crawl", Answer(200, RECEIPT))
    gateway.says(LOGS, stream(*events))
    done = run("crawl", "https://example.com", **forced)
    assert done.stdout.count(_SHOWN) == 4
    assert not _obeyed(done.stdout + done.stderr)


def test_what_a_result_or_an_error_says_is_shown_and_not_obeyed(gateway: StandIn, run: Run) -> None:
    result = {"title": _HOSTILE, "location": {"text": _HOSTILE}}
    ended = {"run_id": "manual_1", "task_id": JOB, "status": "failed", "completed_pages": 1, "errors_count": 1}
    gateway.says("POST /jobs/scrape", Answer(200, {"data": {**ended, "message": _HOSTILE, "results": [result]}}))
    done = run("scrape", "board", "--sync")
    assert done.stdout.count(_SHOWN) == 2
    gateway.says("POST /jobs/scrape", Answer(409, {"error": {"message": _HOSTILE, "detail": None}}))
    refused = run("scrape", "board", "--sync")
    assert refused.stderr == f"error: {_SHOWN}\n"
    assert not _obeyed(done.stdout + done.stderr + refused.stdout)


def test_every_table_shows_what_it_cannot_trust(gateway: StandIn, run: Run) -> None:
    letter = {"id": JOB, "spider": _HOSTILE, "site": "s", "message": _HOSTILE, "created_at": "2027-06-01T09:00:00Z"}
    gateway.says("GET /dead-letters", Answer(200, {"dead_letters": [letter], "next": None}))
    done = run("dead")
    assert done.stdout.count(_SHOWN) == 2
    assert not _obeyed(done.stdout)


@pytest.mark.parametrize(
    ("item_format", "sent", "seen"),
    [
        ("jsonl", '{"t": "\\u001b]52\u009b31m\u202e"}\n', '{"t": "\\u001b]52\\u009b31m\\u202e"}\n'),
        ("csv", "t\r\n\x1b]52;c;YQ==\x07 é\r\n", "t\n\\x1b]52;c;YQ==\\x07 é\n"),
    ],
    ids=["jsonl", "csv"],
)
def test_items_on_a_terminal_are_shown_and_not_obeyed(
    gateway: StandIn, item_format: str, sent: str, seen: str
) -> None:
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, sent.encode(), content_type="text/plain"))
    command = ("items", JOB, "--format", item_format, "--url", gateway.url)
    assert _on_a_terminal(*command) == seen
    piped = subprocess.run([sys.executable, "-m", "gateway.cli.main", *command], capture_output=True, check=True)
    assert piped.stdout == sent.encode()


def _on_a_terminal(*arguments: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "gateway.cli.main", *arguments], stdout=theirs) as process:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # so Linux says that nobody has the other end any more
            while piece := os.read(ours, 4096):
                seen += piece
        os.close(ours)
    assert process.returncode == 0
    return seen.decode().replace("\r\n", "\n")


def test_formulas_are_escaped_unless_somebody_wants_the_text_as_it_is(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b"t\r\n", content_type="text/csv"))
    for flags in ([], ["--escape-formulas"], ["--no-escape-formulas"]):
        run("items", JOB, "--format", "csv", *flags)
    asked = [one.query for one in gateway.asked(f"/jobs/{JOB}/items")]
    assert asked == ["format=csv", "format=csv", "format=csv&escape_formulas=false"]


# --- what a crawl would be, and parts of what it was

PREVIEW = {
    "accepted": True, "problems": [], "schedule": None, "runs": [],
    "answer": {"cached": False, "scheduled": False, "job_id": None, "status": None, "reason": "none is the same"},
    "place": {"node": None, "waiting_reason": "capacity", "queue_position": 3},
    "crawl": {"spider": "seo", "project": "default", "start_urls": ["https://a.example", "x"], "max_pages": 9},
}  # fmt: skip


def test_a_dry_run_asks_for_nothing(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /spiders", Answer(200, {"spiders": []}))
    gateway.says("POST /crawl/preview", Answer(200, PREVIEW))
    done = run("crawl", "a.example", "--dry-run", "--max-pages", "9", "--user", "me", "--project", "default")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "crawl     spider seo of project default, from https://a.example +1",
        "limits    Max pages: 9",
        "answer    a new one: none is the same",
        "starts    waiting for a free slot, place 3 in the queue",
    ]
    body = {
        "spider": "seo",
        "start_urls": ["https://a.example"],
        "max_pages": 9,
        "user_id": "me",
        "project": "default",
    }
    assert gateway.requests[-1].body == body
    sent = {
        "fetch": {"headers": {"X-A": "***"}, "proxy": "http://proxy:8080"},
        "webhooks": ["https://b.example/hook"],
    }
    gateway.says("POST /crawl/preview", Answer(200, {**PREVIEW, "crawl": PREVIEW["crawl"] | sent}))
    for line in ("headers   X-A: ***", "proxy     http://proxy:8080", "webhook   https://b.example/hook"):
        assert f"\n{line}\n" in run("crawl", "a.example", "--dry-run").stdout
    problem = {"status": 403, "code": "forbidden_address", "field": None, "message": "10.0.0.1 is not public"}
    refusal = {"accepted": False, "problems": [problem], "answer": None, "place": None, "crawl": None, "runs": []}
    gateway.says("POST /crawl/preview", Answer(200, refusal))
    refused = run("crawl", "http://10.0.0.1", "--dry-run")
    assert (refused.returncode, refused.stderr) == (2, "refused: 10.0.0.1 is not public\n")
    assert json.loads(run("crawl", "http://10.0.0.1", "--dry-run", "--json").stdout) == refusal


def test_a_crawl_has_headers_a_proxy_and_a_webhook(gateway: StandIn, run: Run) -> None:
    _crawls(gateway)
    fetch = ("--header", "Authorization: Bearer a:b", "-H", "X-Empty:", "--proxy", "http://u:p@proxy:8080")
    run("crawl", "https://a.example", *fetch, "--webhook", "https://b.example/hook", "--no-follow")
    body = gateway.asked("/crawl")[0].body
    assert body["fetch"] == {
        "headers": {"Authorization": "Bearer a:b", "X-Empty": ""},
        "proxy": "http://u:p@proxy:8080",
    }
    assert body["webhook_url"] == "https://b.example/hook"
    refused = run("crawl", "https://a.example", "--header", "secret")
    assert refused.returncode == 2
    assert "--header: 'secret' is not of the form 'Name: value'" in refused.stderr


def test_some_items_and_some_of_their_fields(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/items", Answer(200, b'{"a": 1}\n'))
    assert run("items", JOB, "--limit", "5", "--fields", "a,b.c", "--search", "x").stdout == '{"a": 1}\n'
    assert gateway.requests[-1].query == "limit=5&fields=a%2Cb.c&q=x&format=jsonl"


def test_the_last_lines_of_a_log(gateway: StandIn, run: Run) -> None:
    lines = [{"id": f"1-{place}", "start": place - 9, **log(text)} for place, text in ((90, "one"), (120, "two"))]
    gateway.says(f"GET /jobs/{JOB}/status", Answer(200, {}))
    gateway.says(f"GET {LOGS[4:]}/index", Answer(200, {"lines": 700}))
    first, second = ({"run": JOB, "lines": [line], "next": "1-99"} for line in lines)
    gateway.says(f"GET {LOGS[4:]}/lines", Answer(200, first), Answer(200, {**second, "next": None}))
    done = run("logs", JOB, "--tail", "2", "--level", "info")
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["one", "two"], done.stderr
    asked = [request.query for request in gateway.asked(f"{LOGS[4:]}/lines")]
    assert asked == [
        "line=699&level=INFO&limit=2&max_length=1048576",
        "level=INFO&limit=1&max_length=1048576&from=1-99",
    ]
    gateway.says(f"GET {LOGS[4:]}/lines", Answer(200, {"run": JOB, "lines": lines, "next": None}))
    gateway.says(LOGS, stream(("log", "1-150", log("three")), ("end", "1-160", END)))
    followed = run("logs", JOB, "-f", "-n", "2")
    assert (followed.returncode, "three" in followed.stdout) == (0, True)
    assert gateway.asked(LOGS[4:])[0].headers["last-event-id"] == "1-120"


def test_requests_are_a_table_or_a_file(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    one = {
        "url": "https://a.example/x", "status": 503, "ms": 1834, "bytes": 12, "at": "2027-06-01T09:00:00.000Z",
        "reason": "503 after 3 tries", "redirected_to": None,
    }  # fmt: skip
    page = {"requests": [one], "next": "1-2", "left_out": 0, "removed_at": None}
    gateway.says(f"GET /jobs/{JOB}/requests", Answer(200, page))
    done = run("requests", JOB, "--failed", "--status", "5xx", "--slow", "100", "--sort=-ms", TZ="UTC")
    assert done.stdout.splitlines()[1] == "a.example/x  503     1834     12  503 after 3 tries"
    assert gateway.requests[-1].query == "failed=true&status=5xx&slow_ms=100&sort=-ms&limit=20"
    run("requests", JOB, "--slow", "100")
    assert gateway.requests[-1].query == "slow_ms=100&sort=-ms&limit=20"
    assert json.loads(run("requests", JOB, "--json").stdout) == page
    gateway.says(f"GET /jobs/{JOB}/requests", Answer(200, b"url\r\n", content_type="text/csv"))
    assert run("requests", JOB, "-o", "x.csv").returncode == 0
    assert (tmp_path / "x.csv").read_bytes() == b"url\r\n"
    assert gateway.requests[-1].query == "format=csv&bom=true"
    # as it was found, and what other programs read from a pipe
    for words, query in (
        (("-o", "x.csv", "--no-escape-formulas"), "format=csv&escape_formulas=false"),
        (("--format", "csv"), "format=csv"),
    ):
        assert run("requests", JOB, *words).returncode == 0
        assert gateway.requests[-1].query == query
