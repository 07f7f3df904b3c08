"""`/targets` over HTTP."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest


@pytest.fixture
def site(gateway: httpx2.Client) -> str:
    """The name of a new site that can be searched."""
    name = f"board-{uuid.uuid4().hex[:12]}"
    record = {"name": name, "spider": "seo", "search_url": "https://jobs.example.com/?q={keywords}&l={location}"}
    assert gateway.post("/sites", json=record).status_code == 201
    return name


def added(gateway: httpx2.Client, **fields: Any) -> dict[str, Any]:
    answer = gateway.post("/targets", json=fields)
    assert answer.status_code == 201, answer.text
    view: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/targets/{view['id']}"
    return view


def test_a_target_is_served_with_every_field_by_id_and_by_number(gateway: httpx2.Client, site: str) -> None:
    view = added(gateway, site=site, keywords="c++", location="Paris")
    assert view == view | {
        "site": site,
        "keywords": "c++",
        "location": "Paris",
        "frequency": None,
        "timezone": "UTC",
        "enabled": True,
        "results_wanted": None,
        "is_remote": None,
        "last_scheduled": None,
    }
    assert datetime.fromisoformat(view["next_run"]) > datetime.now(UTC)
    assert gateway.get(f"/targets/{view['id']}").json() == view
    assert gateway.get(f"/targets/{view['number']}").json() == view


def test_a_frequency_is_minutes_or_cron_in_its_time_zone(gateway: httpx2.Client, site: str) -> None:
    minutes = added(gateway, site=site, frequency=45)
    assert minutes["frequency"] == 45
    assert gateway.get(f"/schedules/{minutes['schedule_id']}").json()["interval"] == "every 45m"
    cron = added(gateway, site=site, frequency="0 9 * * *", timezone="Europe/Paris")
    nine = datetime.fromisoformat(cron["next_run"]).astimezone(ZoneInfo("Europe/Paris"))
    assert (nine.hour, nine.minute, cron["frequency"]) == (9, 0, "0 9 * * *")


def test_a_change_leaves_the_rest_and_disabling_takes_the_next_run_away(gateway: httpx2.Client, site: str) -> None:
    view = added(gateway, site=site, keywords="go", frequency=45, results_wanted=5)
    changes = {"keywords": "rust", "frequency": None, "is_remote": True, "enabled": False}
    changed = gateway.patch(f"/targets/{view['number']}", json=changes)
    assert changed.status_code == 200, changed.text
    expected = view | changes | {"next_run": None, "updated_at": changed.json()["updated_at"]}
    assert changed.json() == expected
    again = gateway.patch(f"/targets/{view['id']}", json={"enabled": True}).json()
    assert again["next_run"] is not None
    gateway.patch(f"/sites/{site}", json={"enabled": False})
    assert gateway.get(f"/targets/{view['id']}").json()["next_run"] is None


def test_targets_are_listed_by_number_page_by_page(gateway: httpx2.Client, site: str) -> None:
    numbers = [added(gateway, site=site, keywords=word, enabled=word != "c")["number"] for word in "abc"]
    page = gateway.get("/targets", params={"site": site, "limit": 2}).json()
    assert [target["number"] for target in page["targets"]] == numbers[:2]
    rest = gateway.get("/targets", params={"site": site, "limit": 2, "after": page["next"]}).json()
    assert ([target["number"] for target in rest["targets"]], rest["next"]) == (numbers[2:], None)
    disabled = gateway.get("/targets", params={"site": site, "enabled": "false"}).json()["targets"]
    assert [target["keywords"] for target in disabled] == ["c"]


def test_a_deleted_target_is_gone_with_its_schedule(gateway: httpx2.Client, site: str) -> None:
    view = added(gateway, site=site)
    assert gateway.delete(f"/targets/{view['number']}").status_code == 204
    assert gateway.get(f"/targets/{view['id']}").json()["error"]["code"] == "target_not_found"
    assert gateway.get(f"/schedules/{view['schedule_id']}").status_code == 404
    assert gateway.delete(f"/targets/{view['id']}").status_code == 404


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("site", {"site": "nobody"}),
        ("keywords", {"keywords": 7}),
        ("frequency", {"frequency": "0 0 30 2 *"}),
        ("frequency", {"frequency": "* * * * * *"}),
        ("frequency", {"frequency": 0}),
        ("frequency", {"frequency": 2.5}),
        ("frequency", {"frequency": ""}),
        ("timezone", {"timezone": "Mars/Base"}),
        ("results_wanted", {"results_wanted": 0}),
        ("is_remote", {"is_remote": "yes"}),
        ("enabled", {"enabled": None}),
        ("colour", {"colour": "red"}),
    ],
)
def test_what_is_wrong_with_a_target_is_named_and_nothing_is_left_behind(
    gateway: httpx2.Client, site: str, field: str, change: dict[str, Any]
) -> None:
    answer = gateway.post("/targets", json={"site": site, **change})
    assert answer.status_code == 422
    assert answer.json()["error"]["detail"]["field"] == field, answer.text
    assert gateway.get("/targets", params={"site": site}).json()["targets"] == []


def test_words_that_the_site_has_no_place_for_are_refused(gateway: httpx2.Client, site: str) -> None:
    gateway.patch(f"/sites/{site}", json={"search_url": "https://jobs.example.com/?q={keywords}"})
    answer = gateway.post("/targets", json={"site": site, "keywords": "go", "location": "Paris"})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (422, "location")


@pytest.mark.parametrize("target", ["0", "99999999", "f" * 32, "x", "1e3", "%00"])
def test_what_is_no_target_is_not_there(gateway: httpx2.Client, target: str) -> None:
    for method in ("GET", "DELETE"):
        assert gateway.request(method, f"/targets/{target}").status_code == 404
