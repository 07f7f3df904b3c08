"""What a crawl writes down of each of its requests."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from forms import first_in_short
from sites.server import Reply, Site, links
from stores import valkey_server

from .conftest import Crawl, ProjectPython, Start
from .test_frontier import crawl_with_kills

WALK = Path(__file__).parent / "walk"
#: The project's pipeline is written for today's Scrapy.
SETTINGS = {"ITEM_PIPELINES": {}, "ROBOTSTXT_OBEY": True}


def recorded(crawl: Crawl) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (crawl.folder / "requests.jsonl").read_bytes().splitlines()]


def by_path(crawl: Crawl, site: Site) -> dict[str, dict[str, Any]]:
    lines = [line for line in recorded(crawl) if not line["url"].endswith("/robots.txt")]
    found = {line["url"].removeprefix(site.url): line for line in lines}
    assert len(found) == len(lines), "one line for each"
    return found


@pytest.mark.parametrize("python", ["oldest", "newest"])
def test_each_request_has_one_line(start: Start, python: str, request: pytest.FixtureRequest) -> None:
    alone: ProjectPython = request.getfixturevalue(python)
    pages = {
        "/": links("/a", "/gone", "/redirect/2", "/flaky/1/x", "/private/", "/status/503"),
        "/a": Reply("x" * 5000, delay=0.2),
    }
    with Site(pages, robots="User-agent: *\nDisallow: /private/") as site:
        crawl = start("plain", site.url, cwd=WALK, python=alone, settings=SETTINGS).wait()
        found = by_path(crawl, site)
        start_page = found[""] if "" in found else found["/"]
    assert found.keys() >= {
        *("/a", "/gone", "/redirect/2", "/flaky/1/x", "/private/", "/status/503"),
    }
    assert sum(line["url"].endswith("/robots.txt") for line in recorded(crawl)) == site.hits("/robots.txt")
    assert {line["attempt"] for line in found.values()} == {1}
    assert crawl.report["progress"]["hosts"] == ["127.0.0.1"]
    assert start_page["status"] == 200
    assert "parent" not in start_page
    assert found["/a"]["parent"].rstrip("/") == site.url
    assert found["/a"]["bytes"] == 5000
    assert found["/a"]["ms"] >= 200
    assert found["/gone"]["status"] == 404
    assert "failed" not in found["/gone"]
    assert found["/redirect/2"]["status"] == 200
    assert found["/redirect/2"]["redirected_to"] == f"{site.url}/redirect/0"
    assert found["/flaky/1/x"]["retries"] == 1
    assert found["/status/503"] | {"failed": True, "reason": "HTTP 503 Service Unavailable"} == found["/status/503"]
    assert found["/status/503"]["code"] == "site_failed"
    # where robots.txt is left to Scrapy, nothing tells it from other pages that were not wanted
    code = "page_refused" if python == "oldest" else "robots_forbidden"
    assert (found["/private/"]["reason"], found["/private/"]["code"]) == ("Forbidden by robots.txt", code)
    assert not found["/private/"].keys() & {"status", "failed", "ms"}


def test_no_login_and_no_endless_url_is_written_down(start: Start) -> None:
    with Site() as site:
        login = site.url.replace("//", "//user:pa%40ss@")
        site.pages["/"] = links(f"/long?{'x' * 2030}", f"{login}/a?token=kept")
        crawl = start("plain", f"{site.url}/", cwd=WALK).wait()
        found = by_path(crawl, site)
    text = (crawl.folder / "requests.jsonl").read_text()
    assert "user" not in text
    assert "pa%40ss" not in text
    assert found["/a?token=kept"]["failed"], "Scrapy asks for no such URL"
    assert max(len(line["url"]) for line in found.values()) == 2000


def test_a_record_is_bounded(start: Start) -> None:
    with Site({"/": links(*(f"/x{number}y" for number in range(30)))}) as site:
        environ = {"REQUESTS_MAX_COUNT": "10"}
        crawl = start("plain", site.url, cwd=WALK, environ=environ).wait()
        small = start("plain", site.url, cwd=WALK, environ={"REQUESTS_MAX_BYTES": "1000"}).wait()
        none = start("plain", site.url, cwd=WALK, environ={"REQUESTS_MAX_COUNT": "0"}).wait()
    assert len(recorded(crawl)) == 10
    assert crawl.report["stats"]["discoverybot/requests_left_out"] == 21, "of 31"
    assert crawl.log.count("From here on requests are not recorded") == 1
    assert 1000 <= (small.folder / "requests.jsonl").stat().st_size < 1400
    assert not (none.folder / "requests.jsonl").exists()


@pytest.mark.parametrize("spider", first_in_short(["plain", "waits"]))
def test_a_crawl_that_goes_on_has_each_request_once(start: Start, spider: str) -> None:
    pages = {
        f"/p/{n}": links(*(f"/p/{m}" for m in (2 * n + 1, 2 * n + 2) if m < 40), "/flaky/1/a") for n in range(40)
    }
    with Site(pages, delay=0.01) as site:
        # a third kill would come after the last page, when there is nothing left to go on with
        crawl, continued = crawl_with_kills(start, site, spider, 2, cwd=WALK)
    assert continued
    lines = recorded(crawl)
    counted = Counter(line["url"].removeprefix(site.url) for line in lines)
    assert counted.keys() >= {*pages, "/flaky/1/a"}
    assert set(counted.values()) == {1}
    assert len({line["attempt"] for line in lines}) > 1
    assert sum("parent" not in line for line in lines) == 1, "those of the attempts before kept theirs"


@pytest.mark.parametrize("spider", first_in_short(["plain", "waits"]))
def test_without_a_frontier_the_record_is_the_same(start: Start, spider: str) -> None:
    with Site({"/": links("/a", "/redirect/1"), "/a": links("/b"), "/b": links()}) as site:
        crawl = start(spider, f"{site.url}/", cwd=WALK, environ={"CRAWL_FRONTIER": "false"}).wait()
        found = by_path(crawl, site)
    parents = {
        path: line.get("parent", "").removeprefix(site.url) for path, line in found.items() if "flaky" not in path
    }
    assert parents == {"/": "", "/a": "/", "/redirect/1": "/", "/b": "/a"}


def test_a_cached_page_says_so(start: Start, tmp_path: Path) -> None:
    with Site({"/": links()}) as site, valkey_server(tmp_path) as valkey:
        cached = {"HTTP_CACHE_REDIS_URL": valkey, "HTTP_CACHE_TTL": "60"}
        start("seo", f"{site.url}/", environ=cached).wait()
        crawl = start("seo", f"{site.url}/", environ=cached).wait()
        (line,) = (line for line in recorded(crawl) if line["url"] == f"{site.url}/")
    assert line["cached"]
    assert "ms" not in line
