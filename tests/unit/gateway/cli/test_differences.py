"""`discoverybot jobs compare`."""

from __future__ import annotations

import json
from typing import Any

from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn

OTHER = JOB[::-1]
CHANGED = {
    "type": "changed",
    "key": {"url": "https://shop.example/17"},
    "item": {},
    "changes": {"price": {"previous": 12.5, "current": None}, "title": {"previous": "a", "current": "b"}},
}
NEW = {"type": "new", "key": {}, "item": {"name": "é"}, "changes": None}
KEYED = {"type": "new", "key": {"sku": "A-7"}, "item": {"sku": "A-7", "price": 9.5}, "changes": None}
FOUND: dict[str, Any] = {
    "job_id": JOB,
    "other_job_id": OTHER,
    "key": ["url"],
    "differences": [CHANGED, NEW, KEYED],
    "new": 1,
    "changed": 1,
    "removed": 0,
    "same": 7,
    "compared": 9,
    "other_compared": 8,
    "is_whole": True,
    "repeated": 0,
    "without_key": 0,
}


def test_the_items_of_two_runs_are_compared(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/differences", Answer(200, FOUND))
    done = run("jobs", "compare", JOB, OTHER, "--key", "sku,shop", "--limit", "5")
    assert done.returncode == 0, done.stderr
    assert gateway.requests[0].query == f"other_job_id={OTHER}&key=sku%2Cshop&limit=5"
    assert 'price 12.5 → null; title "a" → "b"' in done.stdout
    assert '{"name": "é"}' in done.stdout
    assert "price 9.5" in done.stdout
    assert done.stderr == f"1 changed, 1 new, 0 removed, 7 same, by url, since run {OTHER[:8]}\n"
    assert json.loads(run("jobs", "compare", JOB, "--json").stdout) == FOUND


def test_a_run_without_another_before_it_says_so(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/differences", Answer(200, {**FOUND, "other_job_id": None}))
    assert "there is no earlier run of the same crawl that you may see" in run("jobs", "compare", JOB).stderr


def test_what_was_not_compared_is_said(gateway: StandIn, run: Run) -> None:
    partly = {**FOUND, "differences": [], "is_whole": False, "repeated": 2, "without_key": 1}
    gateway.says(f"GET /jobs/{JOB}/differences", Answer(200, partly))
    said = run("jobs", "compare", JOB).stderr
    assert "compared the first 8 items with the first 9: what seems new or removed may only come later" in said
    assert "2 items with a key that came before: choose other fields with --key" in said
    assert "1 item without the key" in said


def test_a_run_is_compared_with_the_last_one_of_the_day_before(gateway: StandIn, run: Run) -> None:
    spec = {"project": "shop", "spider": "offers", "start_urls": [], "params": {"page": 1}}
    job = {"job_id": JOB, "created_at": "2027-06-02T09:00:00.000Z", "schedule_id": None, "spec": spec}
    gateway.says(f"GET /jobs/{JOB}", Answer(200, job))
    gateway.says(f"GET /jobs/{OTHER}", Answer(200, {**job, "job_id": OTHER}))
    gateway.says("GET /jobs", Answer(200, {"jobs": [{"job_id": OTHER}], "next": None}))
    gateway.says(f"GET /jobs/{JOB}/differences", Answer(200, FOUND))
    done = run("jobs", "compare", JOB, "--yesterday", TZ="UTC")
    assert done.returncode == 0, done.stderr
    assert gateway.asked(f"/jobs/{JOB}/differences")[0].query.startswith(f"other_job_id={OTHER}")
    assert "until=2027-06-02T00%3A00%3A00%2B00%3A00" in gateway.asked("/jobs")[0].query
    gateway.says("GET /jobs", Answer(200, {"jobs": [], "next": None}))
    assert "before 2027-06-02 ended well" in run("jobs", "compare", JOB, "--yesterday", TZ="UTC").stderr
