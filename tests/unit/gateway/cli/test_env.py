from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from unit.gateway.cli.conftest import Answer, Run, StandIn

from gateway.cli.main import app

ENVIRONMENT: dict[str, Any] = {
    "project": "shop",
    "variables": [
        {"name": "API_KEY", "secret": True, "value": None, "updated_at": "2027-06-01T09:00:00.000Z"},
        {"name": "REGION", "secret": False, "value": "eu", "updated_at": "2027-06-01T09:00:00.000Z"},
    ],
}


def test_variables_are_listed_without_the_values_of_secrets(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /projects/shop/env", Answer(200, ENVIRONMENT))
    listed = run("env", "--project", "shop")
    assert listed.returncode == 0, listed.stderr
    secret, plain = listed.stdout.splitlines()[1:]
    assert (secret.split()[0], secret.split()[-1]) == ("API_KEY", "***")
    assert (plain.split()[0], plain.split()[-1]) == ("REGION", "eu")


def test_a_variable_is_set_and_removed(gateway: StandIn, run: Run) -> None:
    for method in ("PUT", "DELETE"):
        gateway.says(f"{method} /projects/shop/env/REGION", Answer(200, ENVIRONMENT))
    gateway.says("GET /projects", Answer(200, {"projects": [{"name": "shop"}]}))
    done = run("env", "set", "REGION", "eu", "--project", "shop")
    assert (done.returncode, done.stdout) == (0, "REGION: set\n"), done.stderr
    assert gateway.requests[-1].body == {"value": "eu", "secret": False}
    done = run("env", "unset", "REGION", "--project", "shop")
    assert (done.returncode, done.stdout) == (0, "REGION: removed\n"), done.stderr


def test_a_secret_is_read_from_stdin_where_nobody_sees_it(gateway: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCOVERYBOT_URL", gateway.url)
    gateway.says("PUT /projects/shop/env/API_KEY", Answer(200, ENVIRONMENT))
    gateway.says("GET /projects", Answer(200, {"projects": [{"name": "shop"}]}))
    command = ["env", "set", "API_KEY", "--project", "shop", "--secret"]
    done = CliRunner().invoke(app, command, input="topsecret\n")
    assert done.exit_code == 0, done.output
    assert "topsecret" not in done.output
    assert gateway.requests[-1].body == {"value": "topsecret", "secret": True}


def test_a_crawl_has_settings_and_variables_of_its_own(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /crawl", Answer(200, {"job_id": "j", "scheduled": False, "cached": False}))
    options = ("--setting", "RETRY_TIMES=0", "--setting", "USER_AGENT=me", "--env", "REGION=eu=1", "--no-follow")
    done = run("crawl", "https://a.example", "--project", "shop", *options)
    assert done.returncode == 0, done.stderr
    body = gateway.asked("/crawl")[-1].body
    assert body["settings"] == {"RETRY_TIMES": 0, "USER_AGENT": "me"}
    assert body["env"] == {"REGION": "eu=1"}
    refused = run("crawl", "https://a.example", "--env", "REGION", "--no-follow")
    assert refused.returncode == 2
    assert "--env: 'REGION' is not of the form name=value" in refused.stderr


def test_a_project_that_is_not_there_gets_no_variables(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /projects", Answer(200, {"projects": [{"name": "shop"}]}))
    gateway.says("PUT /projects/nope/env/REGION", Answer(200, ENVIRONMENT))
    gateway.says("GET /spiders", Answer(200, {"spiders": [], "projects": [], "next": None}))
    refused = run("env", "set", "REGION", "eu", "--project", "nope")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--project: there is no project 'nope'; there is shop" in refused.stderr
    assert not gateway.asked("/projects/nope/env/REGION")
    assert run("env", "set", "REGION", "eu", "--project", "nope", "--ahead").returncode == 0
    assert run("spiders", "--project", "nope").returncode == 2


def test_the_project_is_that_of_the_folder(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    gateway.says("GET /projects/shop/env", Answer(200, ENVIRONMENT))
    refused = run("env")
    assert (refused.returncode, "scrapy.cfg" in refused.stderr) == (2, True)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    assert run("env").returncode == 0
    gateway.says("POST /crawl", Answer(200, {"job_id": "j", "scheduled": False, "cached": False}))
    gateway.says("GET /spiders", Answer(200, {"spiders": [{"project": "shop", "name": "offers"}]}))
    assert run("crawl", "offers", "--no-follow").returncode == 0
    gateway.says("GET /spiders", Answer(200, {"spiders": []}))
    assert run("crawl", "-s", "seo", "a.example", "--no-follow").returncode == 0
    assert run("crawl", "https://a.example", "--no-follow").returncode == 0
    ours, *others = (request.body for request in gateway.asked("/crawl"))
    assert ours["project"] == "shop"
    assert not any("project" in body for body in others)
