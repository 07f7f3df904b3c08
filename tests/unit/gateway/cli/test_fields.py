"""`discoverybot jobs fields`: which field is not as full as in the runs before."""

from __future__ import annotations

import json
from typing import Any

from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn


def field(name: str, share: float, before: float | None, **types: int) -> dict[str, Any]:
    lower = before is not None and share < before - 0.05
    return {
        "name": name,
        "share": share,
        "share_before": before,
        "lower": lower,
        "types": types,
        "example": '"a\\nb"',
    }


def page(*fields: dict[str, Any], counted: int = 40, removed_at: str | None = None) -> Answer:
    return Answer(200, {"items": 40, "counted": counted, "fields": list(fields), "removed_at": removed_at})


def test_each_field_is_a_line_with_its_share_before(gateway: StandIn, run: Run) -> None:
    gateway.says(
        f"GET /jobs/{JOB}/fields", page(field("price", 0.03, 0.995, null=39, number=1), field("new", 1, None))
    )
    done = run("jobs", "fields", JOB)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:5] for line in done.stdout.splitlines()] == [
        ["FIELD", "FILLED", "BEFORE", "TYPES", "EXAMPLE"],
        ["price", "3.0%", "99.5%", "null,", "number"],
        ["new", "100.0%", "-", "-", '"a\\nb"'],
    ]
    assert gateway.asked(f"/jobs/{JOB}/fields")[0].query == "compare=runs"


def test_it_asks_on_until_all_items_are_counted_or_no_more_are(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/fields", page(counted=10), page(counted=30), page(counted=40))
    assert json.loads(run("jobs", "fields", JOB, "--json").stdout)["counted"] == 40
    gateway.says(f"GET /jobs/{JOB}/fields", page(counted=10), page(counted=10))
    assert json.loads(run("jobs", "fields", JOB, "--json").stdout)["counted"] == 10


def test_without_items_it_says_why(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/fields", page())
    assert "no items yet" in run("jobs", "fields", JOB).stderr
    gateway.says(f"GET /jobs/{JOB}/fields", page(removed_at="2027-06-01T09:00:00.000Z"))
    assert "retention time" in run("jobs", "fields", JOB).stderr
