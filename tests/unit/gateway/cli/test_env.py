from __future__ import annotations

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
    done = run("env", "set", "REGION", "eu", "--project", "shop")
    assert (done.returncode, done.stdout) == (0, "REGION: set\n"), done.stderr
    assert gateway.requests[-1].body == {"value": "eu", "secret": False}
    done = run("env", "unset", "REGION", "--project", "shop")
    assert (done.returncode, done.stdout) == (0, "REGION: removed\n"), done.stderr


def test_a_secret_is_read_from_stdin_where_nobody_sees_it(gateway: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCOVERYBOT_URL", gateway.url)
    gateway.says("PUT /projects/shop/env/API_KEY", Answer(200, ENVIRONMENT))
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
    assert "env: 'REGION' is not of the form name=value" in refused.stderr
