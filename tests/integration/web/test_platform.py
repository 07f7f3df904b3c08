"""Which spiders can run, on which nodes, and how many slots are free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx2
import pytest
from jobs import make_job
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import SpiderInfo
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.jobs.store import JobStore
from gateway.nodes.store import Load, NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.stores.mongo import connect

URLS = {
    "type": "object",
    "properties": {
        "render": {"type": "boolean"},
        "sitemaps": {"type": "array", "items": {"type": "string", "format": "http-url"}},
        "rule": {"anyOf": [{"type": "string", "format": "re2"}, {"type": "null"}]},
    },
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def own(settings: Settings) -> Iterator[Database[dict[str, Any]]]:
    """A database of its own, so that no other test sees these nodes."""
    database = connect(settings.mongo_uri.replace("/discoverybot", "/platform"))
    SpiderStore(database).publish(
        "n1",
        [
            SpiderInfo(project="default", name="pages", description="Reads pages.", params_schema=URLS),
            SpiderInfo(project="Shop", version="1", latest=False, name="offers"),
            SpiderInfo(project="Shop", version="2", name="offers", own_start=True),
            SpiderInfo(project="Shop", version="2", name="pages"),
        ],
    )
    yield database
    database.client.close()


@pytest.fixture(scope="module")
def door(
    serve: Callable[[Settings], AbstractContextManager[httpx2.Client]], settings: Settings, own: object
) -> Iterator[httpx2.Client]:
    uri = settings.mongo_uri.replace("/discoverybot", "/platform")
    with serve(settings.model_copy(update={"mongo_uri": uri})) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {("Shop", "1", "offers"), ("Shop", "2", "offers"), ("Shop", "2", "pages"), ("default", None, "pages")}),
        ("?project=shop", {("Shop", "1", "offers"), ("Shop", "2", "offers"), ("Shop", "2", "pages")}),
        ("?project=DiscoveryBot", {("default", None, "pages")}),
        ("?version=2&name=offers", {("Shop", "2", "offers")}),
        ("?name=nothing", set()),
    ],
)
def test_spiders_are_listed_by_project_version_and_name(
    door: httpx2.Client, query: str, found: set[tuple[str, str | None, str]]
) -> None:
    listed = door.get(f"/spiders{query}").json()
    assert {(one["project"], one["version"], one["name"]) for one in listed["spiders"]} == found
    assert {project["name"] for project in listed["projects"]} == {project for project, _, _ in found}


def test_a_spider_is_told_with_all_that_is_known_of_it(door: httpx2.Client) -> None:
    listed = door.get("/spiders", params={"project": "shop", "version": "2", "name": "offers"}).json()
    known = {"project": "Shop", "version": "2", "latest": True, "name": "offers", "description": "", "arguments": []}
    assert listed == {
        "spiders": [
            {
                **known,
                "params_schema": None,
                "allowed_domains": [],
                "own_start": True,
                "needs_urls": True,
                "arguments": [],
            }
        ],
        "projects": [{"name": "Shop", "latest": "2", "previous": "1", "versions": ["1", "2"]}],
        "next": None,
    }


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_spiders_are_listed_in_pages_and_each_project_with_its_first_one(door: httpx2.Client, limit: int) -> None:
    whole = door.get("/spiders").json()
    spiders, projects, query = [], [], {"limit": str(limit)}
    while True:
        page = door.get("/spiders", params=query).json()
        assert len(page["spiders"]) <= limit
        spiders += page["spiders"]
        projects += page["projects"]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert {"spiders": spiders, "projects": projects, "next": None} == whole


@pytest.mark.parametrize("after", ["nonsense", "W10=", "MQ==", "WzEsMiwzXQ=="])
def test_a_place_that_is_none_in_the_list_of_spiders_is_refused(door: httpx2.Client, after: str) -> None:
    answer = door.get("/spiders", params={"after": after})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (422, "after")


@pytest.mark.parametrize(
    ("params", "status", "field"),
    [
        ({"sitemaps": ["https://example.com/s.xml", "http://169.254.169.254/"]}, 403, "params.sitemaps.1"),
        ({"sitemaps": ["example.com"]}, 422, "params.sitemaps.0"),
        ({"rule": "(?=x)"}, 422, "params.rule"),
        ({"render": True}, 422, "params.render"),
    ],
)
def test_parameters_are_refused_by_the_very_field_and_leave_nothing_behind(
    *, door: httpx2.Client, own: Database[dict[str, Any]], user: str, params: Any, status: int, field: str
) -> None:
    body = {"user_id": user, "spider": "pages", "start_urls": ["https://example.com/"], "params": params}
    answer = door.post("/crawl", json=body)
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (status, field)
    assert own["jobs"].find_one({"user_id": user}) is None


def test_a_node_tells_of_its_browsers_and_its_disk(door: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    NodeStore(own).heartbeat(
        "n1", url="http://127.0.0.1:6800", max_slots=4, alive=(), present=(), beating_since=utc_now(),
        max_render_slots=2, disk_full=True, free_bytes=1, load=Load(0.25, 0.5),
    )  # fmt: skip
    node = door.get("/nodes").json()["nodes"][0]
    assert (node["max_render_slots"], node["used_render_slots"], node["free_slots"]) == (2, 0, 4)
    assert (node["disk_full"], node["free_bytes"]) == (True, 1)
    assert (node["cpu_load"], node["memory_load"]) == (0.25, 0.5)
    assert door.get("/jobs/health").json()["free_slots"] == 0


def test_a_job_that_waits_for_a_disk_says_so(door: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    spec = CrawlSpec(project="Shop", version="1", spider="offers", start_urls=("https://a.example/",), max_items=7)
    job = make_job(spec=spec, waiting_reason=WaitingReason.DISK_FULL)
    JobStore(own).insert(job)
    status = door.get(f"/jobs/{job.id}/status").json()
    assert (status["waiting_reason"], status["version"], status["max_items"]) == ("disk_full", "1", 7)


def test_a_retry_keeps_its_version_or_says_that_it_is_gone(
    door: httpx2.Client, own: Database[dict[str, Any]]
) -> None:
    def ended(version: str) -> Job:
        spec = CrawlSpec(project="Shop", version=version, spider="offers", start_urls=("https://a.example/",))
        job = make_job(spec=spec, status=JobStatus.ERROR, settled=True, live_key=None)
        JobStore(own).insert(job)
        return job

    answer = door.post(f"/jobs/{ended('1').id}/retry", headers={"X-Request-ID": "again"})
    again = door.get(f"/jobs/{answer.json()['job_id']}").json()
    assert (again["version"], again["correlation_id"]) == ("1", "again")
    gone = door.post(f"/jobs/{ended('0').id}/retry")
    assert gone.status_code == 409
    assert "unknown version '0' of project 'Shop'; there is 1, 2" in gone.json()["error"]["message"]
