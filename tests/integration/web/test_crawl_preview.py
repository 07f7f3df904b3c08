"""`POST /crawl/preview`: what `POST /crawl` would answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
from integration.web.board import Serve, open_board
from pymongo.database import Database

from gateway.clock import to_iso, utc_now
from gateway.jobs.store import JobStore
from gateway.nodes.store import NodeStore
from gateway.settings import Settings

Crawl = dict[str, Any]
TOMORROW = to_iso(utc_now() + timedelta(days=1))


def preview(gateway: httpx2.Client, body: Crawl) -> Crawl:
    answer = gateway.post("/crawl/preview", json=body)
    assert answer.status_code == 200, answer.text
    seen: Crawl = answer.json()
    return seen


def test_a_preview_says_what_is_filled_in_and_makes_nothing(
    gateway: httpx2.Client, database: Database[Crawl], crawl: Crawl
) -> None:
    mine = {"user_id": crawl["user_id"]}
    seen = preview(gateway, {**crawl, "params": {"robots": False}})
    assert (seen["accepted"], seen["problems"], seen["schedule"], seen["runs"]) == (True, [], None, [])
    assert (seen["answer"]["cached"], seen["answer"]["scheduled"], seen["answer"]["job_id"]) == (False, False, None)
    filled = seen["crawl"]
    assert (filled["project"], filled["timeout"], filled["max_retries"]) == ("default", 3600, 3)
    assert filled["params"] == {"robots": False}
    preview(gateway, {**crawl, "interval": "@daily"})
    assert [database[name].count_documents(mine) for name in ("jobs", "schedules")] == [0, 0]
    assert database["audit"].count_documents({"route": "POST /crawl/preview"}) == 0
    # the preview claims no dedupe key: the first real request is new
    assert gateway.post("/crawl", json={**crawl, "params": {"robots": False}}).json()["cached"] is False


def test_a_crawl_that_exists_is_named(gateway: httpx2.Client, jobs: JobStore, crawl: Crawl) -> None:
    job_id = gateway.post("/crawl", json=crawl).json()["job_id"]
    webhook = "http://93.184.215.14/told"
    answer = preview(gateway, {**crawl, "webhook_url": webhook})["answer"]
    assert (answer["cached"], answer["job_id"], answer["status"]) == (True, job_id, "pending")
    assert answer["cached_at"].endswith("Z")
    assert answer["cached_at"] in answer["reason"]
    assert jobs.get(job_id).webhooks == [], "a preview adds no webhook"
    fresh = preview(gateway, {**crawl, "ignore_cache": True})["answer"]
    assert (fresh["cached"], fresh["job_id"]) == (False, None)
    assert preview(gateway, {**crawl, "depth": 1})["answer"]["cached"] is False


def test_a_schedule_that_exists_is_named_with_its_runs(
    gateway: httpx2.Client, make: Callable[..., Crawl], crawl: Crawl
) -> None:
    schedule = make(jitter=0.2)
    asked = {**crawl, "interval": "0 9 * * *", "timezone": "Europe/Paris"}
    seen = preview(gateway, asked)
    assert (seen["answer"]["job_id"], seen["answer"]["status"]) == (schedule["schedule_id"], "active")
    following = gateway.get(f"/schedules/{schedule['schedule_id']}/next").json()["runs"]
    assert seen["runs"] == following
    gateway.post(f"/schedules/{schedule['schedule_id']}/pause").raise_for_status()
    seen = preview(gateway, asked)
    assert (seen["answer"]["status"], seen["runs"]) == ("paused", [])


def test_coming_runs_are_those_of_its_zone_with_changes_of_the_clock(gateway: httpx2.Client, crawl: Crawl) -> None:
    asked = {
        "schedule_at": "2127-03-29T00:00:00.000Z",
        "interval": "30 2 * * *",
        "timezone": "Europe/Paris",
        "max_runs": 3,
    }
    seen = preview(gateway, {**crawl, **asked})
    assert [(run["local"], run["clocks_moved_minutes"]) for run in seen["runs"]] == [
        ("2127-03-29T02:30:00+01:00", 0),
        ("2127-03-30T03:00:00+02:00", 60),
        ("2127-03-31T02:30:00+02:00", 0),
    ]
    assert seen["schedule"] == {**asked, "ends_at": None, "jitter": 0, "overlap": "skip", "catch_up": "one"}
    once = preview(gateway, {**crawl, "schedule_at": TOMORROW})
    assert [run["at"] for run in once["runs"]] == [TOMORROW]
    assert (once["place"], once["answer"]["scheduled"]) == (None, True)


def test_all_that_is_wrong_is_said_as_the_crawl_itself_would_say_it(gateway: httpx2.Client, crawl: Crawl) -> None:
    urls = ["http://127.0.0.1/", "https://example.com/", "ftp://example.com/"]
    wrong = {**crawl, "start_urls": urls, "params": {"robots": 3}, "interval": "61 * * * *"}
    seen = preview(gateway, wrong)
    assert (seen["accepted"], seen["answer"], seen["runs"]) == (False, None, [])
    fields = [one["field"] for one in seen["problems"]]
    assert fields == ["start_urls.0", "start_urls.2", "interval", "params.robots"]
    assert [one["status"] for one in seen["problems"]] == [403, 422, 422, 422]
    for one in seen["problems"]:
        alone = {**crawl, one["field"].split(".")[0]: wrong[one["field"].split(".")[0]]}
        if one["field"] == "start_urls.2":
            alone["start_urls"] = ["https://example.com/", "https://example.com/b", "ftp://example.com/"]
        error = gateway.post("/crawl", json=alone)
        said = error.json()["error"]
        assert (error.status_code, said["code"], said["message"]) == (one["status"], one["code"], one["message"])


def test_what_cannot_be_read_or_understood(gateway: httpx2.Client, crawl: Crawl) -> None:
    body = {**crawl, "depth": -1, "tags": 3}
    told, real = gateway.post("/crawl/preview", json=body), gateway.post("/crawl", json=body)
    assert (told.status_code, told.json()["error"]) == (422, real.json()["error"])
    seen = preview(gateway, {**crawl, "spider": "nosuch"})
    assert (seen["problems"][0]["field"], seen["accepted"], seen["crawl"]) == ("spider", False, None)
    zone = preview(gateway, {**crawl, "interval": "@daily", "timezone": "Europe/Pariss"})
    assert [one["field"] for one in zone["problems"]] == ["timezone"]


def test_where_it_would_run_and_why_it_would_wait(serve: Serve, settings: Settings) -> None:
    limited = settings.model_copy(update={"crawl_user_waiting_max": 1})
    with open_board(serve, limited, "previews") as board:
        body = {"user_id": "anne", "spider": "jobs", "start_urls": ["https://example.com/"]}
        nobody = preview(board.http, body)["place"]
        assert nobody == {"node": None, "waiting_reason": "no_node", "queue_position": 1}
        url, now = "http://127.0.0.1:6800", utc_now()
        facts: Crawl = {"url": url, "max_slots": 2, "alive": [], "present": [], "beating_since": now}
        NodeStore(board.database).heartbeat("n1", **facts, protocols={1})
        # a node of this protocol would ignore `expect`, so it does not get the crawl
        assert preview(board.http, {**body, "expect": {"min_items": 1}})["place"] == nobody
        assert preview(board.http, body)["place"] == {"node": "n1", "waiting_reason": None, "queue_position": 1}
        job_id = board.http.post("/crawl", json=body).json()["job_id"]
        other = {**body, "start_urls": ["https://example.com/other"]}
        for _ in range(3):
            # a preview uses up nothing
            full = preview(board.http, other)
            assert [(one["status"], one["code"]) for one in full["problems"]] == [(429, "user_quota")]
        assert preview(board.http, body)["answer"]["job_id"] == job_id, "a repeat is answered all the same"
        assert preview(board.http, {**other, "user_id": "bert"})["place"]["queue_position"] == 2
