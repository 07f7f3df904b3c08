from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from unit.gateway.cli.conftest import Answer, Run, StandIn

RULE: dict[str, Any] = {
    "rule_id": "4d0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "name": "far fewer prices",
    "when": {"measure": "items", "below": 0.5, "of_usual": 10, "runs": 2, "above": None, "for_seconds": 0},
    "group_by": "spider",
    "paused": False,
    "silenced_until": None,
    "builtin": None,
}
ALERT: dict[str, Any] = {
    "alert_id": "3e0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "group": "shop/prices",
    "rule": "far fewer prices",
    "firing": True,
    "told": True,
    "since": "2027-06-01T09:03:41.000Z",
    "until": None,
    "message": "40 items, usually 200",
    "job_id": None,
    "silenced_until": None,
}


def test_alerts_are_listed_and_silenced(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /alerts", Answer(200, {"alerts": [ALERT], "next": None}))
    done = run("alerts", "list", "--firing")
    assert done.returncode == 0, done.stderr
    assert "firing  shop/prices" in done.stdout
    assert gateway.asked("/alerts")[0].query == "firing=true&limit=20"
    place = f"/alerts/{ALERT['alert_id']}/silence"
    gateway.says(f"POST {place}", Answer(200, ALERT))
    assert run("alerts", "silence", "3e0c", "--hours", "8").returncode == 0
    assert run("alerts", "unsilence", "3e0c").returncode == 0
    silenced, ended = (call.body["until"] for call in gateway.asked(place))
    assert timedelta(hours=7.9) < datetime.fromisoformat(silenced) - datetime.now(UTC) < timedelta(hours=8.1)
    assert ended is None


def test_without_any_it_is_said_where_rules_are(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /alerts", Answer(200, {"alerts": [], "next": None}))
    assert "alert-rules` has the rules" in run("alerts").stderr


def test_a_rule_is_made_of_its_options(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /alerts/rules", Answer(201, RULE))
    when = ("--measure", "items", "--below", "0.5", "--of-usual", "10", "--runs", "2")
    told = ("--quiet", "22:00-07:00", "--timezone", "Europe/Berlin", "--remind-seconds", "3600", "--project", "shop")
    done = run("alert-rules", "add", "far fewer prices", *when, *told, "--user", "ada")
    assert (done.returncode, done.stdout) == (0, f"{RULE['rule_id']}\n"), done.stderr
    assert gateway.asked("/alerts/rules")[0].body == {
        "name": "far fewer prices",
        "when": {"measure": "items", "below": 0.5, "of_usual": 10, "runs": 2},
        "filter": {"projects": ["shop"]},
        "quiet": {"since": "22:00", "until": "07:00", "timezone": "Europe/Berlin"},
        "remind_seconds": 3600,
        "user_id": "ada",
    }
    assert "two times of day" in run("alert-rules", "add", "x", "--quiet", "night", "--user", "ada").stderr


def test_a_preview_says_when_it_would_have_fired(gateway: StandIn, run: Run) -> None:
    incident = {"group": "shop/prices", "since": ALERT["since"], "until": None, "message": ALERT["message"]}
    said = {"since": "2027-05-25T09:00:00.000Z", "runs": 168, "count": 1, "incidents": [incident]}
    gateway.says("POST /alerts/rules/preview", Answer(200, said), Answer(200, {**said, "count": 0, "incidents": []}))
    first, second = (run("alert-rules", "preview", "x", "--measure", "failed", "--user", "ada") for _ in range(2))
    assert "it would have fired once in 168 runs since 2027-05-25 09:00" in first.stdout
    assert "40 items, usually 200" in first.stdout
    assert second.stdout == "it would not have fired in 168 runs since 2027-05-25 09:00\n"


def test_a_filter_can_be_taken_away_again(gateway: StandIn, run: Run) -> None:
    endpoint = {"endpoint_id": "7d" * 16, "paused": False, "disabled_at": None, "failing_since": None}
    gateway.says(f"PATCH /endpoints/{endpoint['endpoint_id']}", Answer(200, endpoint))
    gateway.says("PATCH /alerts/rules/crawl-failed", Answer(200, RULE))
    for command, name, path in (
        ("endpoints", "7d" * 16, f"/endpoints/{'7d' * 16}"),
        ("alert-rules", "crawl-failed", "/alerts/rules/crawl-failed"),
    ):
        done = run(command, "edit", name, "--all-crawls")
        assert done.returncode == 0, done.stderr
        assert gateway.asked(path)[0].body == {"filter": {}}
