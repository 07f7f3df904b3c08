"""Help, and output to where it cannot be written: never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from unit.gateway.cli.conftest import Answer, Run, StandIn
from unit.gateway.cli.test_resources import SUMMARY

from gateway.cli.main import _Main, app
from gateway.cli.terminal import gateway_url

COMMAND = (sys.executable, "-m", "gateway.cli.main")


def _jobs(gateway: StandIn) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [{**SUMMARY, "spider": "café…"}], "next": None}))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
@pytest.mark.parametrize("words", [("jobs",), ("jobs", "--json"), ("--help",), ("items", "5f0c")], ids=" ".join)
def test_a_full_disk_is_said_in_one_line(gateway: StandIn, words: tuple[str, ...]) -> None:
    _jobs(gateway)
    gateway.says("GET /schedules", Answer(200, {"schedules": [], "next": None}))
    gateway.says(f"GET /jobs/{SUMMARY['job_id']}/items", Answer(200, b'{"a": 1}\n'))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "DISCOVERYBOT_URL": gateway.url},
        )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "No space left on device" in done.stderr


def test_what_an_encoding_lacks_is_spelled_out(gateway: StandIn) -> None:
    _jobs(gateway)
    env = {**os.environ, "DISCOVERYBOT_URL": gateway.url, "PYTHONIOENCODING": "ascii", "COLUMNS": "100"}
    table, document, _ = (
        subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=True, env=env).stdout
        for words in (("jobs",), ("jobs", "--json"), ("crawl", "-h"))
    )
    assert r"caf\xe9~" in table
    assert json.loads(document)["jobs"][0]["spider"] == "café…"


def test_ctrl_c_while_it_starts_is_no_traceback() -> None:
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], "jobs"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        while "typer" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 130


def test_a_command_that_calls_the_gateway_imports_no_database() -> None:
    code = (
        "import sys, gateway.cli.main; sys.exit(any(name in sys.modules for name in ('pymongo', 'celery', 'scrapy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_answer_that_is_none_of_a_gateway_is_said_in_one_line(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(200, {"rows": []}))
    done = run("jobs")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: an answer is not understood (KeyError: 'jobs'): is it from a gateway, and of this version?\n"
    )


def test_a_closed_stdout_is_no_traceback(gateway: StandIn) -> None:
    _jobs(gateway)
    shell = ("sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "jobs", "--url", gateway.url)
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


# --- the help


def test_every_command_has_its_place_in_the_help(run: Run) -> None:
    done = run("-h", COLUMNS="80")
    assert (done.returncode, done.stdout) == (0, run("--help", COLUMNS="80").stdout)
    named = [name for names in _Main.sections.values() for name in names]
    ours = {one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands}
    groups = {one.name for one in app.registered_groups if one.name}
    assert sorted(named) == sorted({*ours, *groups, *_Main.late})
    assert [line for line in done.stdout.splitlines() if line in {f"{heading}:" for heading in _Main.sections}] == [
        f"{heading}:" for heading in _Main.sections
    ]
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("words", [("crawl",), ("jobs",), ("jobs", "cancel"), ("env", "set")], ids=" ".join)
def test_help_fits_a_narrow_terminal(run: Run, words: tuple[str, ...]) -> None:
    lines = run(*words, "-h", COLUMNS="60").stdout.splitlines()
    assert max(map(len, lines)) <= 60
    assert not any("<" in line for line in lines)


def test_the_version_has_a_short_option(run: Run) -> None:
    assert run("-V").stdout == run("--version").stdout


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("crawls.internal", "http://crawls.internal"),
        ("https://crawls.example.com/", "https://crawls.example.com"),
    ],
)
def test_an_address_without_a_scheme_is_http(given: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCOVERYBOT_URL", given)
    assert gateway_url() == gateway_url(given) == url
