"""Job boards whose scripts ask for more: at the end of the page, or when somebody clicks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from integration.crawler.conftest import Crawl, Run
from sites.job_board import PER_PAGE, JobBoard, Markup, Pagination, job_board

POSTINGS = 50


@pytest.fixture(scope="module")
def board() -> Iterator[JobBoard]:
    with job_board(POSTINGS) as running:
        yield running


def scrape(run: Run, board: JobBoard, markup: Markup, pagination: Pagination, **more: Any) -> Crawl:
    board.access_log.clear()
    params = {
        "render": True,
        "pagination_type": "infinite_scroll",
        "selectors": board.selectors(markup, pagination),
        "details": False,
        **more,
    }
    return run("jobs", board.search_url(markup, pagination), params=params)


@pytest.mark.parametrize(("markup", "pagination"), [("html", "infinite_scroll"), ("json-ld", "load_more")])
def test_it_goes_on_until_nothing_more_comes(
    run: Run, board: JobBoard, markup: Markup, pagination: Pagination
) -> None:
    crawl = scrape(run, board, markup, pagination)
    assert sorted(item["title"] for item in crawl.items) == sorted(ad.title for ad in board.postings)
    assert crawl.report["finish_reason"] == "finished"
    assert crawl.progress["requested_pages"] == 1


def test_it_asks_for_no_more_than_are_wanted(run: Run, board: JobBoard) -> None:
    crawl = scrape(run, board, "html", "load_more", results_wanted=PER_PAGE + 5)
    assert len(crawl.items) == PER_PAGE + 5
    assert crawl.report["finish_reason"] == "results_wanted"
    assert [path for path in board.paths() if "part=1" in path] == ["/search/html/load_more?&part=1&page=2"]


def test_a_link_that_leads_away_and_a_selector_that_no_browser_knows_change_nothing(
    run: Run, board: JobBoard
) -> None:
    selectors = {**board.selectors("html", "none"), "result": "li:contains('Keeper')", "load_more": "h2 a"}
    crawl = scrape(run, board, "html", "none", selectors=selectors, results_wanted=2)
    assert [item["title"] for item in crawl.items] == ["Lighthouse Keeper 0", "Lighthouse Keeper 6"]


def test_the_postings_own_pages_are_rendered_without_waiting_for_more(run: Run, board: JobBoard) -> None:
    crawl = scrape(run, board, "details", "load_more", details=None, results_wanted=2, wait_for="li.job")
    assert [item["source"] for item in crawl.items] == ["json-ld"] * 2
    assert crawl.progress["requested_pages"] == 3
    assert "render/timeout/wait_for" not in crawl.report["stats"]
