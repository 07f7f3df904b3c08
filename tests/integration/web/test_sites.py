"""`/sites` and `/jobs/sites` over HTTP."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from gateway.contract.crawl import Expect
from gateway.jobs.store import JobStore

SEARCH = "https://jobs.example.com/?q={keywords}&l={location}"
DEFAULTS = {
    "enabled": True,
    "project": "default",
    "spider": "jobs",
    "requires_playwright": False,
    "pagination_type": "none",
    "selectors": {},
    "interval_minutes": 60,
    "min_pause_seconds": 2,
    "max_pause_seconds": 8,
    "max_retries": 3,
    "rate_limit": None,
    "allow_overlap": False,
    "payload": {},
    "expect": None,
    "dataset": None,
    "last_run_at": None,
}


@pytest.fixture
def name() -> str:
    """The name of a site that no other test has."""
    return f"board-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def site(name: str) -> dict[str, Any]:
    """A valid record, of a spider that exists."""
    return {"name": name, "spider": "seo", "search_url": SEARCH}


def added(gateway: httpx2.Client, site: dict[str, Any]) -> dict[str, Any]:
    answer = gateway.post("/sites", json=site)
    assert answer.status_code == 201, answer.text
    view: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/sites/{site['name']}"
    return view


def test_a_site_is_served_with_every_field_and_its_default(gateway: httpx2.Client, site: dict[str, Any]) -> None:
    view = added(gateway, site)
    assert {key: view[key] for key in DEFAULTS} == DEFAULTS | {"spider": "seo"}
    assert (view["search_url"], view["next_run_at"], view["schedule_state"]) == (SEARCH, None, "paused")
    assert view["number"] >= 1
    assert gateway.get(f"/sites/{site['name']}").json() == view


def test_a_site_that_needs_no_words_is_run_by_itself(gateway: httpx2.Client, site: dict[str, Any]) -> None:
    view = added(gateway, {**site, "search_url": "https://shop.example.com/", "interval_minutes": 10})
    due = datetime.fromisoformat(view["next_run_at"]) - datetime.now(UTC)
    assert timedelta(minutes=8) < due < timedelta(minutes=12)
    schedule = gateway.get(f"/schedules/{view['schedule_id']}").json()
    assert (schedule["site"], schedule["interval"], schedule["user_id"]) == (view["name"], "every 10m", "operator")


def test_a_name_that_exists_is_a_conflict(gateway: httpx2.Client, site: dict[str, Any]) -> None:
    added(gateway, site)
    again = gateway.post("/sites", json=site)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "site_exists")


def test_a_change_leaves_the_rest_and_is_answered_with_what_it_is_now(
    gateway: httpx2.Client, site: dict[str, Any]
) -> None:
    view = added(gateway, {**site, "rate_limit": "30/m"})
    changes = {"rate_limit": None, "enabled": False, "payload": {"robots": True}, "max_pause_seconds": 9.5}
    changed = gateway.patch(f"/sites/{view['name']}", json=changes)
    assert changed.status_code == 200, changed.text
    expected = view | changes | {"updated_at": changed.json()["updated_at"]}
    assert changed.json() == expected
    assert gateway.patch(f"/sites/{view['name']}", json={}).json()["enabled"] is False


def test_of_many_changes_at_once_none_is_lost_and_the_schedule_is_as_the_last_one_left_it(
    gateway: httpx2.Client, site: dict[str, Any]
) -> None:
    view = added(gateway, {**site, "search_url": "https://shop.example.com/", "max_retries": 0})
    changes = [
        {"enabled": number % 2 == 0, "interval_minutes": 10 + number, "selectors": {}, "payload": {"robots": True}}
        for number in range(20)
    ]
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda change: gateway.patch(f"/sites/{site['name']}", json=change), changes))
    assert {answer.status_code for answer in answers} == {200}
    now = gateway.get(f"/sites/{site['name']}").json()
    assert now["schedule_state"] == ("active" if now["enabled"] else "paused")
    schedule = gateway.get(f"/schedules/{view['schedule_id']}").json()
    assert schedule["interval"] == f"every {now['interval_minutes']}m"


def test_what_is_secret_of_how_pages_are_fetched_is_not_shown(gateway: httpx2.Client, site: dict[str, Any]) -> None:
    fetch = {"headers": {"X-Token": "secret-1"}, "proxy": "http://me:secret-2@proxy.example.com:80"}
    added(gateway, {**site, "fetch": fetch})
    shown = gateway.get(f"/sites/{site['name']}")
    assert "secret" not in shown.text
    assert list(shown.json()["fetch"]["headers"]) == ["X-Token"]


def test_each_run_is_to_find_what_the_site_expects(
    gateway: httpx2.Client, site: dict[str, Any], jobs: JobStore
) -> None:
    expect = {"min_items": 20, "max_error_rate": None, "fields": {"title": 0.9}, "stop_early_after": None}
    assert added(gateway, {**site, "expect": {"min_items": 20, "fields": {"title": 0.9}}})["expect"] == expect
    asked = {"site_name": site["name"], "search_term": "go", "results_wanted": 5}
    run = gateway.post("/jobs/scrape", json=asked).json()["data"]["task_id"]
    assert jobs.get(run).spec.expect == Expect(min_items=5, fields={"title": 0.9})
    assert gateway.patch(f"/sites/{site['name']}", json={"expect": None}).json()["expect"] is None
    assert gateway.get(f"/jobs/{run}").json()["spec"]["expect"] == {**expect, "min_items": 5}


def test_what_each_run_finds_becomes_part_of_the_sites_dataset(
    gateway: httpx2.Client, site: dict[str, Any], jobs: JobStore
) -> None:
    added(
        gateway,
        {**site, "search_url": "https://shop.example.com/", "dataset": {"name": site["name"], "key": ["url"]}},
    )
    asked = {"site_name": site["name"], "search_term": "", "results_wanted": 5}
    run = jobs.get(gateway.post("/jobs/scrape", json=asked).json()["data"]["task_id"])
    assert (run.spec.dataset and run.spec.dataset.name, run.user_id) == (site["name"], "operator")
    assert gateway.patch(f"/sites/{site['name']}", json={"dataset": None}).json()["dataset"] is None
    again = gateway.post("/jobs/scrape", json=asked).json()["data"]["task_id"]
    assert jobs.get(again).spec.dataset is None


def test_sites_are_listed_by_name_page_by_page(gateway: httpx2.Client, site: dict[str, Any]) -> None:
    names = [f"{site['name']}-{letter}" for letter in "cab"]
    for each in names:
        added(gateway, {**site, "name": each, "enabled": not each.endswith("c")})
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = gateway.get("/sites", params={"limit": 2, **after}).json()
        seen += [one["name"] for one in page["sites"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == sorted(seen)
    assert set(names) <= set(seen)
    disabled = gateway.get("/sites", params={"enabled": "false", "limit": 200}).json()["sites"]
    assert names[0] in {one["name"] for one in disabled}
    assert names[1] not in {one["name"] for one in disabled}


def test_sites_say_what_they_can_be_asked_for(gateway: httpx2.Client, site: dict[str, Any]) -> None:
    added(gateway, {**site, "search_url": "https://jobs.example.com/?q={keywords}"})
    listed = gateway.get("/jobs/sites")
    assert listed.status_code == 200
    mine = next(one for one in listed.json()["sites"] if one["site_name"] == site["name"])
    assert (mine["keywords"], mine["location"], mine["is_remote"], mine["enabled"]) == (True, False, False, True)


def test_a_site_with_targets_is_deleted_only_by_force(gateway: httpx2.Client, site: dict[str, Any]) -> None:
    view = added(gateway, site)
    target = gateway.post("/targets", json={"site": site["name"], "keywords": "go"}).json()
    refused = gateway.delete(f"/sites/{site['name']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "site_in_use")
    assert gateway.delete(f"/sites/{site['name']}", params={"force": "true"}).status_code == 204
    for gone in (f"/sites/{site['name']}", f"/targets/{target['id']}", f"/schedules/{view['schedule_id']}"):
        assert gateway.get(gone).status_code == 404
    assert gateway.delete(f"/sites/{site['name']}").status_code == 404


@pytest.mark.parametrize(
    ("field", "change", "status"),
    [
        ("name", {"name": "a b"}, 422),
        ("name", {"name": "../x"}, 422),
        ("search_url", {"search_url": "https://a.example/{term}"}, 422),
        ("search_url", {"search_url": "http://127.0.0.1/"}, 403),
        ("search_url", {"pagination_type": "page_param"}, 422),
        ("pagination_type", {"pagination_type": "pages"}, 422),
        ("enabled", {"enabled": 1}, 422),
        ("interval_minutes", {"interval_minutes": 0}, 422),
        ("interval_minutes", {"interval_minutes": "60"}, 422),
        ("max_pause_seconds", {"max_pause_seconds": 1}, 422),
        ("rate_limit", {"rate_limit": "often"}, 422),
        ("selectors.title", {"spider": "jobs", "selectors": {"title": "h2["}}, 422),
        ("payload", {"payload": {"$where": 1}}, 422),
        ("payload.colour", {"payload": {"colour": "red"}}, 422),
        ("spider", {"spider": "nope"}, 422),
        ("fetch.proxy", {"fetch": {"proxy": "http://127.0.0.1:3128"}}, 403),
        ("fetch.colour", {"fetch": {"colour": "red"}}, 422),
        ("expect.min_items", {"expect": {"min_items": "5"}}, 422),
        ("colour", {"colour": "red"}, 422),
    ],
)
def test_what_is_wrong_with_a_site_is_named_and_nothing_is_left_behind(
    *, gateway: httpx2.Client, site: dict[str, Any], field: str, change: dict[str, Any], status: int
) -> None:
    answer = gateway.post("/sites", json=site | change)
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (status, field), answer.text
    assert gateway.get(f"/sites/{site['name']}").status_code == 404


def test_what_is_wrong_with_a_change_is_named_and_changes_nothing(
    gateway: httpx2.Client, site: dict[str, Any]
) -> None:
    view = added(gateway, site)
    wrong: dict[str, Any] = {"name": "x", "enabled": None, "search_url": ""}
    for field, value in wrong.items():
        answer = gateway.patch(f"/sites/{site['name']}", json={field: value})
        assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (422, field)
    assert gateway.get(f"/sites/{site['name']}").json() == view
    assert gateway.patch("/sites/nobody", json={}).json()["error"]["code"] == "site_not_found"
