"""What robots.txt asks for besides what it forbids: a pace that all crawls keep together, and a license."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from time import process_time

import pytest
from scrapy.settings import Settings
from sites.server import Reply, Site, html, links
from stores import StoreProcess, valkey_server

from crawler.orders import Fetch
from crawler.pace.robots import _LICENSE, CRAWL_DELAY, LICENSE, MOST_DELAY, use_robots
from gateway.contract.outbox import UNLICENSED

from .conftest import Crawl, Run, Start

DELAY = 0.5
#: Seconds by which a turn's request may arrive late, so that the next one follows it too soon.
LATE = 0.2
TERMS = "https://example.org/license.xml"


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("delays")) as server:
        yield server


def gaps(*sites: Site) -> list[float]:
    """Seconds between two requests for pages, the shortest first."""
    visits = [visit for site in sites for visit in site.access_log if visit.path != "/robots.txt"]
    moments = sorted(visit.at for visit in visits)
    return sorted(after - before for before, after in itertools.pairwise(moments))


def host(site: Site) -> str:
    return site.url.removeprefix("http://")


def stats(crawl: Crawl) -> dict[str, object]:
    return dict(crawl.report["stats"])


def test_crawls_of_a_host_keep_its_crawl_delay_together(start: Start, valkey: StoreProcess) -> None:
    robots = f"User-agent: *\nCrawl-delay: {DELAY}"
    environ = {"RATE_LIMIT_REDIS_URL": str(valkey)}
    with Site(robots=robots) as site:
        attempts = [start("seo", f"{site.url}/tree/4", depth=1, user_id=user, environ=environ) for user in ("a", "b")]
        crawls = [attempt.wait() for attempt in attempts]
        assert [crawl.progress["completed_pages"] for crawl in crawls] == [5, 5]
        assert stats(crawls[0])[CRAWL_DELAY + host(site)] == DELAY
        # one of two may be late by more than that, but its time was given out
        assert sum(gaps(site)) > 9 * DELAY - LATE
        assert gaps(site)[4] > DELAY - LATE


def test_other_hosts_are_not_slowed_down_by_one_that_asks_for_a_delay(run: Run) -> None:
    robots = f"User-agent: discoverybot\nCrawl-delay: {DELAY}"
    with Site({"/": html("a"), "/b": html("b")}, robots=robots) as slow, Site() as fast:
        pages = [slow.url, f"{slow.url}/b", *(f"{fast.url}/tree/0/{number}" for number in range(6))]
        crawl = run("seo", *pages, depth=0)
        assert crawl.progress["completed_pages"] == len(pages)
        assert gaps(slow)[0] > DELAY - LATE
        first, last = (slow.access_log[-1].at, max(visit.at for visit in fast.access_log))
        assert last < first, "all of the fast one's pages came before the slow one's second"


def test_a_delay_of_a_day_counts_as_the_longest_that_is_kept(run: Run) -> None:
    with Site({"/": html("a")}, robots="User-agent: *\nCrawl-delay: 86400") as site:
        crawl = run("seo", site.url, depth=0)
        assert crawl.progress["completed_pages"] == 1
        assert stats(crawl)[CRAWL_DELAY + host(site)] == MOST_DELAY
        ignored = run("seo", site.url, depth=0, fetch={"obey_robots": False})
        assert CRAWL_DELAY + host(site) not in stats(ignored)


@pytest.mark.parametrize("delay", ["nan", "-1", "0", "soon", "1e999999", "inf"])
def test_no_delay_that_a_site_writes_stops_a_crawl(run: Run, delay: str) -> None:
    with Site({"/": html("a")}, robots=f"User-agent: *\nCrawl-delay: {delay}") as site:
        assert run("seo", site.url, depth=0).progress["completed_pages"] == 1


def test_a_license_is_noted_and_respected_on_request(run: Run) -> None:
    robots = f"User-agent: *\nDisallow: /x\n\n  LICENSE : {TERMS}  # terms\nLicense: javascript:0"
    with Site({"/": links("/a"), "/a": html("a")}, robots=robots) as site, Site({"/": html("free")}) as free:
        noted = run("seo", site.url, depth=1)
        assert noted.progress["completed_pages"] == 2
        assert stats(noted)[LICENSE + host(site)] == TERMS
        assert TERMS in noted.log
        site.access_log.clear()
        respected = run("seo", site.url, free.url, depth=1, fetch={"respect": ["rsl"]}, params={"obey_robots": False})
        assert [site.hits("/robots.txt"), site.paths()] == [1, []]
        assert respected.progress["completed_pages"] == 1, "the other host has none"
        assert stats(respected)[UNLICENSED] == 1


def test_what_merely_looks_like_a_license_is_none(run: Run) -> None:
    page = Reply(f"License: {TERMS}", status=404)
    with Site({"/": html("a"), "/robots.txt": page}) as site:
        assert LICENSE + host(site) not in stats(run("seo", site.url, depth=0))
    with Site({"/": html("a")}, robots=f"Sitemap: x\n# License: {TERMS}\nLicense: /relative") as site:
        assert LICENSE + host(site) not in stats(run("seo", site.url, depth=0))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"\n" * 1_000_000, False),
        (b" " * 1_000_000, False),
        ((b" " * 999 + b"\n") * 1000, False),
        (b"license:" * 100_000, False),
        (b"license: http://" + b"x" * 1_000_000, False),
        (b"User-agent: *\r\n\tLICENSE :\thttp://a.example/#x \r\n", True),
    ],
    ids=["line ends", "blanks", "lines of blanks", "words", "long", "one"],
)
def test_a_license_is_found_in_no_time_whatever_a_site_writes(body: bytes, *, found: bool) -> None:
    began = process_time()
    assert bool(_LICENSE.search(body)) is found
    assert process_time() - began < 1


def test_a_project_whose_scrapy_cannot_see_licenses_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.pace.robots.HAS_CRAWL_DELAY", False)
    with pytest.raises(ValueError, match="needs a project with Scrapy 2"):
        use_robots(Settings({"FETCH_OPTIONS": Fetch(respect=["rsl"])}))


def test_a_site_that_wants_to_be_paid_is_said_to(run: Run) -> None:
    with Site({"/": Reply("", status=402, headers={"Crawler-Price": "USD 0.01"})}) as site:
        crawl = run("seo", site.url, depth=0)
        assert crawl.report["errors"][0]["code"] == "payment_required", crawl.report
