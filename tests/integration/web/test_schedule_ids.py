"""A schedule's id in the place of a job's id stands for the schedule's present or latest run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
from jobs import make_job

from gateway.clock import to_iso, utc_now
from gateway.contract.records import Progress
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, Job, JobStatus

Crawl = dict[str, Any]
Keep = Callable[[Job], Job]
Make = Callable[..., Crawl]
ENDED = {"status": JobStatus.FINISHED, "settled": True, "live_key": None, "finished_at": utc_now()}

STREAM = {"Accept": "text/event-stream"}


def act(gateway: httpx2.Client, schedule: Crawl, action: str) -> httpx2.Response:
    return gateway.post(f"/schedules/{schedule['schedule_id']}/{action}")


def run_of(schedule: Crawl, **fields: Any) -> Job:
    return make_job(user_id=schedule["user_id"], schedule_id=schedule["schedule_id"], **fields)


def test_the_status_tells_of_the_run_under_way(gateway: httpx2.Client, make: Make, keep: Keep) -> None:
    view = make(max_items=9)
    keep(run_of(view, created_at=utc_now() - timedelta(hours=1), **ENDED))
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    running = {
        "status": JobStatus.RUNNING,
        "attempt": 1,
        "attempts": {"1": attempt},
        "progress": Progress(items_count=4),
    }
    run = keep(run_of(view, **running))
    status = gateway.get(f"/jobs/{view['schedule_id']}/status").json()
    assert (status["status"], status["job_id"], status["next_run"]) == (
        "scheduled",
        view["schedule_id"],
        view["next_run"],
    )
    assert (status["items_count"], status["spider_job_id"], status["max_items"]) == (4, f"{run.id}-1", 9)
    assert status["last_run"] == gateway.get(f"/jobs/{run.id}/status").json()


def test_items_are_those_of_the_latest_run_and_pages_stay_with_theirs(
    gateway: httpx2.Client, make: Make, keep: Keep, items: ItemStore
) -> None:
    view = make()
    url, other_url = f"/schedules/{view['schedule_id']}/items", f"/jobs/{view['schedule_id']}/items"
    assert gateway.get(url).json() == gateway.get(other_url).json() == {"items": [], "next": None}
    attempts = {"attempt": 1, "attempts": {"1": Attempt(attempt=1, node="n1", dispatched_at=utc_now())}}
    old = keep(run_of(view, created_at=utc_now() - timedelta(hours=1), **attempts, **ENDED))
    items.insert([Item(old.id, 1, 10 * n, {"old": n}) for n in (1, 2, 3)])
    first = gateway.get(url, params={"limit": 2})
    assert (first.json()["items"], first.headers["X-Run"]) == ([{"old": 1}, {"old": 2}], old.id)
    new = keep(run_of(view, **attempts))
    items.insert([Item(new.id, 1, 10, {"new": 1})])
    assert gateway.get(url).json()["items"] == gateway.get(other_url).json()["items"] == [{"new": 1}]
    for address in (url, other_url, f"/jobs/{old.id}/items"):
        assert gateway.get(address, params={"after": first.json()["next"]}).json()["items"] == [{"old": 3}]
    assert gateway.get(url, params={"run": old.id}).json()["items"][0] == {"old": 1}
    wrong = gateway.get(url, params={"run": new.id, "after": first.json()["next"]})
    assert (wrong.status_code, wrong.json()["error"]["detail"]["field"]) == (422, "after")
    assert gateway.get(url, params={"run": "0" * 32}).json()["error"]["code"] == "job_not_found"
    assert gateway.get(url, params={"run": make_job().id}).status_code == 404


def test_its_log_is_empty_before_the_first_run(gateway: httpx2.Client, make: Make) -> None:
    headers = {"Accept": "text/plain"}
    answer = gateway.get(f"/jobs/{make()['schedule_id']}/logs", headers=headers)
    assert (answer.status_code, answer.text) == (200, "")


def test_its_stream_waits_for_the_first_run_and_follows_it(gateway: httpx2.Client, make: Make, keep: Keep) -> None:
    view = make(interval="every 2s", jitter=0)
    url = f"/jobs/{view['schedule_id']}/logs"
    with gateway.stream("GET", url, headers=STREAM) as source:
        events = (event for event in httpx2.EventSource(source) if event.data)
        waiting = next(events)
        assert (waiting.event, waiting.json()["status"], waiting.json()["state"]) == ("status", "scheduled", "active")
        assert waiting.json()["next_run"] == view["next_run"]
        moved = gateway.patch(f"/schedules/{view['schedule_id']}", json={"interval": "every 3s"}).json()
        assert next(events).json()["next_run"] == moved["next_run"] != view["next_run"]
        job_id = act(gateway, view, "run").json()["job_id"]
        begun = next(events)
        assert (begun.json()["status"], begun.id) == ("pending", f"{job_id}.1-0")
        gateway.post(f"/jobs/{job_id}/cancel").raise_for_status()
        *_, end = events
    assert (end.event, end.json()["job_id"], end.json()["status"]) == ("end", job_id, "cancelled")
    headers = {"Last-Event-ID": end.id}
    assert gateway.get(url, headers=headers).status_code == 204, "browsers stop"
    later = keep(run_of(view, **ENDED))
    with gateway.stream("GET", url, headers=STREAM | headers) as source:
        *_, end = (event for event in httpx2.EventSource(source) if event.data)
    assert end.json()["job_id"] == later.id
    stray = gateway.get(f"/jobs/{later.id}/logs", headers=headers)
    assert (stray.status_code, stray.json()["error"]["detail"]["field"]) == (422, "Last-Event-ID")


def test_the_stream_of_a_schedule_that_never_ran_ends_with_it(gateway: httpx2.Client, make: Make) -> None:
    view = make(interval="every 1h", schedule_at=to_iso(utc_now() + timedelta(hours=1)))
    url = f"/jobs/{view['schedule_id']}"
    with gateway.stream("GET", f"{url}/logs", headers=STREAM) as source:
        gateway.post(f"{url}/cancel").raise_for_status()
        *_, end = (event for event in httpx2.EventSource(source) if event.data)
    assert (end.event, end.json()["status"], end.json()["last_run"]) == ("end", "cancelled", None)
    assert gateway.get(f"{url}/logs", headers={"Last-Event-ID": end.id}).status_code == 204
