"""The Inspector of the Model Context Protocol (npm's `@modelcontextprotocol/inspector`), which knows nothing of us:
it lists the tools for agents, and calls each of them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from machine import find_program
from sites.server import Site, html
from stack import ROOT, Stack

from gateway.web.agents.mcp_server import TOOLS

# over a hundred packages, so no part of `make test`
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make clients` brings the Inspector"),
]

INSPECTOR = ROOT / ".tools/inspector/node_modules/.bin/mcp-inspector"
STORY = html(f"<article><h1>Gulls</h1><p>{'Nobody counts the gulls of the harbour. ' * 20}</p></article>")


class Inspector:
    def __init__(self, url: str, home: Path) -> None:
        self._url, self._home = url, home

    def inspect(self, method: str, *options: str) -> dict[str, Any]:
        """The result, which its own SDK has held against the protocol and, of a call, against the tool's schema."""
        command = (
            find_program("node"),
            INSPECTOR,
            "--cli",
            f"{self._url}/mcp",
            "--format",
            "json",
            "--method",
            method,
        )
        # it keeps files of its own in a home
        environment = {**os.environ, "HOME": str(self._home)}
        done = subprocess.run(
            (*command, *options), env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        given = ("--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        result = self.inspect("tools/call", *given)
        assert not result.get("isError"), result
        content: dict[str, Any] = result["structuredContent"]
        return content


@pytest.fixture
def inspector(stack: Stack, tmp_path: Path) -> Inspector:
    return Inspector(stack.url, tmp_path)


def test_it_lists_all_tools_and_finds_their_schemas_portable(inspector: Inspector) -> None:
    listed = inspector.inspect("tools/list", "--strict")["tools"]
    assert [tool["name"] for tool in listed] == list(TOOLS)
    assert all(tool["description"] and tool["outputSchema"] for tool in listed)


def test_it_calls_each_tool(inspector: Inspector, stack: Stack, site: Site) -> None:
    site.pages["/story"] = STORY
    answers: dict[str, dict[str, Any]] = {}

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        answers[tool] = inspector.call(tool, **arguments)
        return answers[tool]

    crawl = {"spider": "seo", "start_urls": [f"{site.url}/tree/3"]}
    assert "seo" in {spider["name"] for spider in call("list_spiders", project="default")["spiders"]}
    assert call("preview_crawl", **crawl)["accepted"]
    job_id = call("start_crawl", **crawl)["job_id"]
    job = call("get_job", job_id=job_id, wait_seconds=30)
    assert (job["status"], job["completed_pages"]) == ("finished", 4)
    assert call("sample_items", job_id=job_id, limit=1)["total_items"] == job["items"]
    assert '"url"' in call("field_coverage", job_id=job_id)["fields"]
    assert "Spider opened" in call("search_log", job_id=job_id, text="opened")["lines"]
    assert call("list_errors", job_id=job_id)["shown"] == 0
    assert "# Gulls\n" in call("page_to_markdown", url=f"{site.url}/story", wait_seconds=30)["markdown"]

    stack.http.put(
        f"{stack.url}/datasets/trees", params={"user_id": "agent"}, json={"key": ["url"]}
    ).raise_for_status()
    kept = stack.crawl(f"{site.url}/tree/2", user_id="agent", dataset="trees")
    stack.wait_final(kept)
    assert call("dataset_changes", dataset="trees")["shown"] > 0

    yearly = {**crawl, "user_id": "agent", "interval": "@yearly"}
    schedule_id = stack.http.post(f"{stack.url}/schedules", json=yearly).raise_for_status().json()["schedule_id"]
    assert schedule_id in {one["schedule_id"] for one in call("list_schedules")["schedules"]}
    site.hold()
    run = call("run_schedule", schedule_id=schedule_id)["job_id"]
    assert call("stop_job", job_id=run)["job_id"] == run
    site.release()
    assert answers.keys() == set(TOOLS)
