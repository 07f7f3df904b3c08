"""The errors of a crawl, grouped in its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sites.server import Reply, Site, html

from gateway.contract.error_fingerprint import MOST_GROUPS

from .conftest import Crawl, ProjectPython, Run

SHOP = Path(__file__).parent / "shop"
WALK = Path(__file__).parent / "walk"


def groups(crawl: Crawl) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["name"], one["place"]): one for one in crawl.report["error_groups"]}


@pytest.fixture
def shop(site: Site) -> Site:
    ways = ("price", "sku", "item", "said", "formatted", "again", "warned")
    site.pages.update({f"/{way}-{number}": html(way) for way in ways for number in range(3)})
    return site


def test_errors_of_the_same_kind_and_place_are_one_group(run: Run, shop: Site) -> None:
    urls = [f"{shop.url}{path}" for path in sorted(shop.pages)]
    crawl = run("trips", *urls, cwd=SHOP)
    found = groups(crawl)
    assert {key: one["count"] for key, one in found.items()} == {
        ("ValueError", "shop/spiders.py:price"): 3,
        ("KeyError", "shop/spiders.py:sku"): 3,
        ("ValueError", "shop/spiders.py:process_item"): 3,
        ("ERROR", "shop/spiders.py:said"): 3,
        ("ERROR", "shop/spiders.py:formatted"): 3,
        ("ERROR", "scrapy.downloadermiddlewares.retry"): 3,
    }
    price = found["ValueError", "shop/spiders.py:price"]
    assert (price["kind"], price["message"]) == ("exception", "could not convert string to float: <text>")
    assert price["example"].startswith("could not convert string to float: '€ ")
    assert price["url"] in urls
    # what cannot be told from its text
    assert found["ERROR", "shop/spiders.py:said"]["message"] == "No stock of %s on %s"
    assert found["ERROR", "shop/spiders.py:formatted"]["message"] == "No colour of <number>"
    assert "/item-" in found["ValueError", "shop/spiders.py:process_item"]["url"]
    assert crawl.report["errors_left_out"] == 0


def test_each_group_says_where_its_first_error_is_in_the_log(run: Run, shop: Site) -> None:
    crawl = run("trips", *(f"{shop.url}{path}" for path in sorted(shop.pages)), cwd=SHOP)
    log = (crawl.folder / "crawl.log").read_bytes()
    for one in crawl.report["error_groups"]:
        line = log[one["log_start"] :].splitlines()[0].decode()
        assert line.startswith("20"), line
        assert " ERROR: " in line
    said = groups(crawl)["ERROR", "shop/spiders.py:said"]
    assert said["example"] in log[said["log_start"] :].splitlines()[0].decode()


@pytest.fixture(params=["today's", "oldest"])
def stumble(request: pytest.FixtureRequest, run: Run) -> Run:
    """A crawl of these URLs, in today's Scrapy or the oldest."""
    if request.param == "oldest":
        alone: ProjectPython = request.getfixturevalue("oldest")
        plain = {"ITEM_PIPELINES": {}, "RETRY_TIMES": 1}
        return lambda *urls: run("plain", *urls, cwd=WALK, python=alone, settings=plain)
    return lambda *urls: run("trips", *urls, cwd=SHOP)


def test_requests_are_grouped_by_what_they_end_with_and_by_host(stumble: Run, site: Site) -> None:
    with Site() as gone:
        pass
    site.pages.update({f"/bad-{number}": Reply(status=503) for number in range(3)})
    site.pages |= {"/robots.txt": Reply(status=503), "/warned-1": html("fine")}
    paths = (*(f"/bad-{number}" for number in range(3)), "/missing", "/warned-1")
    crawl = stumble(*(site.url + path for path in paths), gone.url)
    found = {(one["kind"], one["name"].rpartition(".")[2], one["place"]): one for one in crawl.report["error_groups"]}
    (refused,) = (name for kind, name, _ in found if kind == "download")
    assert {key: one["count"] for key, one in found.items()} == {
        ("status", "503", "127.0.0.1"): 3,
        ("status", "404", "127.0.0.1"): 1,
        ("download", refused, "127.0.0.1"): 1,
    }
    assert refused in {"DownloadConnectionRefusedError", "ConnectionRefusedError"}
    assert found["status", "503", "127.0.0.1"]["message"] == "HTTP <number> Service Unavailable"


def test_a_page_that_our_own_spider_may_not_ask_for_is_in_a_group(run: Run, site: Site) -> None:
    site.pages["/"] = html("a page")
    crawl = run("extract", site.url, params={"fields": {"title": "h1"}}, environ={"CRAWL_ALLOW_NETWORKS": ""})
    assert [(one["kind"], one["count"]) for one in crawl.report["error_groups"]] == [("download", 1)]


def test_what_keeps_a_crawl_from_beginning_is_a_group(run: Run, site: Site) -> None:
    for spider, place in (("raises_at_start", "start"), ("raises_when_built", "__init__")):
        crawl = run(spider, site.url, cwd=SHOP)
        assert {(key, one["count"]) for key, one in groups(crawl).items()} == {
            (("RuntimeError", f"shop/spiders.py:{place}"), 1)
        }


def test_more_groups_than_there_is_room_for_are_counted(run: Run, site: Site) -> None:
    """And those of hosts do not drive out what the code raises."""
    names = [f"{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(60)]
    site.pages.update({f"/formatted-{name}": html("x") for name in names})
    crawl = run("trips", *(f"{site.url}/formatted-{name}" for name in names), cwd=SHOP)
    assert len(crawl.report["error_groups"]) == MOST_GROUPS
    assert crawl.report["errors_left_out"] == 60 - MOST_GROUPS
