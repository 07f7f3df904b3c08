"""`open`: the console's address, and a browser where there is a desktop."""

from __future__ import annotations

from pathlib import Path

from stack import wait_until
from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn

NO_DESKTOP = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}


def test_without_a_desktop_it_prints_the_address(gateway: StandIn, run: Run) -> None:
    done = run("open", **NO_DESKTOP)
    assert (done.returncode, done.stdout) == (0, f"{gateway.url}/\n"), done.stderr
    assert run("open", JOB, **NO_DESKTOP).stdout == f"{gateway.url}/console/jobs/{JOB}\n"


def test_the_beginning_of_an_id_is_enough(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [{"job_id": JOB}], "next": None}))
    gateway.says("GET /schedules", Answer(200, {"schedules": [], "next": None}))
    assert run("open", JOB[:6], **NO_DESKTOP).stdout == f"{gateway.url}/console/jobs/{JOB}\n"


def test_with_a_desktop_it_opens_the_browser(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    browser, asked = tmp_path / "browser", tmp_path / "asked"
    browser.write_text(f'#!/bin/sh\necho "$1" > {asked}.new && mv {asked}.new {asked}\n')
    browser.chmod(0o700)
    done = run("open", JOB, BROWSER=f"{browser} %s", DISPLAY=":0")
    assert done.returncode == 0, done.stderr
    wait_until(asked.exists, timeout=90)
    assert asked.read_text() == f"{gateway.url}/console/jobs/{JOB}\n"
