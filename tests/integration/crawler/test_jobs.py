"""The `jobs` spider on boards of every kind, held against what they serve."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from forms import first_in_short
from sites.job_board import PER_PAGE, JobAd, JobBoard, Markup, Pagination, job_board
from sites.server import Reply, Site, html

from crawler.demo_site.server import POSITIONS, DemoServer

from .conftest import Crawl, Run, Start

POSTINGS = 120
RESULT_PAGES = POSTINGS // PER_PAGE


@pytest.fixture(scope="module")
def served() -> Iterator[JobBoard]:
    with job_board(POSTINGS) as running:
        yield running


@pytest.fixture
def board(served: JobBoard) -> JobBoard:
    served.access_log.clear()
    return served


def params(board: JobBoard, markup: Markup, pagination: Pagination, **more: Any) -> dict[str, Any]:
    """As a site's run would have them."""
    record = board.record("board", markup, pagination)
    asked = {"keywords": more.get("keywords", ""), "location": more.get("location", "")}
    template = record["search_url"].format(**asked, page="{page}")
    return {
        "search_url": template,
        "pagination_type": record["pagination_type"],
        "selectors": record["selectors"],
        **more,
    }


def scrape(run: Run, board: JobBoard, markup: Markup, pagination: Pagination, **more: Any) -> Crawl:
    sent = params(board, markup, pagination, **more)
    return run("jobs", sent["search_url"].replace("{page}", "1"), params=sent)


def told(item: dict[str, Any]) -> tuple[Any, ...]:
    pay = item["salary"]
    return (
        item["url"],
        item["title"],
        item["company"],
        item["posted"],
        item["remote"] or False,
        pay and (pay["min"], pay["max"], pay["currency"], pay["period"]),
        item["description"],
    )


def truth(board: JobBoard, markup: Markup, ad: JobAd) -> tuple[Any, ...]:
    return (
        board.posting_url(markup, ad),
        ad.title,
        ad.company,
        ad.posted,
        ad.remote,
        ad.pay and tuple(ad.pay),
        ad.description,
    )


@pytest.mark.parametrize(
    ("markup", "pagination", "pages"),
    [
        ("json-ld", "next_link", RESULT_PAGES),
        # two of the postings' own pages show that there is nothing more to be had from them
        ("html", "page_param", RESULT_PAGES + 1 + 2),
        ("details", "next_link", RESULT_PAGES + POSTINGS),
    ],
)
def test_a_board_is_scraped_completely(
    run: Run, board: JobBoard, markup: Markup, pagination: Pagination, pages: int
) -> None:
    crawl = scrape(run, board, markup, pagination)
    assert sorted(map(told, crawl.items)) == sorted(truth(board, markup, ad) for ad in board.postings)
    assert len(board.paths()) == len(set(board.paths())) == pages
    assert crawl.report["finish_reason"] == "finished"
    assert crawl.progress["errors_count"] == 0


def test_an_item_says_where_it_comes_from(run: Run, board: JobBoard) -> None:
    crawl = scrape(run, board, "json-ld", "next_link", keywords="python", location="Lyon", max_result_pages=1)
    ads = board.found("python", "Lyon")
    first = crawl.items[0]
    assert [item["title"] for item in crawl.items] == [ad.title for ad in ads]
    assert (first["source"], first["page"]) == ("json-ld", 1)
    assert (first["keywords"], first["location_asked"]) == ("python", "Lyon")
    assert (first["location"]["city"], first["location"]["country"]) == ("Lyon", "FR")
    assert first["raw"]["@type"] == "JobPosting"
    assert first["identifier"] == f"ad-{ads[0].number}"


@pytest.mark.parametrize(
    ("markup", "wanted", "pages"),
    first_in_short(
        [
            ("json-ld", 25, 2),
            ("html", 25, 2 + 2),
            ("details", 25, 2 + 25),
        ]
    ),
)
def test_it_ends_with_as_many_as_are_wanted_and_fetches_no_page_beyond(
    run: Run, board: JobBoard, markup: Markup, wanted: int, pages: int
) -> None:
    crawl = scrape(run, board, markup, "page_param", results_wanted=wanted)
    assert len(crawl.items) == len({item["url"] for item in crawl.items}) == wanted
    assert crawl.report["finish_reason"] == "results_wanted"
    assert len(board.paths()) == crawl.progress["requested_pages"] == pages


def test_remote_postings_are_told_from_others(run: Run, board: JobBoard) -> None:
    for remote in (True, False):
        crawl = scrape(run, board, "json-ld", "next_link", is_remote=remote, results_wanted=30)
        wanted = [ad.title for ad in board.postings if ad.remote is remote][:30]
        assert [item["title"] for item in crawl.items] == wanted


def test_details_may_be_asked_for_or_left_alone_and_fewer_than_are_wanted_are_no_fault(
    run: Run, board: JobBoard
) -> None:
    asked = scrape(run, board, "json-ld", "none", location="Lyon", details=True, results_wanted=1000)
    lyon = board.found("", "Lyon")
    assert len(asked.items) == len(lyon)
    assert len(board.paths()) == 1 + len(lyon)
    assert asked.report["finish_reason"] == "finished"
    board.access_log.clear()
    scrape(run, board, "html", "none", details=False)
    assert len(board.paths()) == 1


def row(title: str, url: str) -> str:
    return f"<li class=job><a href='{url}'>{title}</a></li>"


def posting(title: str, **more: Any) -> str:
    return (
        f'<script type="application/ld+json">{json.dumps({"@type": "JobPosting", "title": title, **more})}</script>'
    )


def test_the_demo_sites_board_is_one(run: Run) -> None:
    with DemoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        crawl = run("jobs", f"{server.url}positions", params={"pagination_type": "next_link"})
        server.shutdown()
        thread.join()
    assert {item["title"] for item in crawl.items} == {position.title for position in POSITIONS.values()}
    assert {item["salary"] and item["salary"]["currency"] for item in crawl.items} == {"SEK", None}


#: A posting, half of one, and one that can be mended.
BROKEN = (
    posting("First", url="/1") + '<script type="application/ld+json">{"@type": "JobPosting",</script>'
    '<script type="application/ld+json">{"@type": "JobPosting", "title": "Second", "url": "/2",}</script>'
)


@pytest.fixture(scope="module")
def odd() -> Iterator[Site]:
    """A board with everything that can go wrong with single postings and pages."""
    with Site(host="127.0.0.3") as elsewhere:
        rows = [
            ("Expired", "/jobs/12"),
            ("Expired too", "/jobs/13"),
            # the first one's page decides whether the others' are asked for
            ("Garbled", "/jobs/11"),
            ("At home", "/jobs/1"),
            ("Elsewhere", f"{elsewhere.url}/2"),
            ("Leads away", "/jobs/3"),
            ("Gone", "/jobs/4"),
            ("Broken", "/status/500"),
            ("Forbidden", "/private/6"),
            ("Moved", "/jobs/7"),
            ("A file", "/jobs/8"),
            ("", "/jobs/9"),
            ("At home again", "/jobs/1#top"),
        ]
        pages: dict[str, str | Reply] = {
            "/": html("".join(row(*one) for one in rows) + "<a rel=next href='/search/2'>next</a>"),
            "/search/2": html(row("On the second page", "/jobs/10") + "<a rel='nofollow next' href='/'>next</a>"),
            "/jobs/1": html(posting("At home (m/w/d)") + '<script type="application/ld+json">{"@type": "Jo</script>'),
            "/jobs/3": Reply(status=302, headers={"Location": f"{elsewhere.url}/3"}),
            "/jobs/7": Reply(status=301, headers={"Location": "/jobs/7/now"}),
            "/jobs/7/now": html(posting("Moved")),
            "/jobs/8": Reply(b"%PDF-1.7", content_type="application/pdf"),
            "/jobs/9": html(posting("Named on its own page")),
            # an encoding that no page can be in
            "/jobs/11": Reply(html(posting("Lost")), content_type="text/html; charset=idna"),
            **dict.fromkeys(("/jobs/12", "/jobs/13"), Reply(status=302, headers={"Location": "/search/2"})),
            "/jobs/10": html(posting("On the second page")),
            "/away": html(BROKEN + f"<link rel=next href='{elsewhere.url}/page/2'>"),
            "/bare": html("<h1>Jobs</h1><a href='/jobs/1'>At home</a>"),
        }
        with Site(pages, robots="User-agent: *\nDisallow: /private/") as running:
            yield running
        assert elsewhere.access_log == []


ODD = {"pagination_type": "next_link", "selectors": {"result": "li.job", "title": "a"}}


def test_what_goes_wrong_with_one_posting_costs_no_other(run: Run, odd: Site) -> None:
    crawl = run("jobs", odd.url, params=ODD)
    assert sorted(item["title"] for item in crawl.items) == [
        "A file",
        "At home (m/w/d)",
        "At home again",
        "Broken",
        "Elsewhere",
        "Expired",
        "Expired too",
        "Forbidden",
        "Garbled",
        "Leads away",
        "Moved",
        "Named on its own page",
        "On the second page",
    ]
    assert crawl.report["finish_reason"] == "finished"
    assert crawl.report["stats"]["jobs/gone"] == 1
    assert odd.hits("/") == odd.hits("/jobs/1") == 1


def test_what_falls_away_is_made_up_for(run: Run, odd: Site) -> None:
    crawl = run("jobs", odd.url, params={**ODD, "results_wanted": 13})
    assert len(crawl.items) == 13
    assert crawl.report["finish_reason"] == "results_wanted"


def test_a_broken_script_costs_one_posting_and_a_next_page_on_another_site_is_not_fetched_but_told(
    start: Start, odd: Site
) -> None:
    crawl = start("jobs", f"{odd.url}/away", params={"pagination_type": "next_link"}).wait()
    assert [item["title"] for item in crawl.items] == ["First", "Second"]
    assert "/page/2, is not on the site" in crawl.log


def test_a_page_that_nobody_knows_how_to_read_is_told(start: Start, odd: Site) -> None:
    both = [start("jobs", f"{odd.url}/bare", params=params) for params in ({}, {"selectors": {"result": "li.job"}})]
    bare, wrong = (attempt.wait() for attempt in both)
    assert bare.items == []
    assert "there is no selectors.result" in bare.log
    assert "nothing on it matches selectors.result (li.job)" in wrong.log


def test_the_limits_of_the_crawl_hold(run: Run, board: JobBoard) -> None:
    crawl = scrape(run, board, "json-ld", "next_link", max_result_pages=2)
    assert len(crawl.items) == 2 * PER_PAGE
    board.access_log.clear()
    start = board.search_url("details", "next_link")
    limited = run("jobs", start, max_pages=5, params=params(board, "details", "next_link"))
    assert len(limited.items) == 4
    assert limited.report["finish_reason"] == "closespider_pagecount"


def test_pagination_that_lacks_what_it_needs_ends_the_crawl_before_its_first_page(run: Run, odd: Site) -> None:
    visits = len(odd.access_log)
    crawl = run("jobs", odd.url, params={"pagination_type": "page_param", "search_url": odd.url})
    assert crawl.exit_code == 1
    assert "{page}" in crawl.log
    assert len(odd.access_log) == visits
