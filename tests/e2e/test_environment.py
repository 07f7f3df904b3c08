"""A project's secret, from the request that sets it to the spider that needs it, and where it must not be found."""

from __future__ import annotations

from typing import Any

import pytest
from eggs import egg, source
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

SECRET = "topsecret-4242"
SPIDERS = """
import os
from pathlib import Path

import scrapy


def found_in_processes(text):
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if text.encode() in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes():
                    yield folder.name
            except OSError:
                continue


def found_in_files(text):
    for path in Path(os.environ["DISCOVERYBOT_HOME"]).rglob("*"):
        try:
            if path.is_file() and text.encode() in path.read_bytes():
                yield str(path)
        except OSError:
            continue


class Looker(scrapy.Spider):
    name = "looker"

    async def start(self):
        secret = "-".join(["topsecret", "4242"])
        yield {
            "key": os.environ.get("API_KEY") == secret,
            "variables": sorted(set(os.environ) & {"API_KEY", "REGION"}),
            "region": os.environ.get("REGION"),
            "processes": sorted(found_in_processes(secret)),
            "files": sorted(found_in_files(secret)),
            "delay": self.settings["DOWNLOAD_DELAY"],
            "remote": self.settings["REMOTE_CONTROL_ENABLED"],
        }
"""


@pytest.fixture(scope="module")
def deployed(stack: Stack) -> None:
    for project in ("vault", "rival"):
        content = egg(source(project, spiders=SPIDERS))
        answer = stack.http.post(f"{stack.url}/projects/{project}/versions?version=1.0", content=content, timeout=60)
        assert answer.status_code == 200, answer.text

    def published() -> bool:
        projects = {info["project"] for info in stack.http.get(f"{stack.url}/spiders").json()["spiders"]}
        return projects >= {"vault", "rival"}

    wait_until(published, what="both projects in the catalogue")


def looked(stack: Stack, project: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    url = "https://example.com/"  # nothing is fetched
    job_id = stack.crawl(url, project=project, spider="looker", ignore_cache=True, **fields)
    end = stack.wait_final(job_id)
    items = stack.items(job_id)
    assert items, (end, stack.log(job_id))
    return job_id, items[0]


def put(stack: Stack, path: str, body: Any) -> dict[str, Any]:
    answer = stack.http.put(f"{stack.url}/projects/{path}", json=body)
    assert answer.status_code == 200, answer.text
    assert SECRET not in answer.text
    described: dict[str, Any] = answer.json()
    return described


def test_a_secret_reaches_the_spiders_of_its_project_and_nothing_else(stack: Stack, deployed: None) -> None:
    put(stack, "vault/env/API_KEY", {"value": SECRET, "secret": True})
    put(stack, "vault/env/REGION", {"value": "eu"})
    job_id, item = looked(stack, "vault")
    assert (item["key"], item["region"]) == (True, "eu")
    assert (item["processes"], item["files"]) == ([], [])
    _, other = looked(stack, "rival")
    assert other["variables"] == []
    assert (other["processes"], other["files"]) == ([], [])
    shown = [
        stack.http.get(f"{stack.url}{path}").text
        for path in (
            f"/jobs/{job_id}",
            f"/jobs/{job_id}/status",
            "/projects/vault/env",
            "/audit",
            "/spiders",
            "/nodes",
        )
    ]
    assert not [text for text in (*shown, stack.log(job_id).decode()) if SECRET in text]
    assert not [path for path in stack.home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_what_is_set_holds_for_the_very_next_crawl(stack: Stack, deployed: None) -> None:
    for region in ("one", "two"):
        put(stack, "vault/env/REGION", {"value": region})
        assert looked(stack, "vault")[1]["region"] == region
    put(stack, "vault/settings", {"settings": {}, "open_env": ["REGION"]})
    assert looked(stack, "vault", env={"REGION": "mine"})[1]["region"] == "mine"
    stack.http.delete(f"{stack.url}/projects/vault/env/REGION").raise_for_status()
    assert looked(stack, "vault")[1]["region"] is None


def test_settings_of_project_and_crawl_hold_and_guards_do(stack: Stack, deployed: None, site: Site) -> None:
    put(stack, "vault/settings", {"settings": {"DOWNLOAD_DELAY": 1.5}})
    _, item = looked(stack, "vault")
    assert (item["delay"], item["remote"]) == (1.5, False)
    assert looked(stack, "vault", settings={"DOWNLOAD_DELAY": 0.5})[1]["delay"] == 0.5
    body = {
        "user_id": "tester",
        "spider": "seo",
        "start_urls": [site.url],
        "settings": {"TELNETCONSOLE_ENABLED": True},
    }
    refused = stack.http.post(f"{stack.url}/crawl", json=body)
    assert refused.status_code == 422
    assert "settings.TELNETCONSOLE_ENABLED: it executes what it is sent" in refused.text
    site.pages["/"] = "<title>one</title>"
    ours = stack.crawl(f"{site.url}/", settings={"USER_AGENT": "set-for-this-crawl/1.0"})
    assert stack.wait_final(ours)["status"] == "finished"
