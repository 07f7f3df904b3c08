"""`discoverybot jobs fields`: which field is not as full as in the runs before."""

from __future__ import annotations

import json
from typing import Any

from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn

OTHER, AT = JOB[::-1], "2027-06-01T07:54:00.000Z"


def field(name: str, share: float, before: float | None, **types: int) -> dict[str, Any]:
    lower = before is not None and share < before - 0.05
    return {
        "name": name,
        "share": share,
        "share_before": before,
        "lower": lower,
        "lower_since": JOB if lower else None,
        "types": types,
        "example": '"a\\nb"',
    }


def page(*fields: dict[str, Any], counted: int = 40, removed_at: str | None = None) -> Answer:
    body = {"job_id": JOB, "items": 40, "counted": counted, "fields": list(fields), "removed_at": removed_at}
    return Answer(200, {**body, "runs": [{"job_id": OTHER, "version": "1.0", "finished_at": AT}]})


def lowered(gateway: StandIn, version: str, *, still: bool = True) -> None:
    """The price is lower since the run `JOB`."""
    spec = {"project": "shop", "spider": "prices", "version": version}
    gateway.says(f"GET /jobs/{JOB}/fields", page(field("price", 0.03, 0.995, null=39), field("new", 1, 1)))
    gateway.says(
        f"GET /jobs/{JOB}", Answer(200, {"job_id": JOB, "schedule_id": None, "spec": spec, "finished_at": AT})
    )
    found = [{"name": "price", "lower_since": JOB if still else None}, {"name": "new", "lower_since": None}]
    gateway.says("GET /spiders/shop/prices/fields", Answer(200, {"runs": [], "fields": found}))


def test_the_run_since_which_a_field_is_lower_is_named_with_the_way_back(gateway: StandIn, run: Run) -> None:
    lowered(gateway, "2.0")
    done = run("jobs", "fields", JOB, TZ="UTC")
    assert done.returncode == 0, done.stderr
    assert "LOWER SINCE" in done.stdout
    assert f"{JOB[:8]}, 2.0, 2027-06-01 07:54" in done.stdout
    assert done.stderr.startswith("to go back: ")
    assert done.stderr.endswith("discoverybot projects rollback shop\n")
    lowered(gateway, "1.0")
    assert "to go back" not in run("jobs", "fields", JOB).stderr


def test_an_older_run_is_told_of_without_a_way_back_from_what_is_mended(gateway: StandIn, run: Run) -> None:
    lowered(gateway, "2.0", still=False)
    done = run("jobs", "fields", JOB, TZ="UTC")
    assert f"{JOB[:8]}, 2.0, 2027-06-01 07:54" in done.stdout
    assert "to go back" not in done.stderr


def test_without_a_run_before_it_says_so(gateway: StandIn, run: Run) -> None:
    body = page(field("price", 1, None)).body
    gateway.says(f"GET /jobs/{JOB}/fields", Answer(200, {**body, "runs": []}))
    assert "there is nothing before" in run("jobs", "fields", JOB).stderr


def test_each_field_is_a_line_with_its_share_before(gateway: StandIn, run: Run) -> None:
    gateway.says(
        f"GET /jobs/{JOB}/fields", page(field("price", 0.97, 0.995, null=39, number=1), field("new", 1, None))
    )
    done = run("jobs", "fields", JOB)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:5] for line in done.stdout.splitlines()] == [
        ["FIELD", "FILLED", "BEFORE", "TYPES", "EXAMPLE"],
        ["price", "97.0%", "99.5%", "null,", "number"],
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
