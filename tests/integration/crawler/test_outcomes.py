"""How a crawl ended, as its report and the gateway's rules together say it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forms import first_in_short
from sites.server import Site, html, links
from stores import StoreProcess, valkey_server

from gateway.contract.crawl import Expect
from gateway.contract.outbox import MAX_RECORD
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, SpiderReport
from gateway.jobs.outcome import Outcome, decide

from .conftest import Crawl, ProjectPython, Run

SHOP = Path(__file__).parent / "shop"
WALK = Path(__file__).parent / "walk"


def outcome(crawl: Crawl, expect: dict[str, Any] | None = None) -> tuple[str, str, bool]:
    """The status, the message, and whether it is tried again."""
    status, _, message, retryable = ended(crawl, expect)
    return status, message, retryable


def ended(crawl: Crawl, expect: dict[str, Any] | None = None) -> Outcome:
    report = SpiderReport.model_validate(crawl.report)
    facts = ExitReport(attempt=1, ended_at=report.ended_at, exit_code=crawl.exit_code, report=report)
    return decide(facts, expect=Expect.model_validate(expect) if expect else None)


@pytest.fixture
def shop(site: Site) -> Site:
    """Two hundred offers, each with a link to the next one."""
    pages = {f"/offer/{number}": links(f"/offer/{number + 1}") for number in range(200)}
    site.pages.update({**pages, "/offer/200": html("the last one")})
    return site


# --- start URLs that cannot be had


@pytest.mark.parametrize("spider", first_in_short(["seo", "extract", "article", "jobs", "sitemap", "catalogue"], 2))
def test_a_crawl_whose_only_page_is_missing_is_an_error_for_good(run: Run, site: Site, spider: str) -> None:
    params = {"fields": {"title": "h1"}} if spider == "extract" else {}
    where = {"cwd": SHOP} if spider == "catalogue" else {}
    path = "/sitemap.xml" if spider == "sitemap" else "/missing"
    crawl = run(spider, site.url + path, params=params, **where)
    assert (crawl.progress["completed_pages"], crawl.progress["errors_count"]) == (0, 1)
    first = f"(the first: {site.url}{path}: HTTP 404 Not Found)"
    assert ended(crawl) == ("error", Reason.PAGE_MISSING, f"1 of 1 requests failed {first}", False)


def test_a_site_without_robots_and_sitemap_has_no_page_at_all(run: Run, site: Site) -> None:
    assert outcome(run("sitemap", site.url))[::2] == ("error", False)
    site.pages["/sitemap.xml"] = f"<urlset><url><loc>{site.url}/a</loc></url></urlset>"
    crawl = run("sitemap", site.url)
    assert outcome(crawl) == ("finished", "2 pages", False), "robots.txt may be missing"
    assert len(crawl.items) == 1


def test_some_start_urls_may_be_missing_and_so_may_pages_on_the_way(run: Run, site: Site) -> None:
    site.pages["/"] = links("/gone", "/gone/too")
    crawl = run("seo", f"{site.url}/missing", f"{site.url}/status/403", f"{site.url}/")
    assert (crawl.progress["answered_2xx"], crawl.progress["answered_4xx"]) == (1, 4)
    assert outcome(crawl) == ("finished", "5 pages", False)
    assert {item["status"] for item in crawl.broken} == {403, 404}


@pytest.mark.parametrize(
    ("other", "retryable"), [("/status/410", False), ("/status/503", True), ("/status/429", True)]
)
def test_where_all_failed_it_is_tried_again_if_one_may_come_back(
    run: Run, site: Site, other: str, *, retryable: bool
) -> None:
    crawl = run("catalogue", f"{site.url}/missing", site.url + other, cwd=SHOP)
    status, message, again = outcome(crawl)
    assert (status, again) == ("error", retryable)
    assert message.startswith("2 of 2 requests failed")


def test_a_redirect_to_a_missing_page_is_a_missing_page(run: Run, site: Site) -> None:
    crawl = run("catalogue", f"{site.url}/redirect-to?/missing", cwd=SHOP)
    assert outcome(crawl)[0] == "error"
    (error,) = crawl.report["errors"]
    assert (error["url"], error["code"]) == (f"{site.url}/missing", Reason.PAGE_MISSING)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("cache")) as server:
        yield server


def test_a_crawl_that_failed_asks_the_site_again(run: Run, site: Site, valkey: StoreProcess) -> None:
    environ = {"HTTP_CACHE_REDIS_URL": valkey, "HTTP_CACHE_TTL": "60"}
    assert outcome(run("seo", f"{site.url}/new", depth=0, environ=environ))[0] == "error"
    site.pages["/new"] = html("here it is")
    assert outcome(run("seo", f"{site.url}/new", depth=0, environ=environ)) == ("finished", "1 page", False)


def test_a_crawl_that_found_nothing_says_so(run: Run, site: Site) -> None:
    site.pages["/"] = html("a page")
    crawl = run("extract", f"{site.url}/", params={"fields": {"title": "h1"}, "items": "li"})
    assert outcome(crawl) == ("finished", "1 page, no items", False)


# --- what fails before the first page: the first error is the cause

REFUSED = "StoreError: error 111 connecting to localhost:9"
UNSET = "KeyError: 'SHOP_TOKEN' (the variable is not set: `discoverybot env set SHOP_TOKEN --project …`)"
#: Spider and what its `start()` raises → message, and whether it is tried again.
FAILURES = {
    "fails_in_start": ("start() raised ValueError: which category?", False),
    "fails_in_start refused": (f"start() raised {REFUSED}", True),
    "fails_in_start variable": (
        f"start() raised {UNSET}",
        False,
    ),
    "without_category": ("the crawl could not begin: ValueError: which category?", False),
    "refused_scheduler": (f"the crawl could not begin: {REFUSED}", True),
    "refused_queue": (f"the crawl could not begin: {REFUSED}", True),
    "refused_pipeline": (f"the crawl could not begin: {REFUSED}", True),
    "refused_extension": (f"the crawl could not begin: {REFUSED}", True),
}


@pytest.mark.parametrize("failing", first_in_short([*FAILURES], 3))
def test_the_first_error_is_the_cause(run: Run, failing: str) -> None:
    spider, _, raises = failing.partition(" ")
    crawl = run(spider, cwd=WALK, params={"raises": raises})
    assert outcome(crawl) == ("error", *FAILURES[failing])
    assert "slot not assigned" not in crawl.log.splitlines()[-1]


@pytest.mark.parametrize("spider", first_in_short(["fails_in_start", "refused_scheduler", "refused_queue"]))
def test_the_first_error_is_the_cause_in_the_oldest_scrapy_too(run: Run, oldest: ProjectPython, spider: str) -> None:
    params, no_pipeline = {"raises": ""}, {"ITEM_PIPELINES": {}}
    assert outcome(run(spider, cwd=WALK, python=oldest, params=params, settings=no_pipeline)) == (
        "error",
        *FAILURES[spider],
    )


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("nosuchproxy.invalid:3128", "the host name of the proxy nosuchproxy.invalid could not be resolved"),
        ("127.0.0.1:9", "the proxy 127.0.0.1 refused the connection"),
    ],
)
def test_a_proxy_that_cannot_be_reached_is_not_the_sites_fault(run: Run, site: Site, proxy: str, reason: str) -> None:
    crawl = run("plain", f"{site.url}/", cwd=WALK, fetch={"proxy": f"http://user:secret@{proxy}"})
    assert outcome(crawl) == ("error", f"1 of 1 requests failed (the first: {site.url}/: {reason})", True)
    assert ended(crawl).reason is Reason.PROXY_UNREACHABLE
    assert not site.paths()
    assert "secret" not in json.dumps(crawl.report)


def test_a_start_that_fails_on_the_way_leaves_what_was_found(run: Run, site: Site) -> None:
    crawl = run("fails_in_start", f"{site.url}/tree/1", cwd=WALK, params={"raises": ""})
    assert outcome(crawl) == ("partial", "ended early: start() raised ValueError: which category?", False)
    assert len(crawl.items) == 1


def test_a_spider_that_ends_its_own_process_is_at_its_end(run: Run, site: Site) -> None:
    crawl = run("exits", f"{site.url}/tree/1", cwd=WALK)
    assert outcome(crawl) == ("error", "the crawl broke down: SystemExit: 0", True)
    assert "sys.exit(0)" in crawl.log


def test_errors_with_whole_pages_in_them_do_not_cost_the_report(run: Run, site: Site) -> None:
    pages = [f"{site.url}/large/{number}" for number in range(500_000, 500_006)]
    crawl = run("wordy", f"{site.url}/tree/1", *pages, cwd=WALK)
    assert len((crawl.folder / "report.json").read_bytes()) < MAX_RECORD
    assert outcome(crawl)[1].startswith("the spider failed on 7 of 7 pages (the first: ")
    assert ended(crawl).reason is Reason.SPIDER_FAILED


# --- what is expected


def test_what_is_missing_from_items_is_counted(run: Run, shop: Site) -> None:
    expect = {"min_items": 300, "fields": {"number": 1, "price": 0.6}}
    crawl = run("catalogue", f"{shop.url}/offer/0", cwd=SHOP, params={"priced": "2"}, expect=expect)
    assert crawl.report["filled"] == {"number": 201, "price": 101}
    told = "201 pages; 201 items, expected at least 300; 101 of 201 items have 'price', expected at least 60 %"
    assert outcome(crawl, expect) == ("partial", told, False)
    assert outcome(crawl, {"min_items": 201, "fields": {"price": 0.5}}) == ("finished", "201 pages", False)


def test_a_crawl_whose_items_lack_what_is_expected_is_stopped_early(run: Run, shop: Site) -> None:
    expect = {"fields": {"price": 0.9}, "stop_early_after": 20}
    crawl = run("catalogue", f"{shop.url}/offer/0", cwd=SHOP, params={"priced": "2"}, expect=expect)
    assert crawl.report["finish_reason"] == "expectation_broken"
    assert 20 <= len(crawl.items) <= 25
    assert len(shop.paths()) <= 25
    assert "Stopped early: 10 of 20 items have 'price', expected at least 90 %" in crawl.log
    status, message, retryable = outcome(crawl, expect)
    assert (status, retryable) == ("partial", False)
    assert message.startswith("stopped early, because it broke an expectation")


def test_a_crawl_that_is_as_expected_is_not_stopped(run: Run, shop: Site) -> None:
    expect = {"fields": {"price": 0.5}, "max_error_rate": 0.1, "stop_early_after": 1}
    crawl = run("catalogue", f"{shop.url}/offer/0", cwd=SHOP, params={"priced": "2"}, expect=expect)
    assert outcome(crawl, expect) == ("finished", "201 pages", False)


def test_a_crawl_whose_requests_fail_is_stopped_early(run: Run, site: Site) -> None:
    failing = [f"/status/{status}" for status in range(500, 505)]
    good = {f"/good/{number}": html("a page") for number in range(300)}
    site.pages |= {"/": links(*list(good)[:30], *failing, *list(good)[30:]), **good}
    expect = {"max_error_rate": 0.05, "stop_early_after": 20}
    crawl = run("seo", f"{site.url}/", expect=expect, fetch={"concurrency": 2, "retry_codes": []})
    assert crawl.report["finish_reason"] == "expectation_broken"
    assert len(site.paths()) < 60
    assert outcome(crawl, expect)[::2] == ("partial", False)
