"""A user who sends the gateway every request that writes something, and repeats a request after a 503."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from jobs import make_job
from pymongo.database import Database

from gateway.application import create_app
from gateway.clock import utc_now
from gateway.contract.records import SpiderInfo
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.store import JobStore
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document

ENDED, DEAD = "a" * 32, "b" * 32
SITE = {"name": "board", "search_url": "https://jobs.example.com/?q={keywords}&l={location}"}
#: How often a request is sent at most.
PATIENCE = 12


@dataclass
class Door:
    """The gateway, as a patient user calls it."""

    http: httpx2.Client
    #: Requests that were answered with 503: method and path.
    refused: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        """The answer's body. Asks again after a 503; any other refusal fails the test."""
        for _ in range(PATIENCE):
            answer = self.http.request(method, path, **options)
            if answer.status_code != httpx2.codes.SERVICE_UNAVAILABLE:
                break
            assert int(answer.headers["Retry-After"]) > 0
            self.refused.append(f"{method} {path}")
        gone = method == "DELETE" and answer.status_code == 404 and f"{method} {path}" in self.refused
        assert gone or answer.status_code == expected, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None


def prepare(database: Database[Document]) -> None:
    ensure_indexes(database)
    SpiderStore(database).publish("n1", [SpiderInfo(project="default", name=name) for name in ("seo", "jobs")])
    now = utc_now()
    NodeStore(database).heartbeat("n1", url="http://n1", max_slots=1, alive=[], present=[], beating_since=now)
    attempt = Attempt(attempt=1, node="n1", dispatched_at=now)
    over = {"settled": True, "live_key": None, "attempt": 1, "attempts": {"1": attempt}, "finished_at": now}
    jobs = JobStore(database)
    jobs.insert(make_job(id=ENDED, status=JobStatus.FINISHED, **over))
    jobs.insert(make_job(id=DEAD, status=JobStatus.ERROR, dead=True, **over))
    ItemStore(database).insert([Item(ENDED, 1, end, {"number": end}) for end in range(5)])


def tell(url: str, redis_url: str, folder: Path) -> list[str]:
    """Send all requests. Returns those that were answered with 503."""
    settings = Settings(mongo_uri=url, redis_url=redis_url, discoverybot_home=folder)
    with serving(settings) as door:
        crawls(door)
        schedules(door)
        sites(door)
        everything_else(door)
        keys(door)
    return door.refused


def crawls(door: Door) -> None:
    body = {"user_id": "ada", "spider": "seo", "start_urls": ["https://example.com/1"]}
    first = door.ask("POST", "/crawl", json=body)
    again = door.ask("POST", "/crawl", json={**body, "webhook_url": "https://example.com/hook"})
    assert (again["job_id"], again["cached"]) == (first["job_id"], True)
    fresh = door.ask("POST", "/crawl", json={**body, "ignore_cache": True}, headers={"Idempotency-Key": "fresh"})
    assert fresh["job_id"] != first["job_id"]
    keyed = {"json": {**body, "start_urls": ["https://example.com/2"]}, "headers": {"Idempotency-Key": "two"}}
    job = door.ask("POST", "/crawl", **keyed)["job_id"]
    assert door.ask("POST", "/crawl", **keyed)["job_id"] == job
    for job_id in (first["job_id"], fresh["job_id"], job):
        assert door.ask("POST", f"/jobs/{job_id}/cancel")["status"] == "cancelled"


def schedules(door: Door) -> None:
    crawl = {"user_id": "ada", "spider": "seo", "start_urls": ["https://example.com/3"]}
    body = {**crawl, "interval": "every 1h"}
    made = door.ask("POST", "/schedules", 201, json=body, headers={"Idempotency-Key": "hourly"})
    address = f"/schedules/{made['schedule_id']}"
    assert door.ask("PATCH", address, json={"interval": "every 2h"})["interval"] == "every 2h"
    door.ask("POST", f"{address}/pause")
    assert door.ask("POST", f"{address}/resume")["next_run"]
    later = door.ask("POST", "/crawl", 202, json={**crawl, "schedule_at": "2099-01-01T00:00:00Z"})
    assert later["job_id"]
    door.ask("DELETE", address, 204)


def sites(door: Door) -> None:
    assert door.ask("POST", "/sites", 201, json=SITE)["name"] == "board"
    assert door.ask("PATCH", "/sites/board", json={"interval_minutes": 5})["interval_minutes"] == 5
    target = door.ask("POST", "/targets", 201, json={"site": "board", "keywords": "go"})
    assert door.ask("GET", "/targets")["targets"]
    door.ask("PATCH", f"/targets/{target['id']}", json={"keywords": "rust"})
    door.ask("DELETE", f"/targets/{target['id']}", 204)
    door.ask("DELETE", "/sites/board", 204)


def everything_else(door: Door) -> None:
    door.ask("PUT", "/projects/shop/env/REGION", json={"value": "eu"})
    for _ in range(2):
        secret = door.ask("POST", "/webhooks/secret", 201, params={"user_id": "ada"})
    assert door.ask("GET", "/webhooks/secret", params={"user_id": "ada"}) == secret
    endpoint = door.ask("POST", "/endpoints", 201, json={"user_id": "ada", "url": "https://example.com/hook"})
    place = f"/endpoints/{endpoint['endpoint_id']}"
    told = door.ask("POST", f"{place}/test")
    assert told["delivery_id"] in {one["delivery_id"] for one in door.ask("GET", f"{place}/deliveries")["deliveries"]}
    door.ask("POST", f"{place}/deliveries/resend", json={"missing": True})
    assert door.ask("POST", f"{place}/secret", 201)["secret"] != endpoint["secret"]
    assert door.ask("PATCH", place, json={"paused": True})["paused"]
    door.ask("DELETE", place, 204)
    rule = door.ask("POST", "/alerts/rules", 201, json={"user_id": "ada", "name": "a", "when": {"measure": "failed"}})
    place = f"/alerts/rules/{rule['rule_id']}"
    assert door.ask("PATCH", place, json={"paused": True})["paused"]
    door.ask("DELETE", place, 204)
    assert door.ask("GET", f"/jobs/{ENDED}/fields")["fields"]
    door.ask("DELETE", f"/dead-letters/{DEAD}", 204)
    door.ask("DELETE", f"/jobs/{ENDED}", 204)
    assert door.ask("POST", "/nodes/n1/drain")["state"] == "draining"
    assert door.ask("POST", "/nodes/n1/resume")["state"] != "draining"


def keys(door: Door) -> None:
    """From the first key on, every call needs one."""
    made = door.ask("POST", "/keys", 201, json={"user_id": "root", "scopes": ["admin"]})
    door.http.headers["Authorization"] = f"Bearer {made['key']}"
    for _ in range(200):
        if door.ask("GET", "/session")["user_id"] == "root":
            break
        time.sleep(0.05)  # for a moment, a gateway still takes it that there is no key
    anne = door.ask("POST", "/keys", 201, json={"user_id": "anne", "scopes": ["crawl"]})
    invited = door.ask("POST", "/keys", 201, json={"user_id": "n", "scopes": ["read"]})
    door.ask("DELETE", f"/keys/{invited['key_id']}")
    with httpx2.Client(base_url=door.http.base_url, timeout=60, trust_env=False) as http:
        browser = Door(http, door.refused)
        view = browser.ask("POST", "/session", json={"key": anne["key"]})
        assert view["user_id"] == "anne"
        browser.ask("DELETE", "/session", 204, headers={"X-CSRF-Token": view["csrf_token"]})
    wrong = {"Authorization": f"Bearer {made['key'][:-4]}AAAA"}
    assert door.http.get("/jobs", headers=wrong).status_code in {401, 503}


@contextmanager
def serving(settings: Settings) -> Iterator[Door]:
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        with httpx2.Client(base_url=address, timeout=60, trust_env=False) as client:
            yield Door(client)
    finally:
        server.should_exit = True
        thread.join(60)


def check(database: Database[Document]) -> None:
    """Everything that was asked for is there once."""
    jobs = list(database["jobs"].find())
    assert len(jobs) == 5, [(job["_id"], job["status"]) for job in jobs]
    assert sorted(key["user_id"] for key in database["keys"].find()) == ["anne", "n", "root"]
    for gone in ("schedules", "sites", "targets"):
        assert database[gone].count_documents({}) == 0, gone
