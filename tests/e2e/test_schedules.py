"""Crawls that happen by themselves, as a user has them done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from event_source import log_text, read_events
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]


def scheduled(stack: Stack, site: Site, **when: Any) -> str:
    body = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/2"], **when}
    answer = stack.http.post(f"{stack.url}/crawl", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


def runs_of(stack: Stack, schedule_id: str) -> list[dict[str, Any]]:
    """Newest first."""
    page = stack.http.get(f"{stack.url}/jobs", params={"schedule_id": schedule_id}).raise_for_status().json()
    runs: list[dict[str, Any]] = page["jobs"]
    return runs


def history(stack: Stack, schedule_id: str) -> list[dict[str, Any]]:
    page = stack.http.get(f"{stack.url}/schedules/{schedule_id}/history").raise_for_status().json()
    entries: list[dict[str, Any]] = page["entries"]
    return entries


def test_a_crawl_for_later_is_followed_from_before_it_begins(stack: Stack, site: Site) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=4)).isoformat()
    body = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/2"], "schedule_at": at}
    headers = {"Accept": "text/event-stream"}
    with stack.http.stream("POST", f"{stack.url}/crawl", json=body, headers=headers) as response:
        first, waiting, *events = read_events(response)
    assert (first.event, first.data["scheduled"], waiting.data["status"]) == ("job", True, "scheduled")
    assert (events[-1].event, events[-1].data["status"]) == ("end", "finished")
    begun = datetime.fromisoformat(stack.status(first.data["job_id"])["started_at"])
    assert timedelta() <= begun - datetime.fromisoformat(at) < timedelta(seconds=20)
    assert log_text(events).encode() == stack.log(first.data["job_id"])


def test_a_schedule_is_watched_changed_paused_and_ended_by_its_id(stack: Stack, site: Site) -> None:
    schedule = scheduled(stack, site, interval="every 1s", jitter=0, overlap="skip", ignore_cache=True)
    job, url = f"{stack.url}/jobs/{schedule}", f"{stack.url}/schedules/{schedule}"
    with stack.http.stream("GET", f"{job}/logs") as response:
        events = list(read_events(response))
    run = events[-1].data["job_id"]
    assert events[0].data["status"] == "scheduled"
    assert (events[-1].data["status"], events[-1].data["schedule_id"]) == ("finished", schedule)
    assert log_text(events).encode() == stack.log(run)
    pages = len(stack.items(run))
    assert pages > 0
    # the schedule's are those of its latest run, and there is another one each second
    wait_until(lambda: len(stack.items(schedule)) == pages, what="the pages of the latest run")

    # an answered change is never overtaken by what it was before
    changed = stack.http.patch(url, json={"tags": ["changed"], "rev": 1}).raise_for_status().json()
    known = {one["job_id"] for one in runs_of(stack, schedule)}
    wait_until(lambda: len(runs_of(stack, schedule)) > len(known) + 1, what="two more runs")
    assert changed["rev"] == 2
    assert all(one["tags"] == ["changed"] for one in runs_of(stack, schedule) if one["job_id"] not in known)

    paused = stack.http.post(f"{url}/pause").raise_for_status().json()
    last = runs_of(stack, schedule)
    assert (paused["state"], paused["next_run"]) == ("paused", None)
    stack.wait_final(last[0]["job_id"])
    by_hand = stack.http.post(f"{url}/run").raise_for_status().json()["job_id"]
    stack.wait_final(by_hand)
    assert len(runs_of(stack, schedule)) == len(last) + 1, "paused for longer than an occurrence"

    told = history(stack, schedule)
    assert {entry["kind"] for entry in told} <= {"fired", "skipped"}
    fired = {entry["job_id"]: entry["trigger"] for entry in told if entry["kind"] == "fired"}
    assert fired == {**{one["job_id"]: "scheduled" for one in last}, by_hand: "manual"}
    assert all(entry["late_by_seconds"] < 30 for entry in told)

    assert stack.http.post(f"{job}/cancel").json()["status"] == "cancelled"
    assert stack.status(schedule)["last_run"]["status"] == "finished"
    assert stack.http.delete(url).status_code == 204
    assert stack.status(run)["schedule_id"] == schedule
