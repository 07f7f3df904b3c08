"""Runs that must not overlap do not, on the whole platform: those of a schedule that queues them, those of a site."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

RUNS = 3


@pytest.fixture
def board(stack: Stack, site: Site) -> Iterator[str]:
    """The name of a site whose runs take until it answers."""
    name = f"board-{uuid.uuid4().hex[:8]}"
    described = {"name": name, "spider": "seo", "search_url": f"{site.url}/tree/1"}
    added = stack.http.post(f"{stack.url}/sites", json={**described, "min_pause_seconds": 0, "max_pause_seconds": 0})
    assert added.status_code == 201, added.text
    site.hold()
    yield name
    site.release()
    assert stack.http.delete(f"{stack.url}/sites/{name}", params={"force": True}).status_code == 204


def scraped(stack: Stack, board: str) -> str:
    receipt = stack.http.post(f"{stack.url}/jobs/scrape", json={"site_name": board})
    assert receipt.status_code == 200, receipt.text
    return str(receipt.json()["data"]["task_id"])


def waits(stack: Stack, job_id: str, reason: str) -> dict[str, Any]:
    def status() -> dict[str, Any] | None:
        told = stack.status(job_id)
        return told if told["waiting_reason"] == reason else None

    return wait_until(status, what=f"{reason} of job {job_id}")


def runs_of(stack: Stack, schedule_id: str) -> list[dict[str, Any]]:
    """In the order of their occurrences."""
    page = stack.http.get(f"{stack.url}/jobs", params={"schedule_id": schedule_id}).raise_for_status().json()
    return sorted(page["jobs"], key=lambda run: str(run["slot"]["at"]))


def follow_each_other(runs: list[dict[str, Any]]) -> bool:
    return all(before["finished_at"] <= after["started_at"] for before, after in pairwise(runs))


def test_the_runs_of_a_schedule_that_queues_them_follow_each_other_in_their_order(stack: Stack, site: Site) -> None:
    site.hold()
    order = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/1"], "ignore_cache": True}
    timing = {"interval": "every 1s", "overlap": "queue", "max_runs": RUNS, "jitter": 0.0}
    made = stack.http.post(f"{stack.url}/schedules", json={**order, **timing})
    assert made.status_code == 201, made.text
    schedule_id = made.json()["schedule_id"]
    runs = wait_until(lambda: found if len(found := runs_of(stack, schedule_id)) == RUNS else None, what="all runs")
    for later in runs[1:]:
        assert waits(stack, later["job_id"], "previous_run")["queue_position"] is None
    assert stack.status(runs[0]["job_id"])["status"] == "running"
    site.release()
    for run in runs:
        assert stack.wait_final(run["job_id"])["status"] == "finished"
    assert follow_each_other(runs_of(stack, schedule_id))
    assert site.hits("/tree/1") == RUNS


def test_of_two_runs_of_a_site_one_waits_and_runs_once_the_other_is_cancelled(
    stack: Stack, site: Site, board: str
) -> None:
    first = scraped(stack, board)
    wait_until(lambda: stack.status(first)["status"] == "running", what="the first run")
    second, third = scraped(stack, board), scraped(stack, board)
    for job_id in (second, third):
        waits(stack, job_id, "site_busy")
    # whoever has nothing to do with the site passes them
    with Site() as other:
        assert stack.wait_final(stack.crawl(f"{other.url}/tree/1"))["status"] == "finished"
    ended = stack.http.post(f"{stack.url}/jobs/{third}/cancel").raise_for_status().json()
    assert ended["status"] == "cancelled"
    assert stack.status(second)["status"] == "pending"
    stack.http.post(f"{stack.url}/jobs/{first}/cancel").raise_for_status()
    assert stack.wait_final(first)["status"] == "cancelled"
    wait_until(lambda: stack.status(second)["status"] == "running", what="the second run")
    site.release()
    assert stack.wait_final(second)["status"] == "finished"
    assert follow_each_other([stack.job(first), stack.job(second)])
