"""Agents try to do more than their key allows, over HTTP and by tools. None of it succeeds."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from integration.web.agents import MARK, AgentsDoor, open_agents_door
from integration.web.board import Serve
from mcp.shared.exceptions import MCPError

from gateway.settings import Settings

CRAWL: dict[str, Any] = {"spider": "jobs", "start_urls": ["https://example.com/"]}
RULE = {"name": "failed", "when": {"measure": "failed"}}
HOOK = {"url": "https://evil.example/"}
#: Requests of the ordinary API that an agent tries for its own user: method, path and body.
OWN: list[tuple[str, str, Any]] = [
    # to deploy, and to read or write secrets
    ("POST", "/projects/shop/versions?version=1", None),
    ("DELETE", "/projects/shop/versions/1", None),
    ("GET", "/projects/shop/env", None),
    ("PUT", "/projects/shop/env", {"variables": {}}),
    ("PUT", "/projects/shop/env/API_KEY", {"value": "mine"}),
    ("DELETE", "/projects/shop/env/API_KEY", None),
    ("GET", "/projects/shop/settings", None),
    ("PUT", "/projects/shop/settings", {"settings": {}}),
    ("GET", "/webhooks/secret", None),
    ("POST", "/webhooks/secret", None),
    ("GET", "/keys", None),
    ("POST", "/keys", {"user_id": "anne", "scopes": ["crawl"]}),
    ("DELETE", "/keys/board", None),
    ("GET", "/audit", None),
    ("POST", "/session", None),
    ("GET", "/metrics", None),
    ("GET", "/nodes", None),
    ("POST", "/nodes/invitations", {}),
    ("POST", "/nodes/join", {"name": "evil"}),
    # to name a receiver
    ("GET", "/endpoints", None),
    ("POST", "/endpoints", HOOK),
    ("GET", "/endpoints/{endpoint_id}", None),
    ("PATCH", "/endpoints/{endpoint_id}", HOOK),
    ("GET", "/endpoints/{endpoint_id}/secret", None),
    ("POST", "/endpoints/{endpoint_id}/secret", None),
    ("POST", "/endpoints/{endpoint_id}/test", None),
    ("GET", "/endpoints/{endpoint_id}/deliveries", None),
    ("POST", "/alerts/rules", RULE),
    ("POST", "/crawl", {**CRAWL, "webhook_url": "https://evil.example/"}),
    # to start crawls that go on by themselves
    ("POST", "/schedules", {**CRAWL, "interval": "@daily"}),
    ("POST", "/crawl", {**CRAWL, "interval": "every 1s"}),
    ("POST", "/crawl", {**CRAWL, "schedule_at": "2037-01-01T00:00:00Z"}),
    ("POST", "/crawl/preview", {**CRAWL, "interval": "every 1s"}),
    ("PATCH", "/schedules/{schedule_id}", {"interval": "every 1s"}),
    ("POST", "/schedules/{schedule_id}/pause", None),
    # to send a project's secrets elsewhere, or to look like somebody else
    ("POST", "/crawl", {**CRAWL, "env": {"API_HOST": "evil.example"}}),
    ("POST", "/crawl", {**CRAWL, "settings": {"USER_AGENT": "me"}}),
    ("POST", "/crawl", {**CRAWL, "fetch": {"proxy": "http://evil.example:3128"}}),
    ("POST", "/crawl", {**CRAWL, "fetch": {"obey_robots": False}}),
    ("POST", "/crawl", {**CRAWL, "dataset": "prices"}),
    ("POST", "/crawl", {**CRAWL, "dataset": {"name": "new", "key": ["url"]}}),
    # to delete, or to end schedules
    ("DELETE", "/jobs/{job_id}", None),
    ("POST", "/jobs/bulk", {"filter": {}, "action": "delete", "expect": 1}),
    ("POST", "/jobs/{schedule_id}/cancel", None),
    ("DELETE", "/jobs/{schedule_id}", None),
    ("DELETE", "/schedules/{schedule_id}", None),
    ("DELETE", "/datasets/prices", None),
    ("PUT", "/datasets/prices", {}),
    ("PATCH", "/datasets/prices", {}),
    ("DELETE", "/endpoints/{endpoint_id}", None),
    ("DELETE", "/dead-letters/{job_id}", None),
    ("DELETE", "/views/{view_id}", None),
    ("POST", "/views", {"list": "jobs", "name": "mine", "query": ""}),
    ("PATCH", "/errors/{error_id}", {"state": "resolved"}),
    ("GET", "/sites", None),
    ("POST", "/jobs/scrape", {"site_name": "board", "search_term": "bees"}),
    ("POST", "/scheduler/run", None),
    ("GET", "/jobs/queue/status", None),
]
#: Requests about what is anne's, tried by another user's agent.
OF_OTHERS: list[tuple[str, str, Any]] = [
    ("GET", "/jobs/{job_id}", None),
    ("GET", "/jobs/{job_id}/items", None),
    ("GET", "/jobs/{log_id}/logs", None),
    ("GET", "/jobs/{job_id}/errors", None),
    ("GET", "/jobs/{job_id}/repair", None),
    ("POST", "/jobs/{log_id}/cancel", None),
    ("POST", "/jobs/{log_id}/pause", None),
    ("POST", "/jobs/{job_id}/retry", None),
    ("POST", "/schedules/{schedule_id}/run", None),
    ("GET", "/errors/{error_id}", None),
    ("GET", "/jobs?user_id=anne", None),
    ("GET", "/datasets/prices/changes?user_id=anne", None),
    ("POST", "/crawl", {**CRAWL, "user_id": "anne"}),
]
#: The same by tools: the tool, its arguments, and how the refusal begins.
BY_TOOLS: list[tuple[str, dict[str, Any], str]] = [
    ("get_job", {"job_id": "{job_id}"}, "job_not_found"),
    ("stop_job", {"job_id": "{log_id}"}, "job_not_found"),
    ("search_log", {"job_id": "{log_id}"}, "job_not_found"),
    ("sample_items", {"job_id": "{job_id}"}, "job_not_found"),
    ("sample_items", {"job_id": "{job_id}", "limit": 0}, "job_not_found"),
    ("field_coverage", {"job_id": "{job_id}"}, "job_not_found"),
    ("list_errors", {"job_id": "{job_id}"}, "job_not_found"),
    ("dataset_changes", {"dataset": "prices"}, "dataset_not_found"),
    ("run_schedule", {"schedule_id": "{schedule_id}"}, "schedule_not_found"),
    ("stop_job", {"job_id": "{schedule_id}"}, "job_not_found"),
    # arguments that would lead to other routes
    ("get_job", {"job_id": "../keys"}, "invalid_arguments"),
    ("dataset_changes", {"dataset": "prices/items"}, "invalid_request"),
    ("dataset_changes", {"dataset": "../keys#"}, "invalid_request"),
    ("dataset_changes", {"dataset": "prices", "user_id": "anne"}, "invalid_arguments"),
    ("list_errors", {"user_id": "anne"}, "invalid_arguments"),
    ("sample_items", {"job_id": "{job_id}", "limit": 100_000}, "invalid_arguments"),
    ("start_crawl", {**CRAWL, "user_id": "anne"}, "invalid_arguments"),
    ("start_crawl", {**CRAWL, "webhook_url": "https://evil.example/"}, "invalid_arguments"),
    ("start_crawl", {**CRAWL, "interval": "every 1s"}, "invalid_arguments"),
    ("start_crawl", {**CRAWL, "env": {"A": "b"}}, "invalid_arguments"),
    ("start_crawl", {**CRAWL, "dataset": "prices"}, "invalid_arguments"),
    ("start_crawl", {**CRAWL, "max_pages": 10**12}, "invalid_request"),
    *[
        (tool, {**more, argument: [url] if argument == "start_urls" else url}, "")
        for url in (
            *("http://127.0.0.1:8001/keys", "http://localhost/", "http://[::1]/", "http://0x7f000001/"),
            *(
                "http://2130706433/",
                "http://169.254.169.254/latest/meta-data/",
                "http://10.0.0.1/",
                "file:///etc/passwd",
            ),
            *("http://[::ffff:127.0.0.1]/", "gopher://example.com/"),
        )
        for tool, argument, more in (
            ("start_crawl", "start_urls", {"spider": "jobs"}),
            ("page_to_markdown", "url", {}),
        )
    ],
]
_REFUSALS = {"forbidden_address", "invalid_request", "forbidden"}


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings) -> Iterator[AgentsDoor]:
    with open_agents_door(serve, settings, f"limits-{uuid.uuid4().hex[:8]}") as door:
        made = door.http("anne", "POST", "/schedules", json={**CRAWL, "interval": "@daily", "name": MARK})
        door.ids["schedule_id"] = made.raise_for_status().json()["schedule_id"]
        door.ids["endpoint_id"] = door.http("anne", "POST", "/endpoints", json=HOOK).json()["endpoint_id"]
        view = {"list": "jobs", "name": MARK, "query": ""}
        door.ids["view_id"] = door.http("anne", "POST", "/views", json=view).json()["view_id"]
        door.ids["error_id"] = door.http("anne", "GET", "/errors").json()["errors"][0]["error_id"]
        yield door


@pytest.fixture
def unchanged(door: AgentsDoor) -> Iterator[None]:
    """After the test there are as many records as before."""

    def counts() -> dict[str, int]:
        database = door.board.database
        kept = set(database.list_collection_names()) - {"audit", "processes", "heartbeats"}
        return {name: database[name].count_documents({}) for name in sorted(kept)}

    before = counts()
    yield
    assert counts() == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("method", "path", "body"), OWN)
def test_an_agent_gets_no_more_of_its_own_user(door: AgentsDoor, method: str, path: str, body: Any) -> None:
    answer = door.http("agent", method, path, json=body)
    assert answer.status_code == 403, answer.text
    assert answer.json()["error"]["code"] == "scope_missing"


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("method", "path", "body"), OF_OTHERS)
def test_an_agent_gets_nothing_of_another_user(door: AgentsDoor, method: str, path: str, body: Any) -> None:
    answer = door.http("stranger", method, path, json=body)
    assert answer.status_code in {403, 404}, answer.text
    assert MARK not in answer.text
    assert door.http("stranger", "GET", "/jobs").json()["jobs"] == []


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("tool", "arguments", "code"), BY_TOOLS)
def test_a_tool_gives_no_more_than_the_route(
    door: AgentsDoor, tool: str, arguments: dict[str, Any], code: str
) -> None:
    given = {name: one.format(**door.ids) if isinstance(one, str) else one for name, one in arguments.items()}
    answer = door.call("stranger", tool, **given)
    (block,) = answer.content
    words = getattr(block, "text", "")
    assert answer.is_error, words
    assert words.startswith(code) if code else words.partition(":")[0] in _REFUSALS, words
    assert answer.structured_content is None
    assert MARK not in words


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("tool", ["list_schedules", "list_errors"])
def test_lists_hold_ones_own_alone(door: AgentsDoor, tool: str) -> None:
    told = str(door.told("stranger", tool))
    assert MARK not in told
    assert not [one for one in door.ids.values() if one in told]
    assert MARK in str(door.told("agent", tool))


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("who", ["reader", "metrics"])
def test_a_tool_needs_the_scope_of_its_route(door: AgentsDoor, who: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("start_crawl", CRAWL), ("stop_job", {"job_id": door.ids["log_id"]})]
    if who == "metrics":
        calls += [("get_job", {"job_id": door.ids["job_id"]}), ("list_spiders", {})]
    for tool, arguments in calls:
        answer = door.call(who, tool, **arguments)
        assert answer.is_error
        assert getattr(answer.content[0], "text", "").startswith("scope_missing")


def test_a_schedule_is_not_ended_in_the_place_of_a_job(door: AgentsDoor) -> None:
    answer = door.call("agent", "stop_job", job_id=door.ids["schedule_id"])
    assert (answer.is_error, getattr(answer.content[0], "text", "").partition(":")[0]) == (True, "scope_missing")
    assert door.http("anne", "GET", "/schedules/{schedule_id}").json()["state"] == "active"


def test_there_are_no_other_tools(door: AgentsDoor) -> None:
    async def calling() -> None:
        async with door.client("agent") as client:
            for name in ("deploy", "__class__", "list_keys", "x" * 10_000):
                with pytest.raises(MCPError, match="there is no tool"):
                    await client.call_tool(name)

    asyncio.run(calling())


@pytest.mark.parametrize("key", [None, "db_nobody_000000", "st_a_1_b"])
def test_without_a_valid_key_nothing_is_listed(door: AgentsDoor, key: str | None) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = door.board.http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_what_is_no_call_of_the_protocol_is_refused_and_changes_nothing(door: AgentsDoor) -> None:
    many = [{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(100)]
    headers = {"Accept": "application/json, text/event-stream"}
    for body in (many, {}, "text", {"jsonrpc": "2.0", "id": 1, "method": "keys/list"}):
        answer = door.board.http.post("/mcp", json=body, headers={**headers, **door.headers("agent")})
        assert answer.status_code in {200, 400}, answer.text
        assert "error" in answer.json()
    large = door.board.http.post("/mcp", content=b" " * (300 << 10), headers={**headers, **door.headers("agent")})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
    for method in ("GET", "DELETE", "PUT"):
        assert door.http("agent", method, "/mcp").status_code == 405


def test_a_page_of_another_origin_cannot_use_a_browsers_session(door: AgentsDoor) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    cookie = httpx2.Cookies()
    made = door.http("anne", "POST", "/session")
    cookie.set(*next(iter(made.cookies.items())))

    async def post(**headers: str) -> int:
        async with httpx2.AsyncClient(cookies=cookie, trust_env=False) as http:
            return (await http.post(f"{door.url}/mcp", json=body, headers=headers)).status_code

    assert asyncio.run(post()) == 403
    assert asyncio.run(post(Origin="http://evil.example")) == 403


def test_enough_was_tried() -> None:
    assert len(OWN) + len(OF_OTHERS) + len(BY_TOOLS) >= 40
