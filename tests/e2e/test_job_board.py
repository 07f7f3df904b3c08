"""A job board, scraped completely in each of the ways that there are: asked for, waited for, and by itself."""

from __future__ import annotations

import base64
import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2
import pymongo
import pytest
import redis
from forms import in_full
from machine import find_program
from sites.job_board import JobAd, JobBoard, Markup, Pagination, job_board
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

POSTINGS = 300
#: Seconds; what the stack is told (conftest.py).
SYNC_TIMEOUT = 12
#: In the body of a message as Redis's MONITOR shows it.
_BODY = re.compile(r'\\*"body\\*": \\*"([A-Za-z0-9+/=]+)\\*"')
TARGET_FIELDS = {
    *("target_id", "website_id", "website_name", "search_url", "requires_playwright", "pagination_type"),
    *("keywords_used", "location_used", "attempt_count"),
}


@pytest.fixture
def board() -> Iterator[JobBoard]:
    with job_board(POSTINGS) as board:
        yield board


class Door:
    """The gateway as whoever looks after job boards knows it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self.stack.http.request(method, f"{self.stack.url}{path}", **options)

    def add_site(self, board: JobBoard, name: str, markup: Markup, pagination: Pagination, **fields: Any) -> Any:
        quick = {"min_pause_seconds": 0, "max_pause_seconds": 0}
        record = {**board.record(name, markup, pagination), **quick, **fields}
        answer = self.call("POST", "/sites", json=record)
        assert answer.is_success, answer.text
        return answer.json()

    def scrape(self, *, mode: str = "async", **body: Any) -> httpx2.Response:
        return self.call("POST", "/jobs/scrape", json=body, params={"mode": mode})

    def run(self, run_id: str) -> dict[str, Any]:
        told: dict[str, Any] = self.call("GET", f"/jobs/scrape/{run_id}").raise_for_status().json()
        return told

    def succeeded(self, run_id: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run["finished_at"] else None

        run = wait_until(ended, what=f"the end of {run_id}")
        assert run["status"] == "succeeded", run["message"]
        return run

    def is_due_now(self, schedule_id: str) -> None:
        """As if its time had come."""
        now = datetime.now(UTC).replace(microsecond=0)
        with pymongo.MongoClient[dict[str, Any]](self.stack.ready["mongo_uri"]) as client:
            schedules = client.get_default_database()["schedules"]
            moved = {"timing.starts_at": now, "next_at": now, "next_run": now}
            assert schedules.update_one({"_id": schedule_id, "state": "active"}, {"$set": moved}).matched_count

    def fired(self, schedule_id: str) -> str:
        """The job of the schedule's first run."""

        def job() -> str | None:
            jobs = self.call("GET", "/jobs", params={"schedule_id": schedule_id}).raise_for_status().json()["jobs"]
            return jobs[-1]["job_id"] if jobs else None

        return wait_until(job, what="the firing of the schedule")


@pytest.fixture
def door(stack: Stack) -> Door:
    return Door(stack)


def told(items: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    assert len(items) == len({item["url"] for item in items}), "a posting came twice"
    return {(item["url"], item["title"], item["company"]) for item in items}


def truth(board: JobBoard, markup: Markup, ads: list[JobAd]) -> set[tuple[str, str, str]]:
    return {(board.posting_url(markup, ad), ad.title, ad.company) for ad in ads}


@contextmanager
def overheard(stack: Stack) -> Iterator[list[dict[str, Any]]]:
    """The keywords of all messages that ask for a look at a job, as they arrive at the broker."""
    heard: list[dict[str, Any]] = []
    client = redis.Redis.from_url(stack.ready["broker_url"])
    with client.monitor() as monitor:

        def listen() -> None:
            for command in monitor.listen():
                if command["command"].startswith("PING the-end"):
                    return
                if "LPUSH" in command["command"] and "enqueue_crawl" in command["command"]:
                    heard.extend(_keywords(body) for body in _BODY.findall(command["command"]))

        ear = threading.Thread(target=listen)
        ear.start()
        try:
            yield heard
        finally:
            redis.Redis.from_url(stack.ready["broker_url"]).execute_command("PING", "the-end")
            ear.join(60)
            client.close()


def _keywords(body: str) -> dict[str, Any]:
    _, keywords, _ = json.loads(base64.b64decode(body))
    return dict(keywords)


def test_all_of_a_board_is_scraped_by_a_run_that_is_asked_for(door: Door, board: JobBoard) -> None:
    site = door.add_site(board, "asked", "json-ld", "next_link")
    run_id = door.scrape(site_name="asked").raise_for_status().json()["data"]["run_id"]
    run = door.succeeded(run_id)
    assert (run["trigger"], run["site_schedule_id"], run["errors_count"]) == ("manual", site["number"], 0)
    assert run["completed_pages"] == POSTINGS // 20
    assert run["next"] is not None
    assert run["results"] == door.stack.items(run["task_id"])[:100]
    assert told(door.stack.items(run["task_id"])) == truth(board, "json-ld", board.postings)


@in_full("pages that scripts fill in crawler_render/test_rendering.py")
def test_all_of_a_board_that_scripts_fill_is_scraped_in_a_browser(door: Door, board: JobBoard) -> None:
    find_program("chromium", "chromium-browser", "google-chrome")
    door.add_site(board, "scripted", "json-ld", "infinite_scroll")
    run_id = door.scrape(site_name="scripted", search_term="ship's cook").json()["data"]["run_id"]
    items = door.stack.items(door.succeeded(run_id)["task_id"])
    assert told(items) == truth(board, "json-ld", board.found("ship's cook"))


def test_all_that_a_search_gives_is_the_answer_to_whoever_waits(door: Door, board: JobBoard) -> None:
    door.add_site(board, "waited", "html", "page_param")
    expected = board.found("data engineer", "lyon")
    assert 0 < len(expected) <= 25
    answer = door.scrape(mode="sync", site_name="waited", search_term="data engineer", location="Lyon")
    assert answer.status_code == httpx2.codes.OK, answer.text
    data = answer.json()["data"]
    assert (answer.json()["status"], data["status"], data["next"]) == ("success", "succeeded", None)
    assert told(data["results"]) == truth(board, "html", expected)
    assert door.run(data["run_id"])["results"] == data["results"]


def test_who_waits_gets_as_many_as_are_wanted(door: Door, board: JobBoard) -> None:
    door.add_site(board, "few", "json-ld", "page_param")
    data = door.scrape(mode="sync", site_name="few", results_wanted=7).raise_for_status().json()["data"]
    assert len(data["results"]) == 7
    assert told(data["results"]) <= truth(board, "json-ld", board.postings)


@in_full("a run that is asked for above, schedules in test_schedules.py")
def test_all_of_a_board_is_scraped_by_its_own_schedule(door: Door, board: JobBoard) -> None:
    site = door.add_site(board, "hourly", "json-ld", "none", payload={"keywords": "beekeeper", "location": ""})
    assert site["next_run_at"] is not None
    door.is_due_now(site["schedule_id"])
    job_id = door.fired(site["schedule_id"])
    assert door.succeeded(f"sched_{job_id}")["trigger"] == "scheduled"
    assert told(door.stack.items(job_id)) == truth(board, "json-ld", board.found("beekeeper"))
    (fire,) = door.call("GET", "/scheduler/status", params={"last": 1}).json()["last_fires"]
    assert (fire["job_id"], fire["kind"]) == (job_id, "fired")


def test_all_of_a_search_is_scraped_by_its_target_whose_message_says_what_it_is(door: Door, board: JobBoard) -> None:
    site = door.add_site(board, "searched", "details", "next_link")
    words = {"keywords": "python", "location": "Göteborg"}
    target = door.call("POST", "/targets", json={"site": "searched", **words}).raise_for_status().json()
    with overheard(door.stack) as heard:
        door.is_due_now(target["schedule_id"])
        job_id = door.fired(target["schedule_id"])
        wait_until(lambda: [one for one in heard if one.get("job_id") == job_id], what="its message")
    message = next(one for one in heard if one.get("job_id") == job_id)
    assert set(message) == {"job_id", *TARGET_FIELDS}
    assert message == {
        "job_id": job_id,
        "target_id": target["number"],
        "website_id": site["number"],
        "website_name": "searched",
        "search_url": board.search_url("details", "next_link", "python", "Göteborg"),
        "requires_playwright": False,
        "pagination_type": "next_link",
        "keywords_used": "python",
        "location_used": "Göteborg",
        "attempt_count": 0,
    }
    run = door.succeeded(f"sched_{job_id}")
    assert run["site_schedule_id"] == site["number"]
    assert told(door.stack.items(job_id)) == truth(board, "details", board.found("python", "Göteborg"))
    assert door.call("GET", f"/targets/{target['id']}").json()["last_scheduled"] is not None


def test_a_run_on_a_slow_site_is_not_waited_for_and_goes_on_to_its_end(door: Door, board: JobBoard) -> None:
    # more than is waited for: robots.txt and a page
    board.delay = 0.6 * SYNC_TIMEOUT
    door.add_site(board, "slow", "json-ld", "page_param")
    answer = door.scrape(mode="sync", site_name="slow", results_wanted=25)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "run_goes_on")
    run_id = answer.json()["error"]["detail"]["run_id"]
    assert door.run(run_id)["status"] in {"queued", "running"}
    board.delay = 0
    assert len(door.succeeded(run_id)["results"]) == 25


@in_full("who waits is answered in web/test_scrape.py")
def test_whoever_waits_is_told_the_run_when_the_gateway_is_stopped(door: Door, board: JobBoard) -> None:
    board.delay = 1
    door.add_site(board, "left", "json-ld", "page_param")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(door.scrape, mode="sync", site_name="left")
        wait_until(lambda: board.access_log, what="the first visit")
        stopped = time.monotonic()
        door.stack.kill("gateway", signal.SIGTERM)
        answer = waiting.result()
        assert time.monotonic() - stopped < SYNC_TIMEOUT - 1
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "run_goes_on")
    board.delay = 0
    assert len(door.succeeded(answer.json()["error"]["detail"]["run_id"])["results"]) == 25


def test_runs_of_one_site_come_one_after_the_other(door: Door, board: JobBoard) -> None:
    board.delay = 0.3
    door.add_site(board, "single", "json-ld", "next_link")
    started = [door.scrape(site_name="single", results_wanted=40).json()["data"]["run_id"] for _ in range(2)]
    first, second = sorted((door.succeeded(run_id) for run_id in started), key=lambda run: run["started_at"])
    assert second["started_at"] >= first["finished_at"]


def test_the_queue_tells_of_the_worker_and_of_each_site(door: Door) -> None:
    status = door.call("GET", "/jobs/queue/status").json()
    assert status["workers"]["alive"] == 1
    assert status["waiting"]["total"] == status["running"] == 0
    sites = {site["site_name"]: site for site in status["sites"]}
    assert {"asked", "waited", "searched", "slow", "single"} <= set(sites)
    assert all(site["success_rate"] == 1 for site in sites.values())
    assert sites["single"]["runs"] == 2
    assert door.call("GET", "/scheduler/status").json()["beats_alive"] == 1
