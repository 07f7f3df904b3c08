"""`discoverybot webhook-secret`: it is shown, and made anew only where that is asked for."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from unit.gateway.cli.conftest import Answer, Run, StandIn

SECRET: dict[str, Any] = {
    "user_id": "me", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "made_at": "2027-06-01T07:00:00.000Z",
    "previous_until": None,
}  # fmt: skip


def test_it_is_shown(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /webhooks/secret", Answer(200, SECRET))
    assert run("webhook-secret", "--user", "me").stdout == SECRET["secret"] + "\n"
    assert parse_qs(gateway.requests[-1].query) == {"user_id": ["me"]}


def test_a_new_one_leaves_the_one_before_for_a_time(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /webhooks/secret", Answer(201, SECRET))
    assert json.loads(run("webhook-secret", "--new", "--keep-hours", "2", "--json").stdout) == SECRET
    assert gateway.requests[-1].body == {"keep_hours": 2}


def test_who_has_none_is_told_how_to_make_one(gateway: StandIn, run: Run) -> None:
    message = "user 'me' has no webhook secret: make one with `discoverybot webhook-secret --new`"
    error = {"code": "webhook_secret_not_found", "message": message, "detail": None}
    gateway.says("GET /webhooks/secret", Answer(404, {"error": error}))
    done = run("webhook-secret")
    assert (done.returncode, done.stdout) == (2, "")
    assert "webhook-secret --new" in done.stderr
