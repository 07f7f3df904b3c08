"""A key's budget over HTTP and by tools: it is set, shown, and used by every call that starts crawls."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from integration.web.agents import AgentsDoor, open_agents_door
from integration.web.board import Serve, problem

from gateway.jobs.job import JobStatus
from gateway.settings import Settings

BUDGET = {"pages": 50, "minutes": 90}
SPENT = (429, "budget_spent")
CRAWL: dict[str, Any] = {"spider": "jobs", "start_urls": ["https://example.com/"], "ignore_cache": True}


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings) -> Iterator[AgentsDoor]:
    with open_agents_door(serve, settings, f"budgets-{uuid.uuid4().hex[:8]}") as door:
        yield door


@pytest.fixture
def key(door: AgentsDoor) -> dict[str, Any]:
    """A new key of anne with a budget, by the name `spender`."""
    asked = {"user_id": "anne", "scopes": ["crawl"], "budget": BUDGET}
    made: dict[str, Any] = door.http("root", "POST", "/keys", json=asked).raise_for_status().json()
    door.keys["spender"] = made["key"]
    return made


def test_it_is_shown_to_its_owner_and_to_administrators(door: AgentsDoor, key: dict[str, Any]) -> None:
    none = {"hosts": None, "bytes": None}
    assert key["budget"]["limits"] == {**BUDGET, **none}
    ask = {**CRAWL, "max_pages": 20, "timeout": 600}
    door.http("spender", "POST", "/crawl", json=ask).raise_for_status()
    (listed,) = (one for one in door.http("root", "GET", "/keys").json()["keys"] if one["key_id"] == key["key_id"])
    mine = door.http("spender", "GET", "/session").json()["budget"]
    assert mine == listed["budget"]
    assert mine["left"] == {"pages": 30, "minutes": 80, **none}
    assert mine["reserved"] == {"pages": 20, "minutes": 10, **none}
    assert mine["until"].endswith("T00:00:00.000Z")
    assert door.http("anne", "GET", "/session").json()["budget"] is None


def test_every_door_is_shut_once_it_is_spent(door: AgentsDoor, key: dict[str, Any]) -> None:
    first = door.http("spender", "POST", "/crawl", json=CRAWL).raise_for_status().json()["job_id"]
    refused = door.http("spender", "POST", "/crawl", json={**CRAWL, "max_pages": 1})
    assert problem(refused) == SPENT
    assert 0 < int(refused.headers["retry-after"]) <= 24 * 3600
    assert "budget of 50 pages a day has 0 left" in refused.json()["error"]["message"]
    schedule = {**CRAWL, "interval": "@daily", "name": key["key_id"]}
    scheduled = door.http("spender", "POST", "/schedules", json=schedule).raise_for_status().json()["schedule_id"]
    for method, path, body in (
        ("POST", "/crawl", {**CRAWL, "start_urls": ["https://example.com/other"]}),
        ("POST", "/jobs/{job_id}/retry", None),
        ("POST", "/dead-letters/{job_id}/requeue", None),
        ("POST", "/jobs/scrape", {"site_name": "board", "search_term": key["key_id"]}),
        ("POST", f"/schedules/{scheduled}/run", None),
    ):
        answer = door.http("spender", method, path, json=body)
        assert problem(answer) == SPENT, path
    preview = door.http("spender", "POST", "/crawl/preview", json=CRAWL).json()
    assert [one["code"] for one in preview["problems"]] == ["budget_spent"]
    bulk = {"action": "retry", "filter": {"status": ["error"]}, "expect": 1}
    assert problem(door.http("spender", "POST", "/jobs/bulk", json=bulk)) == SPENT
    for tool, arguments in (
        ("start_crawl", {**CRAWL, "max_pages": 1}),
        ("run_schedule", {"schedule_id": scheduled}),
        ("page_to_markdown", {"url": f"https://example.com/{key['key_id']}"}),
    ):
        told = door.call("spender", tool, **arguments)
        assert told.is_error, tool
        assert "budget" in str(told.content), tool
    # another key of the same user has no budget
    assert door.http("anne", "POST", f"/schedules/{scheduled}/run").status_code == 200
    assert door.http("spender", "POST", f"/jobs/{first}/cancel").json()["status"] == JobStatus.CANCELLED
    assert door.http("spender", "GET", "/session").json()["budget"]["left"]["pages"] == 50


@pytest.mark.parametrize(
    "wish",
    [
        {"budget": {}},
        {"budget": {"pages": 0}},
        {"budget": {"page": 5}},
        {"budget": {"pages": "5"}},
        {"scopes": ["read"]},
        {"scopes": ["admin"]},
    ],
)
def test_a_budget_that_limits_nothing_or_can_be_evaded_is_refused(door: AgentsDoor, wish: dict[str, Any]) -> None:
    asked = {"user_id": "anne", "scopes": ["agent"], "budget": {"pages": 5}, **wish}
    answer = door.http("root", "POST", "/keys", json=asked)
    assert answer.status_code == 422
    assert "budget" in answer.json()["error"]["detail"]["field"]


def test_a_key_with_a_budget_goes_on_with_nothing_that_takes_from_another(
    door: AgentsDoor, key: dict[str, Any]
) -> None:
    ask = {**CRAWL, "start_urls": [f"https://example.com/{key['key_id']}"], "max_pages": 2}
    for payer, resumed in (("anne", 409), ("spender", 200)):
        ask["start_urls"] = [f"{ask['start_urls'][0]}/{payer}"]
        job = door.http(payer, "POST", "/crawl", json=ask).raise_for_status().json()["job_id"]
        door.http(payer, "POST", f"/jobs/{job}/pause").raise_for_status()
        assert door.http("spender", "POST", f"/jobs/{job}/resume").status_code == resumed
        if resumed != 200:
            assert door.http("anne", "POST", f"/jobs/{job}/resume").status_code == 200
