"""The record of who did what: each call that may change something, refused ones, too, and no secrets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from integration.web.board import Board, Serve, open_board
from jobs import make_job
from stack import wait_until
from stores import embedded_mongo

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.contract.records import SpiderInfo
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings


class Door:
    def __init__(self, board: Board) -> None:
        self.board = board
        issue = KeyIssue(KeyStore(board.database))
        issued = {"anne": issue.issue("anne", [Scope.CRAWL]), "root": issue.issue("root", [Scope.ADMIN])}
        self.ids = {name: one.key.id for name, one in issued.items()}
        self.texts = {name: str(one.token) for name, one in issued.items()}
        self.keys = {name: {"Authorization": f"Bearer {text}"} for name, text in self.texts.items()}

    def call(self, who: str, method: str, path: str, **more: Any) -> httpx2.Response:
        return self.board.http.request(method, path, headers=self.keys[who], **more)

    def told(self, **query: Any) -> list[dict[str, Any]]:
        page = self.call("root", "GET", "/audit", params=query).raise_for_status().json()
        return list(page["entries"])

    def wait_told(self, count: int, **query: Any) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]] | None:
            told = self.told(**query)
            return told if len(told) >= count else None

        return wait_until(enough, what=f"{count} entries")


@pytest.fixture
def door(serve: Serve, settings: Settings) -> Iterator[Door]:
    with open_board(serve, settings, f"audit-{uuid.uuid4().hex[:8]}") as board:
        yield Door(board)


def test_a_call_that_makes_something_is_told_with_what_it_made(door: Door) -> None:
    body = {"user_id": "anne", "spider": "jobs", "start_urls": ["https://example.com/?token=secret"]}
    answer = door.call("anne", "POST", "/crawl", json=body)
    job_id = answer.raise_for_status().json()["job_id"]
    (entry,) = door.wait_told(1)
    assert entry.pop("at").endswith("Z")
    assert len(entry.pop("id")) == 32
    assert entry == {
        "kind": "call", "user_id": "anne", "key_id": door.ids["anne"], "scope": "crawl", "method": "POST",
        "route": "/crawl", "resources": {"job_id": job_id}, "changes": {}, "status": 200,
        "request_id": answer.headers["x-request-id"], "address": "127.0.0.1", "count": None, "last_at": None,
    }  # fmt: skip
    kept = str(list(door.board.database["audit"].find()))
    assert not [secret for secret in (*door.texts.values(), "example.com", "secret") if secret in kept]


def test_a_change_is_told_with_what_is_different_before_and_after(door: Door) -> None:
    headers = {"user_id": "anne", "spider": "jobs", "start_urls": ["https://example.com/"], "interval": "@daily"}
    made = door.call("anne", "POST", "/schedules", json=headers).raise_for_status().json()
    place = f"/schedules/{made['schedule_id']}"
    for change in ({"interval": "every 2h", "name": "prices"}, {"interval": "every 2h"}, {"interval": "none"}):
        door.call("anne", "PATCH", place, json=change)
    endpoint = door.call("anne", "POST", "/endpoints", json={"url": "https://example.com/hook-of-a-secret"}).json()
    url = "https://example.com/another-secret"
    door.call("anne", "PATCH", f"/endpoints/{endpoint['endpoint_id']}", json={"url": url, "paused": True})
    entries = [entry for entry in door.wait_told(6) if entry["method"] == "PATCH"]
    told = [entry["changes"] for entry in reversed(entries)]
    assert told[0]["interval"] == ['"@daily"', '"every 2h"']
    assert told[0]["name"] == ["null", '"prices"']
    assert (told[1], told[2]) == ({}, {})
    assert told[3] == {"url": ["***", "***"], "paused": ["false", "true"]}
    assert "secret" not in str(list(door.board.database["audit"].find()))


def test_what_is_refused_is_told_too_and_what_only_reads_is_not(door: Door) -> None:
    job = make_job(user_id="bert")
    door.board.jobs.insert(job)
    assert door.call("anne", "POST", f"/jobs/{job.id}/cancel").status_code == 404
    assert door.call("anne", "DELETE", "/sites/board").status_code == 403
    assert door.call("anne", "POST", "/schedules", json={}).status_code == 422
    assert door.call("anne", "GET", "/jobs").status_code == 200
    assert door.call("anne", "POST", "/nowhere").status_code == 404
    told = door.wait_told(3)
    assert [(entry["method"], entry["route"], entry["status"]) for entry in reversed(told)] == [
        ("POST", "/jobs/{job_id}/cancel", 404), ("DELETE", "/sites/{name}", 403), ("POST", "/schedules", 422),
    ]  # fmt: skip
    assert [entry["resources"] for entry in reversed(told)] == [
        {"error": "job_not_found", "job_id": job.id},
        {"error": "scope_missing", "name": "board"},
        {"error": "invalid_request"},
    ]


def test_a_refused_deployment_is_told_with_its_version_and_on_its_projects_page(door: Door) -> None:
    for project, version in (("shop", "1.5"), ("other", "9")):
        path = f"/projects/{project}/versions?version={version}"
        assert door.call("root", "POST", path, content=b"no egg").status_code == 422
    entry = door.wait_told(2)[-1]
    assert entry["resources"] == {"project": "shop", "version": "1.5", "error": "invalid_request"}
    info = SpiderInfo(project="shop", version="1.4", name="offers", params_schema=None)
    SpiderStore(door.board.database).publish("n1", [info])
    html = {"Accept": "text/html"}
    page = door.board.http.get("/console/projects/shop", headers={**door.keys["root"], **html}).text
    failed = page.partition("failed-deployments")[2].partition("</table>")[0]
    assert "1.5" in failed
    assert "invalid request" in failed
    assert ">9<" not in failed
    others = door.board.http.get("/console/projects/shop", headers={**door.keys["anne"], **html}).text
    assert "Failed deployments" not in others


def test_an_act_on_many_jobs_is_told_with_their_number(door: Door) -> None:
    for _ in range(2):
        door.board.jobs.insert(make_job(user_id="anne"))
    body: dict[str, Any] = {"filter": {}, "action": "cancel"}
    # this call only counts, so it is not recorded
    assert door.call("anne", "POST", "/jobs/bulk", json=body).json()["matched"] == 2
    body["expect"] = 2
    door.call("anne", "POST", "/jobs/bulk", json=body).raise_for_status()
    (entry,) = door.wait_told(1)
    assert (entry["route"], entry["resources"]) == ("/jobs/bulk", {"action": "cancel", "done": "2"})


def test_entries_are_filtered_and_paged(door: Door) -> None:
    for number in range(5):
        door.call("anne", "DELETE", f"/sites/{number}")
    door.call("root", "DELETE", "/sites/x")
    newest, *_ = door.wait_told(6)
    assert newest["resources"]["name"] == "x"
    assert [entry["user_id"] for entry in door.told(key_id=door.ids["root"])] == ["root"]
    assert len(door.told(user_id="anne", route="/sites/{name}")) == 5
    assert door.told(route="/sites") == []
    first = door.call("root", "GET", "/audit", params={"user_id": "anne", "limit": 3}).json()
    rest = door.call("root", "GET", "/audit", params={"user_id": "anne", "after": first["next"]}).json()
    assert rest["next"] is None
    names = [entry["resources"]["name"] for page in (first, rest) for entry in page["entries"]]
    assert names == ["4", "3", "2", "1", "0"]
    third = first["entries"][2]["at"]
    # several entries may have been noted in the same millisecond
    assert {"4", "3", "2"} <= {entry["resources"]["name"] for entry in door.told(user_id="anne", since=third)}
    assert {"2"}.isdisjoint(entry["resources"]["name"] for entry in door.told(user_id="anne", until=third))
    assert door.call("root", "GET", "/audit", params={"until": "yesterday"}).status_code == 422


def test_only_an_admin_may_look(door: Door) -> None:
    assert door.call("anne", "GET", "/audit").json()["error"]["code"] == "scope_missing"


def test_failed_logins_are_one_entry_an_address_and_hour(door: Door) -> None:
    for _ in range(4):
        door.board.http.get("/jobs", headers={"Authorization": "Bearer db_0123456789ab_guess"})
    assert door.board.http.get("/jobs").status_code == 401

    def counted() -> list[dict[str, Any]] | None:
        told = door.told(kind="login_failed")
        # there are two entries if a new hour has just begun
        return told if sum(entry["count"] for entry in told) == 4 else None

    for entry in wait_until(counted, what="four failed logins"):
        assert (entry["address"], entry["key_id"], entry["route"]) == ("127.0.0.1", None, None)


def test_while_the_store_is_away_nobody_waits_for_it_and_nothing_is_lost(
    serve: Serve, settings: Settings, tmp_path: Any
) -> None:
    with embedded_mongo(tmp_path) as store, serve(settings.model_copy(update={"mongo_uri": str(store)})) as http:
        assert http.delete("/sites/one").status_code == 404
        store.kill()
        assert http.delete("/sites/two").status_code == 503
        store.start()

        def told() -> list[str] | None:
            answer = http.get("/audit")
            names = [entry["resources"]["name"] for entry in answer.json()["entries"]] if answer.is_success else []
            return names if "two" in names else None

        assert sorted(wait_until(told, what="both entries")) == ["one", "two"]


def test_who_shows_no_key_leaves_no_entry_of_his_own(door: Door) -> None:
    for body in (None, {"key": "no key"}, {"no": "key"}):
        assert not door.board.http.post("/session", json=body).is_success
    assert not door.board.http.post("/session", headers={"Origin": "http://evil.example"}).is_success
    door.board.http.post("/session", json={"key": door.texts["anne"]}).raise_for_status()
    (entry,) = door.wait_told(1, kind="call")
    assert (entry["route"], entry["resources"]) == ("/session", {"key_id": door.ids["anne"]})
