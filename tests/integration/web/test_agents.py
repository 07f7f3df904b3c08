"""The platform as tools of agents, called by the official client over HTTP: what each tool answers, how much at most,
and how untrusted text is marked.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import pytest
from integration.web.agents import HIDDEN, ORDER, AgentsDoor, open_agents_door
from integration.web.board import Serve
from jobs import make_job
from mcp_types import ListToolsResult, TextContent
from stack import wait_until

from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import JobStatus
from gateway.settings import Settings

TOOLS = [
    *("list_spiders", "preview_crawl", "start_crawl", "get_job", "stop_job", "page_to_markdown"),
    *("search_log", "sample_items", "field_coverage", "dataset_changes"),
    *("list_schedules", "run_schedule", "list_errors"),
]
MOST_BYTES = 8000 * 3
CRAWL = {"spider": "jobs", "start_urls": ["https://example.com/"]}


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings) -> Iterator[AgentsDoor]:
    with open_agents_door(serve, settings, f"agents-{uuid.uuid4().hex[:8]}") as door:
        yield door


def listed(door: AgentsDoor, who: str, mode: str = "auto") -> ListToolsResult:
    async def listing() -> ListToolsResult:
        async with door.client(who, mode) as client:
            assert client.server_info
            assert client.server_info.name == "discoverybot"
            return await client.list_tools()

    return asyncio.run(listing())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_finds_every_tool_with_what_it_takes_and_answers(door: AgentsDoor, mode: str) -> None:
    tools = {tool.name: tool for tool in listed(door, "agent", mode).tools}
    assert list(tools) == TOOLS
    for tool in tools.values():
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema
        assert tool.annotations
    hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
    changing = {name for name, hint in hints.items() if not hint.read_only_hint}
    assert changing == {"start_crawl", "stop_job", "run_schedule", "page_to_markdown"}
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {"stop_job"}
    assert {name for name in changing if hints[name].idempotent_hint} == {"stop_job", "page_to_markdown"}
    # a model reads the whole list before it calls any tool
    assert len(listed(door, "agent").model_dump_json()) < 24_000


def test_an_agent_finds_a_spider_crawls_and_stops(door: AgentsDoor) -> None:
    names = [one["name"] for one in door.told("agent", "list_spiders")["spiders"]]
    assert names == ["article", "jobs"]
    one = door.told("agent", "list_spiders", name="jobs")["spiders"]
    assert [spider["name"] for spider in one] == ["jobs"]
    # a new address, because Redis remembers the crawls that were requested with other databases
    asked: dict[str, Any] = {**CRAWL, "start_urls": [f"https://example.com/{uuid.uuid4().hex}"], "max_pages": 7}
    foreseen = door.told("agent", "preview_crawl", **asked)
    assert (foreseen["accepted"], foreseen["known_job_id"], foreseen["max_pages"]) == (True, None, 7)
    started = door.told("agent", "start_crawl", **asked)
    job_id = started["job_id"]
    assert not started["cached"]
    assert door.told("agent", "start_crawl", **asked) == {**started, "cached": True}
    assert door.board.jobs.get(job_id).user_id == "anne"
    told = door.told("agent", "get_job", job_id=job_id)
    assert (told["status"], told["ended"], told["waiting_reason"]) == ("pending", False, None)
    stopped = door.told("agent", "stop_job", job_id=job_id)
    assert stopped == {"job_id": job_id, "status": "cancelled", "ended": True}


def test_what_it_does_is_in_the_audit_trail_as_if_it_had_called_the_route(door: AgentsDoor) -> None:
    job_id = door.told("agent", "start_crawl", **CRAWL, ignore_cache=True)["job_id"]
    door.call("stranger", "stop_job", job_id=job_id)

    def entries() -> list[dict[str, Any]] | None:
        page = door.http("root", "GET", "/audit").raise_for_status().json()["entries"]
        found = [one for one in page if one["resources"].get("job_id") == job_id]
        return found if len(found) == 2 else None

    refused, made = wait_until(entries, what="two entries")
    assert (made["route"], made["status"], made["user_id"], made["scope"]) == ("/crawl", 200, "anne", "agent")
    assert made["resources"] == {"job_id": job_id, "tool": "start_crawl"}
    assert (refused["route"], refused["status"], refused["user_id"]) == ("/jobs/{job_id}/cancel", 404, "bert")
    assert refused["resources"]["error"] == "job_not_found"
    routes = {one["route"] for one in door.http("root", "GET", "/audit").json()["entries"]}
    assert "/mcp" not in routes


def test_a_failed_job_says_why_and_what_to_do(door: AgentsDoor) -> None:
    told = door.told("agent", "get_job", job_id=door.ids["job_id"])
    assert (told["status"], told["ended"], told["items"], told["new_errors"]) == ("error", True, 30, 1)
    assert told["advice"]["steps"]
    assert fenced(told["message"], told["notice"]).startswith(f"ValueError: {ORDER}")


def fenced(text: str, notice: str) -> str:
    """The text between the marks that the notice names."""
    found = re.match(r"What stands between <(untrusted-[0-9a-f]{12})> and </\1>", notice)
    assert found
    mark = found[1]
    assert text.startswith(f"<{mark}>\n")
    assert text.endswith(f"\n</{mark}>")
    assert text.count(mark) == 2
    return text.removeprefix(f"<{mark}>\n").removesuffix(f"\n</{mark}>")


def rows(text: str, notice: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in fenced(text, notice).splitlines()]


def test_items_are_sampled_and_counted_page_by_page(door: AgentsDoor) -> None:
    job_id = door.ids["job_id"]
    sizes = door.told("agent", "sample_items", job_id=job_id, limit=0)
    assert (sizes["total_items"], sizes["shown"], sizes["items"]) == (30, 0, None)
    first = door.told("agent", "sample_items", job_id=job_id)
    assert (first["total_items"], first["shown"], first["left_out"]) == (30, 5, 0)
    assert [row["n"] for row in rows(first["items"], first["notice"])] == [1, 2, 3, 4, 5]
    more = door.told("agent", "sample_items", job_id=job_id, after=first["next"], limit=20, fields=["n"])
    assert rows(more["items"], more["notice"]) == [{"n": n} for n in range(6, 26)]
    found = door.told("agent", "sample_items", job_id=job_id, text="annes", limit=1)
    assert found["shown"] == 1


def test_what_a_page_says_is_fenced_and_shows_all_that_it_holds(door: AgentsDoor) -> None:
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("get_job", {"job_id": door.ids["job_id"]}, "message"),
        ("sample_items", {"job_id": door.ids["job_id"]}, "items"),
        ("field_coverage", {"job_id": door.ids["job_id"]}, "fields"),
        ("search_log", {"job_id": door.ids["log_id"], "level": "ERROR"}, "lines"),
        ("dataset_changes", {"dataset": "prices"}, "changes"),
        ("list_errors", {}, "errors"),
        ("list_errors", {"job_id": door.ids["job_id"]}, "errors"),
    ]
    marks = set()
    for name, arguments, field in calls:
        answer = door.call("agent", name, **arguments)
        content: dict[str, Any] = answer.structured_content
        notice = content.pop("notice")
        assert ORDER in fenced(content.pop(field), notice), name
        marks.add(notice)
        assert ORDER not in str(content), name
        (block,) = answer.content
        assert isinstance(block, TextContent)
        assert orjson.loads(block.text)["notice"] == notice
        assert not [one for one in HIDDEN if one in block.text], name
    assert len(marks) == len(calls)


def test_a_log_is_searched_from_either_end(door: AgentsDoor) -> None:
    first = door.told("agent", "search_log", job_id=door.ids["log_id"], limit=3)
    assert (first["total_lines"], first["shown"], first["levels"]["INFO"]) == (102, 3, 100)
    after = door.told("agent", "search_log", job_id=door.ids["log_id"], limit=3, after=first["next"])
    seen = [row["msg"] for one in (first, after) for row in rows(one["lines"], one["notice"])]
    assert len(set(seen)) == 6
    last = door.told("agent", "search_log", job_id=door.ids["log_id"], newest=True, limit=5)
    assert (last["shown"], last["next"]) == (5, None)
    assert ORDER in last["lines"]
    found = door.told("agent", "search_log", job_id=door.ids["log_id"], text="evil.example")
    assert found["shown"] == 1


def test_changes_of_a_dataset_come_in_order(door: AgentsDoor) -> None:
    first = door.told("agent", "dataset_changes", dataset="prices", limit=1)
    (new,) = rows(first["changes"], first["notice"])
    assert (new["type"], new["key"], first["pending"] > 0) == ("new", {"sku": "s1"}, True)
    rest = door.told("agent", "dataset_changes", dataset="prices", since=first["next"])
    (changed,) = rows(rest["changes"], rest["notice"])
    assert changed["changes"] == {"price": {"previous": 1, "current": 2}}
    assert rest["pending"] == 0


def test_a_schedule_is_found_and_run(door: AgentsDoor) -> None:
    body = {**CRAWL, "interval": "@daily", "name": "every morning"}
    schedule_id = door.http("anne", "POST", "/schedules", json=body).raise_for_status().json()["schedule_id"]
    (one,) = door.told("agent", "list_schedules")["schedules"]
    assert (one["schedule_id"], one["name"], one["state"]) == (schedule_id, "every morning", "active")
    job_id = door.told("agent", "run_schedule", schedule_id=schedule_id)["job_id"]
    assert door.board.jobs.get(job_id).schedule_id == schedule_id
    # the schedule's id stands for its run, as over HTTP
    told = door.told("agent", "get_job", job_id=schedule_id)
    assert (told["status"], told["ended"]) == ("scheduled", False)
    waiting = door.call("agent", "get_job", job_id=schedule_id, wait_seconds=1)
    assert getattr(waiting.content[0], "text", "").startswith("invalid_request: wait:")


def test_a_page_is_read_as_markdown_once_it_is_fetched(door: AgentsDoor) -> None:
    asked: dict[str, Any] = {"url": f"https://example.com/{uuid.uuid4().hex}", "wait_seconds": 0}
    told = door.told("agent", "page_to_markdown", **asked)
    assert (told["status"], told["ended"], told["markdown"]) == ("pending", False, None)
    job = door.board.jobs.get(told["job_id"])
    assert (job.spec.spider, job.spec.max_pages, job.spec.params["format"]) == ("article", 1, "markdown")
    story = "".join(f'# Part {n}\n\n"{ORDER}"\n\n' for n in range(500))
    door.board.end(job, JobStatus.FINISHED, {"url": asked["url"], "markdown": story})
    whole, offset = "", 0
    for _ in range(9):
        part = door.told("agent", "page_to_markdown", **asked, offset=offset)
        assert (part["job_id"], part["total_characters"]) == (job.id, len(story))
        whole += fenced(part["markdown"], part["notice"])
        if (offset := part["next_offset"]) is None:
            break
    assert whole == story


def test_no_answer_is_larger_than_a_model_can_read(door: AgentsDoor) -> None:
    spec = CrawlSpec(spider="jobs", start_urls=("https://example.com/",))
    job = make_job(user_id="anne", spec=spec)
    door.board.jobs.insert(job)
    deep: Any = '"\n' * 300
    for _ in range(60):
        deep = {"in": [deep] * 3} if len(orjson.dumps(deep)) < 100_000 else {"in": deep}
    huge = {f"\N{SNOWMAN}{n}": '"\\\n' * 2000 for n in range(100)}
    kinds = [{"text": '"\u20ac\n' * 300_000}, huge, {"deep": deep}, {"list": list(range(90_000))}]
    door.board.end(job, JobStatus.FINISHED, *(kinds[n % len(kinds)] for n in range(12)))
    seen, after = 0, None
    for _ in range(40):
        answer = door.call("agent", "sample_items", job_id=job.id, limit=20, **({"after": after} if after else {}))
        (block,) = answer.content
        assert isinstance(block, TextContent)
        assert not answer.is_error, block.text
        assert len(block.text.encode()) <= MOST_BYTES
        told = answer.structured_content
        assert told["shown"] + told["left_out"] <= 20
        assert 1 <= told["shown"] == len(fenced(told["items"], told["notice"]).splitlines())
        seen, after = seen + told["shown"], told["next"]
        if after is None:
            break
    assert seen == 12
    for name in ("field_coverage", "get_job", "list_errors"):
        (block,) = door.call("agent", name, job_id=job.id).content
        assert isinstance(block, TextContent)
        assert len(block.text.encode()) <= MOST_BYTES


def test_the_gateway_answers_others_while_an_agent_reads_much(door: AgentsDoor) -> None:
    # other calls wait as long as the event loop is blocked at once
    async def reading() -> float:
        async with door.client("agent") as client, httpx2.AsyncClient(base_url=door.url, trust_env=False) as http:
            jobs = [client.call_tool("sample_items", {"job_id": door.ids["job_id"], "limit": 20}) for _ in range(20)]
            tasks = [asyncio.ensure_future(one) for one in jobs]
            longest = 0.0
            while not all(task.done() for task in tasks):
                answer = await http.get("/health/live")
                longest = max(longest, answer.elapsed.total_seconds())
            assert not [task for task in tasks if task.result().is_error]
            return longest

    assert asyncio.run(reading()) < 2


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_who_leaves_while_a_tool_waits_keeps_no_place(serve: Serve, settings: Settings, version: str) -> None:
    few = settings.model_copy(update={"gateway_user_streams": 2})
    with open_agents_door(serve, few, f"agents-{uuid.uuid4().hex[:8]}") as door:
        job_id = door.told("agent", "start_crawl", **CRAWL, ignore_cache=True)["job_id"]
        call = {"name": "get_job", "arguments": {"job_id": job_id, "wait_seconds": 30}}
        if version > "2026":
            about = {
                "protocolVersion": version,
                "clientInfo": {"name": "x", "version": "1"},
                "clientCapabilities": {},
            }
            call["_meta"] = {f"io.modelcontextprotocol/{name}": one for name, one in about.items()}
        headers = {**door.headers("agent"), "Accept": "application/json, text/event-stream"}
        headers |= {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "get_job"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        for _ in range(3):
            with pytest.raises(httpx2.ReadTimeout):
                door.board.http.post("/mcp", json=body, headers=headers, timeout=0.5)
            wait_until(
                lambda: not door.call("agent", "get_job", job_id=job_id, wait_seconds=1).is_error, what="a place"
            )


def test_without_keys_an_agent_on_this_machine_needs_none(serve: Serve, settings: Settings) -> None:
    with open_agents_door(serve, settings, f"agents-{uuid.uuid4().hex[:8]}", keys=False) as door:
        assert [tool.name for tool in asyncio.run(_listed(door))] == TOOLS
        job_id = door.told(None, "start_crawl", **CRAWL, ignore_cache=True)["job_id"]
        assert door.board.jobs.get(job_id).user_id == "agent"
        assert door.told(None, "get_job", job_id=door.ids["job_id"])["status"] == "error"
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            answer = door.board.http.post("/mcp", json={}, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


async def _listed(door: AgentsDoor) -> list[Any]:
    async with door.client(None) as client:
        return list((await client.list_tools()).tools)
