"""What two crawls fail with, of a deployed project and of our own, known as the same by a whole platform."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from eggs import egg, source
from sites.server import Reply, Site, html
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

SPIDER = """
import scrapy


class Prices(scrapy.Spider):
    name = "prices"

    def parse(self, response):
        print("what only print has written: ERROR")
        yield {"url": response.url}
        yield {"price": self.price(response)}

    def price(self, response):
        return float("EUR " + response.url.rpartition("/")[2])
"""


def deploy(stack: Stack, version: str) -> None:
    ready = stack.ready
    answer = httpx2.post(
        f"{ready['scrapyd_url']}/addversion.json",
        data={"project": "tripping", "version": version},
        files={"egg": ("project.egg", egg(source("tripping", spiders=SPIDER)))},
        auth=(ready["scrapyd_username"], ready["scrapyd_password"]),
        timeout=120,
        trust_env=False,
    ).json()
    assert answer["spiders"] == 1, answer


def errors_of(stack: Stack, job_id: str) -> dict[str, dict[str, Any]]:
    """By their titles; once they are known across runs."""

    def is_added(error: dict[str, Any]) -> bool:
        found = stack.http.get(f"{stack.url}/errors/{error['error_id']}")
        return found.is_success and any(run["job_id"] == job_id for run in found.json()["recent_runs"])

    def added() -> Any:
        told = stack.http.get(f"{stack.url}/jobs/{job_id}/errors").raise_for_status().json()["errors"]
        if not told or not all(map(is_added, told)):
            return None
        return stack.http.get(f"{stack.url}/jobs/{job_id}/errors").json()["errors"]

    return {one["title"]: one for one in wait_until(added, what="the errors of the run")}


def test_an_error_of_two_versions_is_one_and_back_after_it_was_resolved(stack: Stack, site: Site) -> None:
    site.pages.update({f"/{number}": html("a page") for number in range(6)} | {"/broken": Reply(status=503)})
    title = "ValueError: could not convert string to float: <text>"

    def crawled(*pages: str) -> dict[str, dict[str, Any]]:
        urls = [f"{site.url}/{page}" for page in pages]
        settings = {"RETRY_TIMES": 0}
        job_id = stack.crawl(urls[0], start_urls=urls, project="tripping", spider="prices", settings=settings,
                             max_retries=0, version=version)  # fmt: skip
        stack.wait_final(job_id)
        return {**errors_of(stack, job_id), "job": {"id": job_id}}

    deploy(stack, version := "1.0")
    first = crawled("0", "1", "2", "broken")
    error, broken = first[title], first["HTTP 503 from 127.0.0.1"]
    assert (error["place"], error["mark"], error["count"]) == ("tripping/spiders.py:price", "new", 3)
    assert (broken["mark"], broken["count"], broken["example"]["url"]) == ("new", 1, f"{site.url}/broken")
    assert set(first) == {title, "HTTP 503 from 127.0.0.1", "job"}
    # to the line of the log, and the page
    lines = stack.http.get(
        f"{stack.url}/jobs/{first['job']['id']}/logs/lines",
        params={"from": error["example"]["position"], "limit": 1},
    ).json()["lines"]
    assert lines[0]["level"] == "ERROR"
    assert error["example"]["url"] in lines[0]["msg"]
    resolved = stack.http.patch(
        f"{stack.url}/errors/{error['error_id']}", json={"state": "resolved", "version": "2.0"}
    )
    assert resolved.is_success, resolved.text
    deploy(stack, version := "2.0")
    again = crawled("3", "4")[title]
    assert (again["error_id"], again["mark"], again["runs"]) == (error["error_id"], "back", 2)
    one = stack.http.get(f"{stack.url}/errors/{error['error_id']}").json()
    assert (one["state"], one["count"], one["first_seen"]["version"], one["back"]["version"]) == (
        "open",
        5,
        "1.0",
        "2.0",
    )


def test_our_own_spiders_errors_are_grouped_and_so_is_a_crawl_without_any(stack: Stack, site: Site) -> None:
    gone = stack.crawl(f"{site.url}/nothing-here", max_retries=0)
    assert stack.wait_final(gone)["status"] == "error"
    (error,) = errors_of(stack, gone).values()
    assert (error["kind"], error["name"], error["place"]) == ("status", "404", "127.0.0.1")
    missed = stack.crawl(f"{site.url}/tree/1", expect={"min_items": 99}, max_retries=0)
    assert stack.wait_final(missed)["status"] == "partial"
    assert stack.http.get(f"{stack.url}/jobs/{missed}/errors").json() == {"errors": [], "left_out": 0}
